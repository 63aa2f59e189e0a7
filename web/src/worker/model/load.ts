// Loads a language model: finds its files, compiles them or uses stored plans, and streams the
// weights directly into device memory.

import { openDevice, withKernels } from "../../device/open.ts";
import { warm } from "../../device/warm.ts";
import type { LoadRequest, ModelInfo } from "../../protocol/loading.ts";
import { throwIfAborted } from "../../shared/abort.ts";
import {
  InputError,
  ModelError,
  OutOfMemory,
  PackageError,
  TokenizerError,
} from "../../shared/errors.ts";
import { NotFound } from "../../shared/files/http.ts";
import { platform } from "../../shared/platform.ts";
import { sha256 } from "../../shared/sha256.ts";
import type { DecoderInfo } from "../package/manifest.ts";
import { NOTES } from "../package/notes.ts";
import { parseConfig } from "../text/tokenizer.ts";
import { Adapters } from "../training/adapters.ts";
import { checkRoom, checkTable, decoderOf } from "./checks.ts";
import { EngineDecoder } from "./decoder.ts";
import { find } from "./find.ts";
import { Job, type Progress } from "./job.ts";
import type { Model } from "./model.ts";
import { notThere } from "./not-there.ts";
import { Weights } from "./weights.ts";

/** Loads a model. If it fails, all resources are freed. */
export async function loadModel(
  request: LoadRequest,
  signal: AbortSignal,
  progress: Progress,
): Promise<Model> {
  const job = new Job(request, signal, progress);
  const started = performance.now();
  const { urls } = request;
  const options = {
    ...urls,
    device: request.device,
    flavour: request.flavour,
    ...(request.threads === undefined ? {} : { threads: request.threads }),
  };
  let opening = openDevice(options);
  opening.catch(() => undefined);
  try {
    const found = await find(job, opening);
    throwIfAborted(signal);
    const { manifest, where } = found;
    checkTable(await opening, manifest, where);
    const described = decoderOf(manifest, where);
    if (request.cache_dtype !== undefined && request.cache_dtype !== described.cacheDtype)
      throw new InputError(
        `the package was built to keep keys and values as ${described.cacheDtype}, not as ` +
          `'${String(request.cache_dtype)}'`,
        "options.cache_dtype",
        "Build it with `edgewise build --cache-dtype`, or give the model's .onnx file.",
      );
    checkRoom(manifest, described, where);
    opening = withKernels(await opening, options, manifest.kernels, where);
    const device = await opening;
    throwIfAborted(signal);
    const weights = new Weights(device, manifest);
    const filling = found.fill(weights.extents(manifest, where));
    if (manifest.training.size) void warm(device);
    const { files, texts } = await filling;
    throwIfAborted(signal);
    const generation = parseConfig(texts.get("generation_config.json"), "generation_config.json");
    const config = parseConfig(texts.get("config.json"), "config.json");
    const tokenizer = job.readTexts(texts, where);
    const decoder = within(
      described,
      () =>
        new EngineDecoder(
          device,
          described,
          weights,
          files,
          generation,
          config,
          where,
          !manifest.training.size,
        ),
    );
    progress({ status: "ready", name: job.model, task: "text-generation" });
    const adapters = new Adapters(device, weights, decoder, manifest);
    const programs = manifest.training;
    const plans = new Map<string, Uint8Array>();
    if (files.has(NOTES)) plans.set(NOTES, files.get(NOTES)!);
    for (const { plans: of } of programs.values())
      for (const { file } of of.values()) plans.set(file, files.get(file)!);
    const key = sha256(
      JSON.stringify(Array.from(manifest.weights.values(), ({ name, bytes }) => [name, bytes])),
    ).slice(0, 16);
    const info: ModelInfo = {
      ...device.choice,
      device: device.info,
      isolated: platform().isolated,
      origin: found.origin,
      dtype: found.dtype,
      capacity: decoder.max_length,
      cacheDtype: described.cacheDtype,
      vocabSize: decoder.vocab_size,
      hasChatTemplate: tokenizer.hasChatTemplate,
      training: Array.from(programs.values(), (p) => ({
        adapter: p.lora ? "lora" : "full",
        batch: p.batch,
        sequence: p.sequence,
        learning_rate: p.optimizer.lr,
        optimizer: p.optimizer.type,
        ...(p.lora ? { r: p.lora.r, lora_alpha: p.lora.lora_alpha } : {}),
      })),
      memory: {
        engine: device.memoryBytes,
        weights: weights.bytes,
        cachePerSequence: decoder.cacheBytes,
      },
      ms: {
        engine: device.instantiateMs,
        compile: found.compileMs,
        load: performance.now() - started,
      },
    };
    return {
      device,
      decoder,
      tokenizer,
      info,
      weights,
      adapters,
      programs,
      files: plans,
      key,
      where,
      urls,
      onnx: found.onnx,
    };
  } catch (e) {
    opening.then(
      (device) => device.close(),
      () => undefined,
    );
    if (e instanceof ModelError || e instanceof PackageError || e instanceof TokenizerError)
      await job.forget(e);
    throw e instanceof NotFound ? notThere(e) : e;
  } finally {
    job.close();
  }
}

/** Adds the sequence length to out-of-memory errors. */
function within<T>({ capacity }: DecoderInfo, work: () => T): T {
  try {
    return work();
  } catch (e) {
    if (!(e instanceof OutOfMemory)) throw e;
    throw new OutOfMemory(
      `${e.what}; the model was compiled for sequences of up to ${capacity} tokens`,
      e.where,
      `${e.remedy} Or give a smaller capacity.`,
    );
  }
}
