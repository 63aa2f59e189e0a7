// The first visit of a page, as a user of each library would write it: the library, a model, and
// its first result. ?engine=edgewise|transformers|ort&task=TASK&model=ADDRESS&call=JSON
// &options=JSON as in pipelines.js; of onnxruntime-web &sessions=JSON, [{model, feeds, from:
// {output: input}}]: models, addresses of their inputs (files of real.py), and outputs of the one
// before that are inputs. &frames=ADDRESS: frames of this sound in turn, for a model of voice
// activity.
import { feedsOf } from "./feeds.js";
import { argumentsOf, here, shown } from "./pages.js";

const query = new URLSearchParams(location.search);
const engine = query.get("engine");
const THREADS = 2;

async function library() {
  if (engine === "edgewise") {
    const edgewise = await import(here("/edgewise.js"));
    edgewise.env.threads = THREADS;
    return edgewise;
  }
  if (engine === "transformers") {
    const transformers = await import(here("/transformers/transformers.min.js"));
    const { env } = transformers;
    env.allowRemoteModels = false;
    env.allowLocalModels = true;
    env.localModelPath = "/";
    env.backends.onnx.wasm.wasmPaths = here("/transformers-ort/");
    env.backends.onnx.wasm.numThreads = THREADS;
    env.backends.onnx.logLevel = "error";
    return transformers;
  }
  const ort = await import(here("/ort/ort.wasm.bundle.min.mjs"));
  ort.env.wasm.wasmPaths = here("/ort/");
  ort.env.wasm.numThreads = THREADS;
  ort.env.logLevel = "error";
  return ort;
}

const SAMPLES = 512; // of a frame of Silero VAD, after the 64 before it
const BEFORE = 64;

/** The number of frames of a sound that are speech. `run`: {inputs} to {output, stateN}. */
async function spoken(run, Tensor) {
  const bytes = await (await fetch(here(query.get("frames")))).arrayBuffer();
  const sound = Float32Array.from(new Int16Array(bytes, 44), (x) => x / 32768);
  const sr = new Tensor("int64", BigInt64Array.of(16000n), []);
  let state = new Tensor("float32", new Float32Array(256), [2, 1, 128]);
  let frames = 0;
  for (let at = 0; at + SAMPLES <= sound.length; at += SAMPLES) {
    const part = new Float32Array(BEFORE + SAMPLES);
    const begin = Math.max(0, at - BEFORE);
    part.set(sound.subarray(begin, at + SAMPLES), BEFORE - (at - begin));
    const found = await run({ input: new Tensor("float32", part, [1, part.length]), state, sr });
    state = found.stateN;
    if (found.output.data[0] > 0.5) frames++;
  }
  return { frames };
}

/** Opens the model. Returns a function that computes one result. */
async function opened(of) {
  const model = query.get("model");
  if (engine === "ort") return sessions(of);
  if (engine === "transformers" && query.has("frames")) {
    const at = model.lastIndexOf("/");
    const found = await of.AutoModel.from_pretrained(model.slice(1, at), {
      config: { model_type: "custom" },
      device: "wasm",
      dtype: "fp32",
      subfolder: "",
      model_file_name: model.slice(at + 1, -".onnx".length),
    });
    return () => spoken((feeds) => found(feeds), of.Tensor);
  }
  const options = JSON.parse(query.get("options"));
  const call = argumentsOf(JSON.parse(query.get("call")));
  const pipe =
    engine === "edgewise"
      ? await of.pipeline(query.get("task"), here(model), model.endsWith(".edge") ? {} : options)
      : await of.pipeline(query.get("task"), model.slice(1), {
          ...{ device: "wasm", dtype: "fp32" },
          ...options,
        });
  return () => pipe(...call);
}

async function sessions({ InferenceSession, Tensor }) {
  const steps = JSON.parse(query.get("sessions"));
  const made = [];
  for (const { model } of steps)
    made.push(await InferenceSession.create(here(model), { executionProviders: ["wasm"] }));
  if (query.has("frames")) return () => spoken((feeds) => made[0].run(feeds), Tensor);
  return async () => {
    let last = {};
    for (const [i, { feeds, from = {} }] of steps.entries()) {
      const inputs = await feedsOf(here(feeds), Tensor);
      for (const [output, input] of Object.entries(from)) inputs[input] = last[output];
      last = await made[i].run(inputs);
    }
    return { dims: [...last[made.at(-1).outputNames[0]].dims] };
  };
}

async function visit() {
  const of = await library();
  const imported = performance.now();
  const compute = await opened(of);
  const ready = performance.now();
  const result = await compute();
  const first = performance.now();
  window.result = () => shown(result);
  return { imported, ready, first };
}

window.visited = await visit().catch((e) => ({ error: String(e?.message ?? e) }));
