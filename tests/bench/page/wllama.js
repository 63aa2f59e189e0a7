// wllama (llama.cpp as WebAssembly) as contender, on the CPU or with WebGPU. Its own timings are
// used, which exclude tokenization and detokenization.
import { now, serve } from "./rpc.js";

let wllama;
let prompt;
const said = []; // by llama.cpp while it loads a model

const log = (...words) => said.push(words.join(" "));

/** Completes the spelling of the ids (gguf_file.py) greedily with the given number of tokens. */
async function complete(ids, count, more) {
  const result = await wllama.createCompletion({
    prompt: ids.map((id) => `<${id}>`).join(""),
    max_tokens: count,
    n_predict: count,
    temperature: 0,
    top_k: 1,
    ignore_eos: true,
    stream: false,
    ...more,
  });
  if (!result.timings)
    throw new Error(`it tells no timings: ${JSON.stringify(result).slice(0, 300)}`);
  return result;
}

serve({
  /** layers: how many of them run on the GPU. */
  async open(url, threads, layers = 0) {
    const begin = now();
    const { Wllama, LoggerWithoutDebug } = await import(
      new URL("/wllama/index.min.js", location.href).href
    );
    wllama = new Wllama(
      { default: new URL("/wllama/wasm/wllama.wasm", location.href).href },
      layers
        ? { logger: { debug: log, log, warn: log, error: log } }
        : { logger: LoggerWithoutDebug, suppressNativeLog: true },
    );
    const file = await (await fetch(url)).blob();
    await wllama.loadModel([file], {
      n_ctx: 512,
      n_batch: 512,
      n_threads: threads,
      n_gpu_layers: layers,
      warmup: false,
      jinja: false,
      n_parallel: 1,
    });
    if (wllama.getNumThreads() !== threads)
      throw new Error(`asked for ${threads} threads, got ${wllama.getNumThreads()}`);
    const text = said.join("\n");
    if (layers && !/offloaded [1-9]\d*\/\d+ layers to GPU/.test(text)) {
      const why = /.*(?:webgpu|offload|shader-f16).*/i.exec(text)?.[0] ?? "it names no GPU";
      throw new Error(`llama.cpp takes no layer to the GPU (${why.trim()})`);
    }
    return { ms: now() - begin, version: Wllama.getLibllamaVersion() };
  },
  async prefill(ids) {
    prompt = ids;
    const { timings } = await complete(ids, 1, { cache_prompt: false });
    if (timings.prompt_n !== ids.length)
      throw new Error(`it took the prompt of ${ids.length} tokens as ${timings.prompt_n}`);
    return timings.prompt_ms;
  },
  /** Milliseconds of each token after the prompt; the tokens are its own choices. */
  async decode(_past, ids) {
    const { timings } = await complete(prompt, ids.length + 1, { cache_prompt: true });
    return ids.map(() => timings.predicted_ms / (timings.predicted_n - 1));
  },
  /** [token, its log probability] of the most probable tokens after these ids. */
  async likeliest(ids, count) {
    const { choices } = await complete(ids, 1, {
      cache_prompt: true,
      logprobs: count,
      n_probs: count,
    });
    return choices[0].logprobs.content[0].top_logprobs.map(({ id, logprob }) => [id, logprob]);
  },
});
