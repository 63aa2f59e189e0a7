// A page as a user would write it: a session of an .onnx file and its first result, with the public
// API that both engines share. ?engine=edgewise|ort&model=ADDRESS&feeds=ADDRESS (files of real.py),
// &threads=N of Edgewise (1 if absent), &proxy=true|false (whether a worker computes; the engine's
// default if absent), and for a decoder &prompt=ADDRESS (inputs of a first run, if they differ)
// &passed=JSON (outputs of that run that are inputs of later ones).
import { feedsOf } from "./feeds.js";
import { base64 } from "./rpc.js";

const query = new URLSearchParams(location.search);
const here = (path) => new URL(path, location.href).href;

async function load() {
  if (query.get("engine") === "edgewise") {
    const edgewise = await import(here("/edgewise.js"));
    edgewise.env.threads = Number(query.get("threads") ?? 1);
    if (query.has("proxy")) edgewise.env.proxy = query.get("proxy") === "true";
    return edgewise;
  }
  const ort = await import(here("/ort/ort.wasm.bundle.min.mjs"));
  ort.env.wasm.wasmPaths = here("/ort/");
  ort.env.wasm.numThreads = 1;
  if (query.has("proxy")) ort.env.wasm.proxy = query.get("proxy") === "true";
  ort.env.logLevel = "error";
  return ort;
}

/**
 * Milliseconds from the start of navigation until the session is created, and until its first
 * result.
 */
async function visit() {
  const { InferenceSession, Tensor } = await load();
  // To its worker, onnxruntime-web transfers the feeds: the page no longer has them after a run.
  const taken = query.get("engine") === "ort" && query.get("proxy") === "true";
  const own = ([name, { type, data, dims }]) => [name, new Tensor(type, data.slice(), dims)];
  const fed = (feeds) => (taken ? Object.fromEntries(Object.entries(feeds).map(own)) : feeds);
  const feeding = feedsOf(here(query.get("feeds")), Tensor);
  const session = await InferenceSession.create(
    here(query.get("model")),
    query.get("engine") === "ort" ? { executionProviders: ["wasm"] } : {},
  );
  const created = performance.now();
  const feeds = await feeding;
  let outputs = await session.run(fed(feeds));
  const first = performance.now();
  const compared = outputs;
  if (query.has("passed")) {
    const prompt = await feedsOf(here(query.get("prompt")), Tensor);
    const made = await session.run(fed({ ...feeds, ...prompt }));
    for (const [output, input] of Object.entries(JSON.parse(query.get("passed"))))
      feeds[input] = made[output];
  }

  /** Milliseconds of each run: at least two, and as many as take `ms` together. */
  window.runs = async (ms) => {
    const times = [];
    for (const begin = performance.now(); times.length < 2 || performance.now() - begin < ms; ) {
      const from = performance.now();
      outputs = await session.run(fed(feeds));
      times.push(performance.now() - from);
    }
    return times;
  };
  window.output = () => {
    const { data, dims } = compared[session.outputNames[0]];
    return {
      dims: [...dims],
      data: base64(data instanceof Float32Array ? data : Float32Array.from(data, Number)),
    };
  };
  return { created, first };
}

window.visited = await visit().catch((e) => ({ error: String(e?.message ?? e) }));
