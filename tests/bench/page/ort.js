// onnxruntime-web as contender, used as in its documentation and in transformers.js: the cache is
// an output of each run and an input of the next one.
import { argmax, base64, now, serve, several } from "./rpc.js";

let ort;
let session;
let empty;
let cache;
let past;
let filled;
let logits;
let feeds;
let y;
const int64 = (values, dims) => new ort.Tensor("int64", BigInt64Array.from(values, BigInt), dims);

async function create(url, threads) {
  ort = await import(new URL("/ort/ort.wasm.bundle.min.mjs", location.href).href);
  ort.env.wasm.wasmPaths = new URL("/ort/", location.href).href;
  ort.env.wasm.numThreads = threads;
  ort.env.logLevel = "error";
  session = await ort.InferenceSession.create(url, {
    executionProviders: ["wasm"],
    graphOptimizationLevel: "all",
  });
}

async function run(ids) {
  const n = ids.length;
  const known = {
    input_ids: () => int64(ids, [1, n]),
    attention_mask: () => int64(new Array(past + n).fill(1), [1, past + n]),
    position_ids: () =>
      int64(
        ids.map((_, i) => past + i),
        [1, n],
      ),
  };
  const inputs = Object.fromEntries(
    session.inputNames.map((name) => [
      name,
      known[name]?.() ?? cache?.[name.replace("past_key_values", "present")] ?? empty,
    ]),
  );
  cache = await session.run(inputs);
  past += n;
  const vocab = cache.logits.dims[2];
  logits = cache.logits.data.subarray(cache.logits.data.length - vocab);
  return argmax(logits);
}

serve({
  async open(url, threads, kvHeads, headDim) {
    const begin = now();
    await create(url, threads);
    empty = new ort.Tensor("float32", new Float32Array(0), [1, kvHeads, 0, headDim]);
    return { ms: now() - begin, version: ort.env.versions?.web ?? ort.env.versions?.common };
  },
  async prefill(ids) {
    const begin = now();
    [cache, past] = [undefined, 0];
    await run(ids);
    filled = [cache, past];
    return now() - begin;
  },
  async decode(_past, ids) {
    [cache, past] = filled;
    const times = [];
    for (const id of ids) {
      const begin = now();
      await run([id]);
      times.push(now() - begin);
    }
    return times;
  },
  logits: () => base64(logits.slice()),

  async model([url, file], threads) {
    await create(file, threads);
    const [{ inputs }, data] = await Promise.all([
      (await fetch(`${url}.json`)).json(),
      (await fetch(`${url}.bin`)).arrayBuffer(),
    ]);
    const arrays = { float32: Float32Array, int64: BigInt64Array };
    feeds = Object.fromEntries(
      inputs.map(({ name, type, dims, at: [at, n] }) => [
        name,
        new ort.Tensor(type, new arrays[type](data.slice(at, at + n)), dims),
      ]),
    );
    return { version: ort.env.versions?.web };
  },
  modelTimes: (ms) =>
    several(ms, async () => {
      y = (await session.run(feeds)).y.data;
    }),
  modelResult: () => base64(y.slice()),
});
