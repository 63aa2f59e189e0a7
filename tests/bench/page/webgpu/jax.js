// jax-js's WebGPU backend as contender: the same Llama written with its numpy, under jit. Weights
// are float32, since it has none of 4 bits; the cache is an array with room for all positions. A
// use of an array consumes it; .ref keeps a reference.

import { oneHot, start } from "../batch.js";
import { openJax } from "../jax-open.js";
import { base64, now, serve } from "../rpc.js";
import { adapter, counts, peakBytes } from "./counts.js";

let jax;
let info;
let weights;
let step;
let prompt; // the cache after it: each round of `decode` begins there
let cache;

/** The sines and cosines of positions, [n, 1, head_dim / 2]. */
function angles(past, n) {
  const half = info.head_dim / 2;
  const at = (f) =>
    Float32Array.from({ length: n * half }, (_, i) =>
      f((past + Math.floor(i / half)) * info.theta ** (-(i % half) / half)),
    );
  return [Math.cos, Math.sin].map((f) => jax.numpy.array(at(f)).reshape([n, 1, half]));
}

/** (weights, ids [n], positions' inputs, cache) to [token, logits of the last position, cache]. */
function model({ numpy: np, nn }, { layers, heads, kv_heads: few, head_dim: dim, epsilon }) {
  const norm = (x, weight) =>
    x.ref.div(np.sqrt(np.mean(x.ref.mul(x), -1, { keepdims: true }).add(epsilon))).mul(weight);
  const rotate = (x, cos, sin) => {
    const [low, high] = np.split(x, 2, -1);
    const turned = [
      low.ref.mul(cos.ref).sub(high.ref.mul(sin.ref)),
      high.mul(cos.ref).add(low.mul(sin.ref)),
    ];
    return np.concatenate(turned, -1);
  };
  return (w, ids, [cos, sin], place, mask, cache) => {
    const n = ids.shape[0];
    const capacity = mask.shape[1];
    const free = np.subtract(1, np.sum(place.ref, 1, { keepdims: true }));
    // place: [capacity, n], 1 where a position is written
    const write = (old, rows) => old.mul(free.ref).add(np.matmul(place.ref, rows));
    let x = np.take(w.embedding, ids, 0);
    const kept = [];
    for (let i = 0; i < layers; i++) {
      const qkv = np.matmul(norm(x.ref, w[`norm1.${i}`]), w[`qkv.${i}`]);
      let [q, k, v] = np.split(qkv, [heads * dim, (heads + few) * dim], 1);
      q = rotate(q.reshape([n, heads, dim]), cos, sin);
      k = rotate(k.reshape([n, few, dim]), cos, sin).reshape([n, few * dim]);
      const keys = write(cache[2 * i], k);
      const values = write(cache[2 * i + 1], v);
      kept.push(keys.ref, values.ref);
      const y = nn.dotProductAttention(
        q.reshape([1, n, heads, dim]),
        keys.reshape([1, capacity, few, dim]),
        values.reshape([1, capacity, few, dim]),
        { bias: mask.ref.reshape([1, 1, n, capacity]) },
      );
      x = x.add(np.matmul(y.reshape([n, heads * dim]), w[`o.${i}`]));
      const h = norm(x.ref, w[`norm2.${i}`]);
      const gate = nn.silu(np.matmul(h.ref, w[`gate.${i}`]));
      x = x.add(np.matmul(gate.mul(np.matmul(h, w[`up.${i}`])), w[`down.${i}`]));
    }
    for (const one of [cos, sin, place, mask, free]) one.dispose();
    const logits = np.matmul(norm(x.slice([n - 1, n]), w.norm), w.head);
    return [np.argmax(logits.ref, -1), logits, kept];
  };
}

const empty = () =>
  Array.from({ length: 2 * info.layers }, () =>
    jax.numpy.zeros([info.capacity, info.kv_heads * info.head_dim]),
  );

/** Appends ids to `cache`, which it replaces; returns [token, logits]. */
function run(ids, past, kept) {
  const { numpy: np } = jax;
  const n = ids.length;
  const { capacity } = info;
  const places = oneHot(
    Array.from(ids, (_, i) => past + i),
    capacity,
  ); // [n, capacity]
  const mask = Float32Array.from({ length: n * capacity }, (_, i) =>
    i % capacity > past + Math.floor(i / capacity) ? -1e9 : 0,
  );
  const [token, logits, next] = step(
    jax.tree.ref(weights),
    np.array(Int32Array.from(ids), { dtype: np.int32 }),
    angles(past, n),
    np.transpose(np.array(places).reshape([n, capacity])),
    np.array(mask).reshape([n, capacity]),
    kept,
  );
  cache = next;
  return [token, logits];
}

/** Appends ids, and makes the greedy choice. */
async function greedy(ids, past, kept) {
  const [token, logits] = run(ids, past, kept);
  logits.dispose();
  return (await token.data())[0];
}

serve({
  /** @param url of the weights, without extension */
  async open(url) {
    const begin = now();
    jax = await openJax(1, "webgpu");
    const opened = await start(url);
    info = opened.info;
    weights = Object.fromEntries(
      Array.from(opened.weights, ([name, { shape, data }]) => [
        name,
        jax.numpy.array(data.slice()).reshape(shape),
      ]),
    );
    step = jax.jit(model(jax, info));
    const ms = now() - begin;
    return { ms, ...(await adapter()) };
  },
  async prefill(ids) {
    const begin = now();
    jax.tree.dispose(prompt);
    jax.tree.dispose(cache);
    await greedy(ids, 0, empty());
    prompt = jax.tree.ref(cache);
    return now() - begin;
  },
  async decode(past, ids) {
    jax.tree.dispose(cache);
    cache = jax.tree.ref(prompt);
    const times = [];
    for (const [i, id] of ids.entries()) {
      const begin = now();
      await greedy([id], past + i, cache);
      times.push(now() - begin);
    }
    return times;
  },
  /** The logits after the ids. */
  async logits(ids) {
    jax.tree.dispose(cache);
    const [token, logits] = run(ids, 0, empty());
    token.dispose();
    return base64(await logits.data());
  },
  counts: () => ({ ...counts, peakBytes: peakBytes() }),
});
