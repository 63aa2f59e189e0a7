// Sessions created from a model's bytes in memory, and their first steps: Edgewise from .edge
// packages, onnxruntime-web from .onnx files.

import { Engine } from "../../../web/src/device/wasm/engine.ts";
import { BlobSource } from "../../../web/src/shared/files/source.ts";
import { EngineDecoder } from "../../../web/src/worker/model/decoder.ts";
import { Weights } from "../../../web/src/worker/model/weights.ts";
import { openPackage } from "../../../web/src/worker/package/package.ts";
import { argmax, now, serve } from "./rpc.js";

const here = (path) => new URL(path, location.href).href;
const median = (x) => x.sort((a, b) => a - b)[x.length >> 1];
let data;

async function loadOrt(threads) {
  const ort = await import(here("/ort/ort.wasm.bundle.min.mjs"));
  ort.env.wasm.wasmPaths = here("/ort/");
  ort.env.wasm.numThreads = threads;
  ort.env.logLevel = "error";
  return ort;
}

const ort = async (bytes, threads) =>
  (await loadOrt(threads)).InferenceSession.create(bytes, {
    executionProviders: ["wasm"],
    graphOptimizationLevel: "all",
  });

/** A step of a language model: token ids to the logits of the last token. */
const models = {
  async edgewise(flavour, threads) {
    const engine = await Engine.open({
      engineUrl: here("/engine/"),
      threadUrl: here("/worker.js"),
      flavour,
      threads,
    });
    const { manifest, files, finish } = await openPackage(
      new BlobSource(new Blob([data]), "package"),
    );
    const weights = new Weights(engine, manifest);
    await finish(weights.extents(manifest));
    const decoder = new EngineDecoder(
      engine,
      manifest.decoder,
      weights,
      files,
      {},
      {},
      "package",
      true,
    );
    let sequence;
    return {
      restart: () => {
        if (sequence) decoder.close(sequence);
        sequence = decoder.open();
      },
      step: async (ids) => {
        const logits = await decoder.forward(sequence, ids);
        return new Float32Array(engine.memory.buffer, logits, decoder.vocab_size);
      },
    };
  },
  async ort(threads, heads, dim) {
    const session = await ort(data, threads);
    const { Tensor } = await loadOrt(threads);
    const int64 = (values, dims) => new Tensor("int64", BigInt64Array.from(values, BigInt), dims);
    const empty = new Tensor("float32", new Float32Array(0), [1, heads, 0, dim]);
    let past;
    let cache;
    const step = async (ids) => {
      const n = ids.length;
      const inputs = {
        input_ids: int64(ids, [1, n]),
        attention_mask: int64(new Array(past + n).fill(1), [1, past + n]),
        position_ids: int64(
          ids.map((_, i) => past + i),
          [1, n],
        ),
      };
      for (const name of session.inputNames)
        if (name.startsWith("past"))
          inputs[name] = cache ? cache[name.replace("past_key_values", "present")] : empty;
      cache = await session.run(inputs);
      past += n;
      return cache.logits.data.subarray(-cache.logits.dims[2]);
    };
    return {
      restart: () => {
        [past, cache] = [0, undefined];
      },
      step,
    };
  },
};

serve({
  nothing: () => undefined,

  async fetch(url) {
    data = new Uint8Array(await (await fetch(url)).arrayBuffer());
  },

  /**
   * Milliseconds of: creating the session, the first prompt, the median of two more prompts, the
   * first token after the first prompt, and the median of all other tokens.
   */
  async languageModel(engine, args, prompt, tokens) {
    const begin = now();
    const { restart, step } = await models[engine](...args);
    const created = now() - begin;
    const prompts = [];
    const steps = [];
    const timed = async (times, ids) => {
      const start = now();
      argmax(await step(ids));
      times.push(now() - start);
    };
    for (let round = 0; round < 3; round++) {
      restart();
      await timed(prompts, prompt);
      for (const id of round < 2 ? tokens : []) await timed(steps, [id]);
    }
    return {
      created,
      prompt: prompts[0],
      laterPrompt: median(prompts.slice(1)),
      token: steps[0],
      laterToken: median(steps.slice(1)),
    };
  },

  /**
   * A model with one input. Milliseconds until the session is created, including the load of
   * scripts, worker and engine, and until its first output.
   */
  async session(engine, args, dims) {
    const begin = now();
    const x = new Float32Array(dims.reduce((a, b) => a * b)).fill(0.5);
    let session;
    let feeds;
    if (engine === "ort") {
      session = await ort(data, ...args);
      feeds = { [session.inputNames[0]]: new (await loadOrt(...args)).Tensor("float32", x, dims) };
    } else {
      const { InferenceSession, Tensor } = await import(here("/edgewise.js"));
      session = await InferenceSession.create(data, { flavour: args[0], threads: args[1] });
      feeds = { [session.inputNames[0]]: new Tensor("float32", x, dims) };
    }
    const created = now() - begin;
    await session.run(feeds);
    const first = now() - begin;
    await session.release();
    return { created, first };
  },
});
