// jax-js as contender of the operators, under jit: from an array of the page to an array of the
// page. A use of an array consumes it; .ref keeps a reference.
import { openJax } from "./jax-open.js";
import { base64, chain, serve, several } from "./rpc.js";

let run;
let y;

function step({ numpy: np, nn, lax }, { kind, size, groups, shape }) {
  const pad = [
    [size >> 1, size >> 1],
    [size >> 1, size >> 1],
  ];
  const scale = shape.at(-1) ** -0.5;
  return {
    matmul: (x, w) => np.matmul(x, w),
    conv: (x, w) => lax.convGeneralDilated(x, w, [1, 1], pad, { featureGroupCount: groups }),
    attention: (x, k, v) => np.matmul(nn.softmax(np.matmul(x, k).mul(scale), -1), v),
    softmax: (x) => nn.softmax(x, -1),
    layernorm: (x, w, b) => {
      const centred = x.ref.sub(np.mean(x, -1, { keepdims: true }));
      const variance = np.mean(centred.ref.mul(centred.ref), -1, { keepdims: true });
      return centred
        .div(np.sqrt(variance.add(1e-5)))
        .mul(w)
        .add(b);
    },
    gelu: (x) => nn.gelu(x, { approximate: false }),
    transpose: (x) => np.transpose(x, [1, 0, 2]).reshape(shape),
  }[kind];
}

serve({
  async model([url], threads) {
    const jax = await openJax(threads);
    const op = await chain(url);
    const one = step(jax, op);
    if (!one) throw new Error(`it has no ${op.kind}`);
    const array = (data, shape) => jax.numpy.array(data).reshape(shape);
    const links = op.links.map((weights) => weights.map(({ data, shape }) => array(data, shape)));
    const all = jax.jit((x, links) => links.reduce((x, weights) => one(x, ...weights), x));
    run = async () =>
      (y = await all(
        array(op.x, op.shape),
        links.map((weights) => weights.map((w) => w.ref)),
      ).data());
    return {};
  },
  modelTimes: (ms) => several(ms, run),
  modelResult: () => base64(y),
});
