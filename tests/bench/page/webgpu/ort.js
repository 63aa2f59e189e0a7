// onnxruntime-web's WebGPU execution provider as contender, used as transformers.js does: the cache
// stays on the GPU, as an output of each run and an input of the next one.

import { argmax, base64, now, serve } from "../rpc.js";
import { adapter, counts, peakBytes } from "./counts.js";

let ort;
let session;
let empty;
let prompt = {}; // the cache after it: each round of `decode` begins there
let cache = {};
let past = 0;
let filled = 0;

const int64 = (values, dims) => new ort.Tensor("int64", BigInt64Array.from(values, BigInt), dims);
const dispose = (tensors) => {
  for (const one of Object.values(tensors)) one.dispose();
};

/** Appends ids; returns their last logits. */
async function run(ids) {
  const n = ids.length;
  const feeds = {
    input_ids: int64(ids, [1, n]),
    attention_mask: int64(new Array(past + n).fill(1), [1, past + n]),
  };
  for (const name of session.inputNames)
    feeds[name] ??= cache[name.replace("past_key_values", "present")] ?? empty;
  const { logits, ...made } = await session.run(feeds);
  if (cache !== prompt) dispose(cache);
  [cache, past] = [made, past + n];
  return logits.data.slice(-logits.dims[2]);
}

serve({
  /** presents: names of the outputs that are the cache. */
  async open(url, kvHeads, headDim, presents) {
    const begin = now();
    ort = await import(new URL("/ort/ort.webgpu.bundle.min.mjs", location.href).href);
    ort.env.wasm.wasmPaths = new URL("/ort/", location.href).href;
    ort.env.wasm.numThreads = 1;
    ort.env.logLevel = "error";
    session = await ort.InferenceSession.create(url, {
      executionProviders: ["webgpu"],
      graphOptimizationLevel: "all",
      preferredOutputLocation: Object.fromEntries(presents.map((name) => [name, "gpu-buffer"])),
    });
    empty = new ort.Tensor("float32", new Float32Array(0), [1, kvHeads, 0, headDim]);
    const version = ort.env.versions?.web ?? ort.env.versions?.common;
    return { ms: now() - begin, version, ...(await adapter()) };
  },
  async prefill(ids) {
    const begin = now();
    if (cache !== prompt) dispose(cache);
    dispose(prompt);
    [prompt, cache, past] = [{}, {}, 0];
    argmax(await run(ids));
    [prompt, filled] = [cache, past];
    return now() - begin;
  },
  async decode(_past, ids) {
    if (cache !== prompt) dispose(cache);
    [cache, past] = [prompt, filled];
    const times = [];
    for (const id of ids) {
      const begin = now();
      argmax(await run([id]));
      times.push(now() - begin);
    }
    return times;
  },
  /** The logits after the ids. */
  async logits(ids) {
    if (cache !== prompt) dispose(cache);
    [cache, past] = [{}, 0];
    return base64(await run(ids));
  },
  counts: () => ({ ...counts, peakBytes: peakBytes() }),
});
