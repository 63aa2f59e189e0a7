// Loads a language model: finds its files, compiles them or uses stored plans, and streams the
// weights directly into device memory.

import type { Device } from "../../device/device.ts";
import { fasterOf, forPlans, openDevice, withKernels, withRoom } from "../../device/open.ts";
import { MEDIA } from "../../device/options.ts";
import { KINDS } from "../../logic/tasks/names.ts";
import type { LoadRequest, ModelInfo } from "../../protocol/loading.ts";
import { throwIfAborted } from "../../shared/abort.ts";
import {
  InputError,
  ModelError,
  OutOfMemory,
  PackageError,
  TokenizerError,
} from "../../shared/errors.ts";
import { NotFound } from "../../shared/files/connection.ts";
import { platform } from "../../shared/platform.ts";
import { PREFIX } from "../package/container.ts";
import type { DecoderInfo, Manifest } from "../package/manifest.ts";
import { parseConfig, type Tokenizer } from "../text/tokenizer.ts";
import { checkRoom, checkTable, decoderOf, neededBytes } from "./checks.ts";
import { EngineDecoder, planOf } from "./decoder.ts";
import { checkDTypes, dtypeOf } from "./dtypes.ts";
import { Job, type Progress, type Texts } from "./job.ts";
import { keyOf, trainingFiles, waysOf } from "./manifest-parts.ts";
import type { Model } from "./model.ts";
import { notThere } from "./not-there.ts";
import {
  absolute,
  type FoundModel,
  fromPackage,
  GENAI_CONFIG,
  LATER,
  lasting,
} from "./packages.ts";
import { Weights } from "./weights.ts";
import { worksOf } from "./works.ts";

/** A model whose weights are in device memory. */
export interface Filled {
  job: Job;
  device: Device;
  found: FoundModel;
  weights: Weights;
  /** Plans and other parts of the package. */
  files: Map<string, Uint8Array>;
  texts: Texts;
}

/**
 * Loads the weights of a model. If it fails, all resources are freed.
 * @param check checks the manifest before anything is allocated
 * @param make makes the result from what was loaded
 */
