// A page that calls a small model often, with the public API that both engines share.
// ?engine=edgewise|ort&model=ADDRESS (without .onnx; feeds beside it, files of real.py)
// &back=JSON (outputs that are inputs of the next call) &proxy=true|false (whether a worker
// computes; the engine's default if absent) &stay (those outputs stay in the worker) &threads=N
// &sessions=N (as many are opened).
import { feedsOf } from "./feeds.js";

const query = new URLSearchParams(location.search);
const here = (path) => new URL(path, location.href).href;
const back = Object.entries(JSON.parse(query.get("back")));
const threads = Number(query.get("threads") ?? 1);

/** Milliseconds in the function of this thread's engine that runs plans: now, and by groups. */
let inside = 0;
let groups = [];

/** Measures them. */
function watch() {
  const instantiate = WebAssembly.instantiate;
  WebAssembly.instantiate = async (...args) => {
    const made = await instantiate.apply(WebAssembly, args);
    const instance = made.instance ?? made;
    const run = instance.exports.ew_plan_run;
    if (!run) return made;
    const exports = {
      ...instance.exports,
      ew_plan_run: (handle) => {
        const from = performance.now();
        const code = run(handle);
        inside += performance.now() - from;
        return code;
      },
    };
    return made.instance ? { ...made, instance: { exports } } : { exports };
  };
}

async function load() {
  if (query.get("engine") === "edgewise") {
    if (query.get("proxy") === "false") watch();
    const edgewise = await import(here("/edgewise.js"));
    edgewise.env.threads = threads;
    if (query.has("proxy")) edgewise.env.proxy = query.get("proxy") === "true";
    return edgewise;
  }
  const ort = await import(here("/ort/ort.wasm.bundle.min.mjs"));
  ort.env.wasm.wasmPaths = here("/ort/");
  ort.env.wasm.numThreads = threads;
  if (query.has("proxy")) ort.env.wasm.proxy = query.get("proxy") === "true";
  ort.env.logLevel = "error";
  return ort;
}

/** A function that calls a session, with the states of its last call. */
async function caller(session, feeds, fed, Tensor) {
  const call = async () => {
    const outputs = await session.run(fed(feeds));
    for (const [output, input] of back) {
      const last = feeds[input];
      feeds[input] = outputs[output];
      if (last !== feeds[input] && last.location === "cpu-pinned") last.dispose();
    }
  };
  await call();
  // what a merged decoder computes in its first call, it is given in the later ones
  if (feeds.use_cache_branch) feeds.use_cache_branch = new Tensor("bool", Uint8Array.of(1), [1]);
  await call();
  return call;
}

async function visit() {
  const { InferenceSession, Tensor } = await load();
  // To its worker, onnxruntime-web transfers the feeds: the page no longer has them after a run.
  const taken = query.get("engine") === "ort" && query.get("proxy") === "true";
  const own = ([name, { type, data, dims }]) => [name, new Tensor(type, data.slice(), dims)];
  const fed = (feeds) => (taken ? Object.fromEntries(Object.entries(feeds).map(own)) : feeds);
  const options = query.get("engine") === "ort" ? { executionProviders: ["wasm"] } : {};
  if (query.has("stay"))
    options.preferredOutputLocation = Object.fromEntries(back.map(([o]) => [o, "cpu-pinned"]));
  const opened = async () => {
    const session = await InferenceSession.create(here(`${query.get("model")}.onnx`), options);
    return caller(session, await feedsOf(here(query.get("model")), Tensor), fed, Tensor);
  };
  const calls = [];
  for (let i = 0; i < Number(query.get("sessions") ?? 1); i++) calls.push(await opened());
  const [call] = calls;
  const first = performance.now();

  /** Mean milliseconds of a call, in groups of ten: clocks of pages are coarse. */
  window.runs = async (ms) => {
    const times = [];
    groups = [];
    for (const begin = performance.now(); times.length < 2 || performance.now() - begin < ms; ) {
      const from = performance.now();
      inside = 0;
      for (let i = 0; i < 10; i++) await call();
      times.push((performance.now() - from) / 10);
      groups.push(inside / 10);
    }
    return times;
  };

  /** The kernels' own milliseconds of the calls that `runs` measured last. */
  window.kernels = () => groups;
  /**
   * Calls of each of the first `count` sessions a second, all at once, and milliseconds between
   * frames of an animation, which runs while they do.
   */
  window.together = async (count, ms) => {
    const frames = [];
    let going = true;
    const frame = (at) => {
      frames.push(at);
      if (going) requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
    const rate = async (call) => {
      let made = 0;
      const begin = performance.now();
      for (; performance.now() - begin < ms; made++) await call();
      return (1000 * made) / (performance.now() - begin);
    };
    const rates = await Promise.all(calls.slice(0, count).map(rate));
    going = false;
    return { rates, frames: frames.slice(1).map((at, i) => at - frames[i]) };
  };
  return { first };
}

window.visited = await visit().catch((e) => ({ error: String(e?.stack ?? e) }));
