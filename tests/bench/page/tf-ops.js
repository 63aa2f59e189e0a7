// TensorFlow.js with its WebAssembly backend as contender of the operators: from an array of the
// page to an array of the page, as for the others.
import { base64, chain, serve, several } from "./rpc.js";
import { openTensorFlow } from "./tf-open.js";

let run;
let y;

/**
 * kind: (tensor, weights) -> tensor. Images have channels last here, so weights are transposed
 * once.
 */
function step(tf, { kind, groups, shape }) {
  const scale = shape.at(-1) ** -0.5;
  return {
    matmul: (x, w) => tf.matMul(x, w),
    conv:
      groups === 1
        ? (x, w) => tf.conv2d(x, w, 1, "same")
        : (x, w) => tf.depthwiseConv2d(x, w, 1, "same"),
    attention: (x, k, v) => tf.matMul(tf.softmax(tf.mul(tf.matMul(x, k), scale)), v),
    softmax: (x) => tf.softmax(x),
    layernorm: (x, w, b) => {
      const { mean, variance } = tf.moments(x, -1, true);
      return tf.add(tf.mul(tf.mul(tf.sub(x, mean), tf.rsqrt(tf.add(variance, 1e-5))), w), b);
    },
    gelu: (x) => tf.mul(tf.mul(x, 0.5), tf.add(tf.erf(tf.mul(x, Math.SQRT1_2)), 1)),
    transpose: (x) => tf.reshape(tf.transpose(x, [1, 0, 2]), shape),
  }[kind];
}

serve({
  async model([url], threads) {
    const tf = await openTensorFlow(threads);
    const op = await chain(url);
    const one = step(tf, op);
    if (!one) throw new Error(`it has no ${op.kind}`);
    const image = op.kind === "conv";
    const links = op.links.map((weights) =>
      weights.map(({ data, shape }) => {
        const w = tf.tensor(data, shape);
        return image ? tf.transpose(w, op.groups === 1 ? [2, 3, 1, 0] : [2, 3, 0, 1]) : w;
      }),
    );
    const [, channels, rows, columns] = image ? op.shape : [];
    // conversion to and from its own layout is not measured
    const last = image && tf.transpose(tf.tensor(op.x, op.shape), [0, 2, 3, 1]).dataSync();
    run = () => {
      const out = tf.tidy(() =>
        links.reduce(
          (x, weights) => one(x, ...weights),
          image ? tf.tensor(last, [1, rows, columns, channels]) : tf.tensor(op.x, op.shape),
        ),
      );
      const found = out.dataSync();
      out.dispose();
      return found;
    };
    y = () =>
      image
        ? tf.tidy(() =>
            tf.transpose(tf.tensor(run(), [1, rows, columns, channels]), [0, 3, 1, 2]).dataSync(),
          )
        : run();
    return { version: tf.version.tfjs };
  },
  modelTimes: (ms) => several(ms, run),
  modelResult: () => base64(y()),
});