export async function fillModel<T>(
  request: LoadRequest,
  signal: AbortSignal,
  progress: Progress,
  check: (manifest: Manifest, where: string, device: Device, least?: number) => void,
  make: (filled: Filled) => T | Promise<T>,
): Promise<T> {
  const job = new Job(request, signal, progress);
  const { urls, device: name, flavour, threads } = request;
  const options = { ...urls, device: name, flavour, ...(threads === undefined ? {} : { threads }) };
  let opening = openDevice(options);
  opening.catch(() => undefined);
  try {
    const found = await find(job, opening);
    throwIfAborted(signal);
    const { manifest, where } = found;
    checkTable(await opening, manifest, where);
    opening = forPlans(await opening, manifest.target, where);
    opening = withKernels(await opening, needs(manifest), where);
    const now = manifest.task === LATER ? { weights: new Map() } : manifest;
    // plans of other pipelines read their weights as a whole
    const sparse = manifest.decoder && mixes(now) && found.stored && (await import("./experts.ts"));
    const least = sparse ? sparse.leastBytes(manifest) : undefined;
    const { expert_bytes: budget = Infinity } = request;
    const asked = least === undefined ? undefined : least + budget;
    opening = withRoom(await opening, neededBytes(now, asked), where, neededBytes(now, least));
    opening = fasterOf(await opening, async () => worksOf(manifest, await found.ahead()));
    check(manifest, where, await opening, least);
    const device = await opening;
    throwIfAborted(signal);
    const weights =
      sparse && least !== undefined && device.bindPages
        ? await sparse.someWeights(device, manifest, least, request.expert_bytes, found)
        : new Weights(device, now);
    const fill = weights.experts ? found.fillSome! : found.fill;
    const filling = fill(weights.extents(now, where), (plans) => {
      // a GPU compiles programs meanwhile; largest first, as they will be loaded
      for (const plan of [...(manifest.decoder?.plans ?? [])].reverse())
        device.loadSoon?.(...planOf(plan, plans, where));
    });
    // The page may train: it then needs no network for that, and its first step is fast.
    if (manifest.training.size)
      void import("../training/index.ts").then(
        ({ warm }) => warm(device),
        () => undefined,
      );
    const { files, texts } = await filling;
    await weights.experts?.open(found.stored!);
    const recording = job.downloads?.loaded(
      found.dtype || dtypeOf(String(request.model)),
      request.cache && found.origin !== "package",
    );
    throwIfAborted(signal);
    const made = await make({ job, device, found, weights, files, texts });
    await recording;
    progress({ status: "ready", name: job.model, task: request.task });
    return made;
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

/** Loads a language model. If it fails, all resources are freed. */
export async function loadModel(
  request: LoadRequest,
  signal: AbortSignal,
  progress: Progress,
): Promise<Model> {
  const started = performance.now();
  let described: DecoderInfo;
  const check = (
    manifest: Manifest,
    where: string,
    { info, maxBytes }: Device,
    least?: number,
  ): void => {
    described = decoderOf(manifest, where);
    checkCacheType(request, described);
    if (info.name === "wasm") checkRoom(manifest, described, where, maxBytes!, least);
  };
  const model = await fillModel(request, signal, progress, check, async (filled) => {
    const { job, device, found, weights, files, texts } = filled;
    const { manifest, where } = found;
    const decoder = await makeDecoder(
      device,
      found,
      weights,
      described,
      files,
      texts,
      request.cache_bytes,
    );
    await addCapacity(described, () => device.ready());
    const tokenizer = job.readTexts(texts, where)!;
    const model: Model = {
      device,
      decoder,
      tokenizer,
      info: infoOf(device, found, weights, decoder, tokenizer),
      weights,
      adapters: undefined,
      programs: manifest.training,
      files: trainingFiles(manifest, files),
      key: keyOf(manifest),
      described: manifest.weights,
      where,
      urls: request.urls,
      onnx: found.onnx,
      config: texts.get("config.json"),
    };
    decoder.refill = (...other) => refill(model, request, ...other);
    decoder.refilled = () => model.adapters?.revive();
    await addPrefix(model, files, where);
    return model;
  });
  model.info.ms.load = performance.now() - started;
  return model;
}

/** Puts the states of a package's prefix among those that are kept. */
async function addPrefix(
  model: Model,
  files: Map<string, Uint8Array>,
  where: string,
): Promise<void> {
  const prefix = files.get(PREFIX);
  files.delete(PREFIX);
  if (!prefix || !model.decoder.kept) return;
  const { loadPrefix } = await import("../prefix/index.ts");
  await loadPrefix(model, new Blob([prefix as Uint8Array<ArrayBuffer>]), `${where}, its prefix`);
}

/** Loads the weights of a model again, whose GPU was lost, to the device in its place. */
async function refill(
  model: Model,
  request: LoadRequest,
  device: Device,
  signal?: AbortSignal,
): Promise<Weights> {
  const weights = await filledAgain(request, model.key, model.device, device, signal);
  Object.assign(model, { device, weights });
  model.info.device = device.info;
  model.adapters?.moved(device, weights);
  return weights;
}

/**
 * Loads weights again, from where they came, to the device in the place of a lost GPU.
 * @param key of the model, as `keyOf`
 * @throws PackageError if the model is another one by now; as `fillModel`
 */
export async function filledAgain(
  request: LoadRequest,
  key: string,
  lost: Device,
  device: Device,
  signal = new AbortController().signal,
): Promise<Weights> {
  const job = new Job(request, signal, () => undefined);
  try {
    const { manifest, where, fill } = await find(job, Promise.resolve(lost));
    if (keyOf(manifest) !== key)
      throw new PackageError("the model is another one by now", where, "Load it again.");
    const weights = new Weights(device, { weights: new Map() });
    try {
      weights.add(manifest);
      await fill(weights.extents(manifest, where));
    } catch (e) {
      weights.free(); // it is tried again
      throw e;
    }
    return weights;
  } finally {
    job.close();
  }
}

/** Whether a model has weights of experts that need not be in memory together. */
function mixes({ weights }: Pick<Manifest, "weights">): boolean {
  return [...weights.values()].some(({ experts = 1 }) => experts > 1);
}

/** Parts of a processor that take pictures or sounds. */
const MEDIA_PARTS = [
  "image",
  "vision",
  "audio",
  "sounds",
  "hearing",
  "voice_activity",
  "diffusion",
];
/** Graphs that hear the voice that a text is to be said with (logic/speech). */
const HEARING = ["speech_encoder", "mimi_encoder"];

/**
 * What the device must have: kernels, and the functions that resample, for models that take
 * pictures or sounds: a microphone has another rate than they.
 */
function needs({ kernels, processor, task, programs }: Manifest): readonly string[] {
  const media =
    KINDS.get(task) === "sound" ||
    task === "codec" ||
    HEARING.some((graph) => programs?.has(graph)) ||
    MEDIA_PARTS.some((part) => part in processor);
  return media ? [...kernels, MEDIA] : kernels;
}

/** @throws InputError if another cache type is requested than the package has */
function checkCacheType({ cache_dtype: asked }: LoadRequest, { cacheDtype }: DecoderInfo): void {
  if (asked !== undefined && asked !== cacheDtype)
    throw new InputError(
      `the package was built to keep keys and values as ${cacheDtype}, not as '${String(asked)}'`,
      "options.cache_dtype",
      "Build it with `edgewise build --cache-dtype`, or give the model's .onnx file.",
    );
}

function makeDecoder(
  device: Device,
  { manifest, where }: FoundModel,
  weights: Weights,
  described: DecoderInfo,
  files: Map<string, Uint8Array>,
  texts: Texts,
  cache_bytes: number | undefined,
): Promise<EngineDecoder> {
  const generation = parseConfig(texts.get("generation_config.json"), "generation_config.json");
  const own = texts.has("config.json") ? "config.json" : GENAI_CONFIG;
  const config = parseConfig(texts.get(own), own);
  const release = !manifest.training.size;
  return addCapacity(
    described,
    () =>
      new EngineDecoder(
        ...([device, described, weights, files, generation, config, where] as const),
        release,
        cache_bytes,
      ),
  );
}

function infoOf(
  device: Device,
  { manifest, origin, dtype, compileMs }: FoundModel,
  weights: Weights,
  decoder: EngineDecoder,
  tokenizer: Tokenizer,
): ModelInfo {
  return {
    ...device.choice,
    device: device.info,
    isolated: platform().isolated,
    origin,
    dtype,
    capacity: decoder.max_length,
    cacheDtype: decoder.info.cacheDtype,
    vocabSize: decoder.vocab_size,
    hasChatTemplate: tokenizer.hasChatTemplate,
    training: waysOf(manifest),
    memory: {
      engine: device.memoryBytes,
      weights: weights.bytes,
      cachePerSequence: decoder.bytes_for(0),
      cachePerToken: decoder.bytesPerToken,
      kept: 0,
    },
    ms: { engine: device.instantiateMs, compile: compileMs, load: 0 },
  };
}

/** Adds the sequence length to out-of-memory errors. */
async function addCapacity<T>({ capacity }: DecoderInfo, work: () => T | Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (e) {
    if (!(e instanceof OutOfMemory)) throw e;
    throw new OutOfMemory(
      `${e.what}; the model was compiled for sequences of up to ${capacity} tokens`,
      e.where,
      `${e.remedy} Or give a smaller capacity.`,
    );
  }
}

/** Finds a model. */
export async function find(job: Job, device: Promise<Device>): Promise<FoundModel> {
  const { model, base, dtype } = job.request;
  if (typeof model === "string") {
    if (!/^[^?#]*\.edge(?![^?#])/.test(model))
      return (await import("./onnx/index.ts")).fromPlace(job, model, device);
    checkDTypes(dtype);
    const url = absolute(model, base);
    await job.begin(url, () => [url]);
    return fromPackage(await lasting(job, job.http(url)), job);
  }
  if ("port" in model) return fromPackage(await lasting(job, job.handed(model)), job);
  const [{ name, blob } = { name: "", blob: new Blob() }, ...others] = model;
  if (!others.length && name.endsWith(".edge")) return fromPackage(job.blob(blob, name), job);
  return (await import("./onnx/index.ts")).fromChosen(job, model, device);
}
