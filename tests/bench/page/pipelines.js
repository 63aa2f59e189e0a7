// A page as a user would write it: a pipeline and its first result, with the API that Edgewise and
// transformers.js share. ?engine=edgewise|transformers&task=TASK&model=ADDRESS&call=JSON (the
// arguments of a call; {"$url": ADDRESS} is a file's address)&options=JSON&threads=N.
import { argumentsOf, here, shown } from "./pages.js";

const query = new URLSearchParams(location.search);
const threads = Number(query.get("threads"));

async function openPipeline() {
  const [task, options] = [query.get("task"), JSON.parse(query.get("options"))];
  if (query.get("engine") === "edgewise") {
    const { env, pipeline } = await import(here("/edgewise.js"));
    env.threads = threads;
    return pipeline(task, here(query.get("model")), options);
  }
  const { env, pipeline } = await import(here("/transformers/transformers.min.js"));
  env.allowRemoteModels = false;
  env.allowLocalModels = true;
  env.localModelPath = "/"; // with an address it would look for some files at the hub only
  env.backends.onnx.wasm.wasmPaths = here("/transformers-ort/");
  env.backends.onnx.wasm.numThreads = threads;
  env.backends.onnx.logLevel = "error";
  // The same files: transformers.js would take 8 bits on wasm unless told otherwise.
  return pipeline(task, query.get("model").slice(1), { device: "wasm", dtype: "fp32", ...options });
}

async function visit() {
  const pipe = await openPipeline();
  const call = argumentsOf(JSON.parse(query.get("call")));
  const result = await pipe(...call);
  const first = performance.now();
  window.result = () => shown(result);

  /** Milliseconds of each call: at least two, and as many as take `ms` together. */
  window.runs = async (ms) => {
    const times = [];
    for (const begin = performance.now(); times.length < 2 || performance.now() - begin < ms; ) {
      const from = performance.now();
      await pipe(...call);
      times.push(performance.now() - from);
    }
    return times;
  };
  return { first };
}

window.visited = await visit().catch((e) => ({ error: String(e?.message ?? e) }));
