// onnxruntime-web 1.19.2, the last release with training, used as in its documentation: a step is
// runTrainStep, runOptimizerStep and lazyResetGrad.
import { batch, repeat } from "./batch.js";
import { now, serve } from "./rpc.js";

let ort;
let session;
let feeds;

serve({
  async open(url, threads) {
    const begin = now();
    ort = await import(new URL("/ort-training/ort.training.wasm.min.mjs", location.href).href);
    ort.env.wasm.wasmPaths = new URL("/ort-training/", location.href).href;
    ort.env.wasm.numThreads = threads;
    ort.env.logLevel = "error";
    const info = await (await fetch(`${url}.json`)).json();
    const file = async (name) =>
      new Uint8Array(await (await fetch(`${url}.ort/${name}`)).arrayBuffer());
    const [checkpointState, trainModel, optimizerModel] = await Promise.all(
      ["checkpoint", "training_model.onnx", "optimizer_model.onnx"].map(file),
    );
    session = await ort.TrainingSession.create(
      { checkpointState, trainModel, optimizerModel },
      { executionProviders: ["wasm"] },
    );
    const { numbers, labels } = batch(info);
    const int64 = (x, dims) => new ort.Tensor("int64", BigInt64Array.from(x, BigInt), dims);
    const { name, shape, vocab } = info.input;
    feeds = {
      [name]: vocab
        ? int64(numbers, shape)
        : new ort.Tensor("float32", Float32Array.from(numbers), shape),
      labels: int64(labels, [labels.length]),
    };
    return { ms: now() - begin, version: ort.env.versions?.web ?? ort.env.versions?.common };
  },
  steps: (count, ms) =>
    repeat(
      async () => {
        const out = await session.runTrainStep(feeds);
        await session.runOptimizerStep();
        await session.lazyResetGrad();
        return out[session.trainingOutputNames[0]].data[0];
      },
      count,
      ms,
    ),
});
