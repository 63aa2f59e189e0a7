// TensorFlow.js with its WebAssembly backend as contender: optimizer.minimize. Its embedding lookup
// has no gradient on this backend: rows of one-hot ids are multiplied instead.
import { batch, oneHot, repeat, start } from "./batch.js";
import { now, serve } from "./rpc.js";
import { openTensorFlow } from "./tf-open.js";

let step;

serve({
  async open(url, threads) {
    const begin = now();
    const tf = await openTensorFlow(threads);
    const { info, weights } = await start(url);
    const { numbers, labels } = batch(info);
    const { kind, layers, width, heads, batch: rows, sequence: s } = info.model;
    const n = labels.length;
    const x = info.input.vocab
      ? tf.tensor(oneHot(numbers, info.input.vocab), [n, info.input.vocab])
      : tf.tensor(numbers, info.input.shape);
    const y = tf.tensor(oneHot(labels, info.labels.classes), [n, info.labels.classes]);
    const variables = [];
    const named = new Map(
      [...weights].map(([name, { shape, data }]) => {
        const tensor = tf.tensor(data.slice(), shape);
        if (!info.trained.includes(name)) return [name, tensor];
        variables.push(tf.variable(tensor));
        return [name, variables.at(-1)];
      }),
    );
    const w = (name) => named.get(name);
    let forward;
    if (kind === "mlp")
      forward = () => {
        let h = x;
        for (let i = 0; i < layers; i++) {
          h = tf.add(tf.matMul(h, w(`w${i}`)), w(`b${i}`));
          if (i + 1 < layers) h = tf.relu(h);
        }
        return h;
      };
    else {
      const mask = tf.tensor(
        Float32Array.from({ length: s * s }, (_, i) => (i % s > Math.floor(i / s) ? -1e9 : 0)),
        [1, 1, s, s],
      );
      const linear = (x, name) => {
        const h = tf.matMul(x, w(name));
        return w(`${name}.lora_A`)
          ? tf.add(h, tf.matMul(tf.matMul(x, w(`${name}.lora_A`)), w(`${name}.lora_B`)))
          : h;
      };
      const norm = (x, weight) =>
        tf.mul(tf.div(x, tf.sqrt(tf.add(tf.mean(tf.mul(x, x), -1, true), 1e-5))), weight);
      const split = (x) =>
        tf.transpose(tf.reshape(x, [rows, s, heads, width / heads]), [0, 2, 1, 3]);
      forward = () => {
        let h = tf.matMul(x, w("embedding"));
        for (let i = 0; i < layers; i++) {
          const p = `layers.${i}.`;
          const a = norm(h, w(`${p}norm1`));
          const [q, k, v] = ["q", "k", "v"].map((part) => split(linear(a, p + part)));
          const scores = tf.softmax(
            tf.add(tf.mul(tf.matMul(q, k, false, true), (width / heads) ** -0.5), mask),
          );
          h = tf.add(
            h,
            linear(
              tf.reshape(tf.transpose(tf.matMul(scores, v), [0, 2, 1, 3]), [n, width]),
              `${p}o`,
            ),
          );
          const m = norm(h, w(`${p}norm2`));
          const gate = linear(m, `${p}gate`);
          h = tf.add(
            h,
            linear(tf.mul(tf.mul(gate, tf.sigmoid(gate)), linear(m, `${p}up`)), `${p}down`),
          );
        }
        return tf.matMul(norm(h, w("norm")), w("head"));
      };
    }
    const optimizer = tf.train.adam(1e-3, 0.9, 0.999, 1e-8);
    step = async () => {
      const loss = optimizer.minimize(
        () => tf.losses.softmaxCrossEntropy(y, forward()),
        true,
        variables,
      );
      const [value] = await loss.data();
      loss.dispose();
      return value;
    };
    return { ms: now() - begin, version: tf.version.tfjs };
  },
  steps: (count, ms) => repeat(step, count, ms),
});
