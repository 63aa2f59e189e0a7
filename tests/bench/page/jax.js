// jax-js as contender: jit over value_and_grad and Adam, as in its documentation. A use of an array
// consumes it; .ref keeps a reference.
import { batch, oneHot, repeat, start } from "./batch.js";
import { openJax } from "./jax-open.js";
import { now, serve } from "./rpc.js";
import { adapter, counts, peakBytes } from "./webgpu/counts.js";

let jax;
let np;
let nn;
let step;

/**
 * The model as a function of its parameters by name. x: the input, or rows of one-hot ids, since
 * the embedding lookup of jax-js has no gradient.
 */
function model({ kind, layers, width, heads, batch: rows, sequence }, lora) {
  const linear = (x, w, name) => {
    if (!lora || !w(`${name}.lora_A`, true)) return np.matmul(x, w(name));
    return np
      .matmul(x.ref, w(name))
      .add(np.matmul(np.matmul(x, w(`${name}.lora_A`)), w(`${name}.lora_B`)));
  };
  if (kind === "mlp")
    return (w, x) => {
      for (let i = 0; i < layers; i++) {
        x = np.matmul(x, w(`w${i}`)).add(w(`b${i}`));
        if (i + 1 < layers) x = nn.relu(x);
      }
      return x;
    };
  const norm = (x, weight) =>
    x.ref.div(np.sqrt(np.mean(x.ref.mul(x), -1, { keepdims: true }).add(1e-5))).mul(weight);
  const split = (x) =>
    np.transpose(x.reshape([rows, sequence, heads, width / heads]), [0, 2, 1, 3]);
  return (w, x, mask) => {
    x = np.matmul(x, w("embedding"));
    for (let i = 0; i < layers; i++) {
      const p = `layers.${i}.`;
      const h = norm(x.ref, w(`${p}norm1`));
      const [q, k] = ["q", "k"].map((n) => split(linear(h.ref, w, p + n)));
      const v = split(linear(h, w, `${p}v`));
      const scores = nn.softmax(
        np
          .matmul(q, np.transpose(k, [0, 1, 3, 2]))
          .mul((width / heads) ** -0.5)
          .add(mask.ref),
        -1,
      );
      const joined = np
        .transpose(np.matmul(scores, v), [0, 2, 1, 3])
        .reshape([rows * sequence, width]);
      x = x.add(linear(joined, w, `${p}o`));
      const m = norm(x.ref, w(`${p}norm2`));
      x = x.add(
        linear(nn.silu(linear(m.ref, w, `${p}gate`)).mul(linear(m, w, `${p}up`)), w, `${p}down`),
      );
    }
    mask.dispose();
    return np.matmul(norm(x, w("norm")), w("head"));
  };
}

serve({
  async open(url, threads, device = "wasm") {
    const begin = now();
    jax = await openJax(threads, device);
    [np, nn] = [jax.numpy, jax.nn];
    const { info, weights } = await start(url);
    const { numbers, labels } = batch(info);
    const n = labels.length;
    const rows = info.input.vocab ? [n, info.input.vocab] : info.input.shape;
    const x = np
      .array(info.input.vocab ? oneHot(numbers, info.input.vocab) : Float32Array.from(numbers))
      .reshape(rows);
    const y = np.array(oneHot(labels, info.labels.classes)).reshape([n, info.labels.classes]);
    const s = info.model.sequence;
    const mask =
      s &&
      np
        .array(
          Float32Array.from({ length: s * s }, (_, i) => (i % s > Math.floor(i / s) ? -1e9 : 0)),
        )
        .reshape([1, 1, s, s]);
    const lora = info.trained.length < weights.size;
    const frozenNames = [...weights.keys()].filter((name) => !info.trained.includes(name));
    const array = (name) =>
      np.array(weights.get(name).data.slice()).reshape(weights.get(name).shape);
    let p = info.trained.map(array);
    const frozen = frozenNames.map(array);
    const forward = model(info.model, lora);
    const loss = (p, frozen, x, y, mask) => {
      const named = new Map([
        ...info.trained.map((name, i) => [name, p[i]]),
        ...frozenNames.map((name, i) => [name, frozen[i]]),
      ]);
      const w = (name, ask) => (ask ? named.has(name) : named.get(name));
      return np.sum(nn.logSoftmax(forward(w, x, mask), -1).mul(y)).mul(-1 / n);
    };
    const gradients = jax.valueAndGrad(loss);
    const update = jax.jit((p, m, v, t, frozen, x, y, mask) => {
      const [l, g] = gradients(
        p.map((a) => a.ref),
        frozen,
        x,
        y,
        ...(mask === undefined ? [] : [mask]),
      );
      const [c1, c2] = [np.subtract(1, np.power(0.9, t.ref)), np.subtract(1, np.power(0.999, t))];
      const next = [[], [], []];
      p.forEach((a, i) => {
        const m1 = m[i].mul(0.9).add(g[i].ref.mul(0.1));
        const v1 = v[i].mul(0.999).add(g[i].ref.mul(g[i]).mul(0.001));
        next[0].push(
          a.sub(
            m1.ref
              .div(c1.ref)
              .mul(1e-3)
              .div(np.sqrt(v1.ref.div(c2.ref)).add(1e-8)),
          ),
        );
        next[1].push(m1);
        next[2].push(v1);
      });
      c1.dispose();
      c2.dispose();
      return [l, ...next];
    });
    let [m, v] = [0, 1].map(() => p.map((a) => np.zeros(a.shape)));
    let t = 0;
    step = async () => {
      const [l, ...next] = update(
        p,
        m,
        v,
        np.array(++t, { dtype: np.float32 }),
        frozen.map((a) => a.ref),
        x.ref,
        y.ref,
        ...(mask ? [mask.ref] : []),
      );
      [p, m, v] = next;
      await jax.blockUntilReady([p, m, v]);
      return (await l.data())[0];
    };
    const ms = now() - begin;
    return { ms, ...(device === "webgpu" ? await adapter() : {}) };
  },
  steps: (count, ms) => repeat(step, count, ms),
  counts: () => ({ ...counts, peakBytes: peakBytes() }),
});
