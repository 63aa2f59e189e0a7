// pipeline(): loads a language model in a worker.

import type { TokenScore } from "../logic/openai/answers.ts";
import type { GenerateRequest, Message } from "../protocol/generation.ts";
import type { LoadRequest, ModelFiles, ModelInfo } from "../protocol/loading.ts";
import type { TaskInfo } from "../protocol/tasks.ts";
import { InputError } from "../shared/errors.ts";
import { hand } from "../shared/files/source.ts";
import { blobOf, checkBytes, checkFunction, optionsOf } from "../shared/inputs.ts";
import {
  chooseBuild,
  type DeviceInfo,
  deviceInfo,
  type Flavour,
  platform,
} from "../shared/platform.ts";
import { levelOf, USUAL } from "../shared/priority.ts";
import { Queue } from "../shared/queue.ts";
import { VERSION } from "../shared/version.ts";
import { meant } from "../shared/words.ts";
import { type Client, startClient } from "./client.ts";
import { deviceOf } from "./device.ts";
import { env, urls } from "./env.ts";
import { placeOf } from "./env-aliases.ts";
import { type Codec, type CodecOptions, openCodec } from "./pipelines/codec.ts";
import { diarizationPipeline } from "./pipelines/graph-sounds.ts";
import { questionPipeline } from "./pipelines/questions.ts";
import { languageSpeaker } from "./pipelines/speaking-models.ts";
import { GENERATES, LEARNS, TASK_NAMES, taskOf, taskPipeline } from "./pipelines/tasks.ts";
import type { TaskPipelines } from "./pipelines/types.ts";
import { watched } from "./profile.ts";
import { baseUrl } from "./realm.ts";
import { interruptible } from "./stopping.ts";
import {
  type GenerateOptions,
  type MessageDelta,
  type ModelSource,
  type PipelineOptions,
  type Stats,
  type TextGenerationPipeline,
  TextStreamer,
} from "./text-generation.ts";
import { runTools } from "./tool-loop.ts";
import { adapterMethods } from "./training/adapter-methods.ts";
import { handles } from "./training/handles.ts";

/** What this page can use, with the reasons for what it cannot. */
export interface Info {
  /** Version of Edgewise. */
  version: string;
  /**
   * Build of the engine: `relaxed-threads`; in browsers without relaxed SIMD `simd128-threads`, or
   * `simd128` without shared memory.
   */
  flavour: Flavour;
  /** Number of compute threads. */
  threads: number;
  /** The device that models run on, and why no faster one is used. */
  device: DeviceInfo;
  /** Whether the page is cross-origin isolated, which threads require. */
  isolated: boolean;
  /** Why only one thread is used; empty if there are more. */
  whyNotThreads: string;
}

let last: ModelInfo | TaskInfo | undefined;

/**
 * Capabilities of the page. Before the first pipeline: what was detected, restricted by `env`;
 * afterwards: what the most recent pipeline uses.
 */
export const info: Info = {
  get version() {
    return VERSION;
  },
  get flavour() {
    return now().flavour;
  },
  get threads() {
    return now().threads;
  },
  get device() {
    return last?.device ?? deviceInfo(now(), env.device);
  },
  get isolated() {
    return platform().isolated;
  },
  get whyNotThreads() {
    return now().whyNotThreads;
  },
};

function now(): { flavour: Flavour; threads: number; whyNotThreads: string } {
  return last ?? chooseBuild(platform(), env.flavour, env.threads);
}

/** The pipeline of a task. */
export type PipelineOf<Task extends PipelineTask> = Task extends keyof TaskPipelines
  ? TaskPipelines[Task]
  : TextGenerationPipeline;

/** The tasks of {@link pipeline}: their names, and the aliases of transformers.js. */
export type PipelineTask = "text-generation" | keyof TaskPipelines;

/**
 * Loads a model for a task.
 *
 * Mirrors `pipeline(task, model, options)` of transformers.js. An .edge package needs no compiler.
 * An .onnx model is compiled in the page (by Python, in Pyodide) the first time and read from the
 * browser's storage afterwards.
 *
 * @param task `"text-generation"`, or a key of {@link TaskPipelines}
 * @param model a hub id, an address, files, or the bytes of a package; see {@link ModelSource}.
 *   Packages of other tasks are built with `edgewise build --task`
 * @param options see {@link PipelineOptions}
 * @returns a callable pipeline; see {@link TextGenerationPipeline} and {@link TaskPipelines}
 * @throws InputError if an option is invalid
 * @throws ModelError, PackageError, TokenizerError if a file is damaged, missing or truncated
 * @throws UnsupportedOp if the model uses an operator that Edgewise does not implement
 * @throws OutOfMemory, Aborted
 */
// one signature, so that errors of types are about the argument that is wrong
export async function pipeline<Task extends PipelineTask>(
  task: Task,
  model: ModelSource,
  options?: PipelineOptions,
): Promise<PipelineOf<Task>>;
export async function pipeline(
  task: string,
  model: ModelSource,
  options: PipelineOptions = {},
): Promise<unknown> {
  const other = taskOf(task);
  if (task !== "text-generation" && !other)
    throw new InputError(
      `the task is '${String(task)}'`,
      "pipeline",
      `This version of Edgewise has text-generation, ${TASK_NAMES.join(", ")}.`,
    );
  options ??= {}; // null stands for no options
  const speaks = other === "text-to-speech" && options.codec !== undefined;
  const lacks = speaks ? ["max_length", "personalize"] : notOf(other ?? task);
  checkOptions(options, lacks, "pipeline");
  if (speaks) return speakingModel(model, options);
  if (other === "speaker-diarization") return listeningModel(model, options);
  const request = await loadRequest(other ?? task, model, options);
  if (other === "audio-to-audio") request.sampling_rate = options.sampling_rate;
  if (options.vocoder !== undefined) request.vocoder = await placed(options.vocoder, options);
  if (other) {
    const made = await taskPipeline(request, options);
    last = made.info;
    return other === "visual-question-answering" ? questionPipeline(made as never) : made;
  }
  const client = await startClient(request.priority);
  try {
    const transfer = transferOf(request);
    const loaded = await client.call("load", request, {
      signal: options.signal,
      onProgress: options.progress_callback,
      transfer,
    });
    if (options.assistant_model !== undefined)
      await loadAssistant(client, loaded.model, options.assistant_model, options);
    return makePipeline(client, loaded.model, loaded.info);
  } catch (e) {
    client.end(); // each pipeline has its own worker, so this frees everything
    throw e;
  }
}

/** Loads a smaller model to the worker of another one, whose tokens it guesses. */
async function loadAssistant(
  client: Client,
  assists: number,
  model: ModelSource,
  {
    device,
    flavour,
    threads,
    capacity,
    cache,
    cache_files,
    signal,
    progress_callback,
  }: PipelineOptions,
): Promise<void> {
  const shared = { device, flavour, threads, capacity, cache, cache_files, signal };
  const request = await loadRequest("text-generation", model, shared as PipelineOptions);
  await client.call(
    "load",
    { ...request, assists },
    {
      signal,
      onProgress: progress_callback,
      transfer: transferOf(request),
    },
  );
}

/** What a request takes with it. */
const transferOf = ({ model }: LoadRequest): Transferable[] =>
  typeof model === "object" && "port" in model ? [model.port] : [];

/**
 * Loads a codec: EnCodec, DAC, SNAC, Mimi and others like them.
 * @param model a hub id, the address of a folder or an .onnx file, or files
 * @param options see {@link PipelineOptions} and {@link CodecOptions}
 * @throws InputError, ModelError, Aborted
 */
export async function codec(
  model: ModelSource,
  options: PipelineOptions & CodecOptions = {},
): Promise<Codec> {
  const { sampling_rate, ...rest } = options;
  const lacks = [...notOf("codec"), ...FILES];
  checkOptions(rest, lacks, "codec");
  if (sampling_rate !== undefined && !(Number.isInteger(sampling_rate) && sampling_rate > 0))
    throw new InputError(`it is ${sampling_rate}`, "options.sampling_rate", "Give its Hz.");
  const request = { ...(await loadRequest("codec", model, rest)), sampling_rate };
  return openCodec(request, { ...rest, onProgress: rest.progress_callback });
}

/** text-to-speech by a language model and a codec. */
async function speakingModel(model: ModelSource, options: PipelineOptions): Promise<unknown> {
  const { codec: given, audio_tokens, vocoder: _, ...rest } = options;
  const own = typeof given === "object" && "decode" in given ? given : undefined;
  const writer = await pipeline("text-generation", model, rest);
  let made: Codec | undefined;
  try {
    const { device, signal, flavour, threads, priority } = rest;
    const shared = { device, signal, flavour, threads, priority } as PipelineOptions;
    made = own ?? (await codec(given as ModelSource, shared));
    return await languageSpeaker(writer, made, audio_tokens);
  } catch (e) {
    await writer.dispose();
    if (!own) await made?.dispose();
    throw e;
  }
}

const voices = (model: ModelSource, options: PipelineOptions) =>
  pipeline("speaker-verification", model, options);

/** speaker-diarization by a segmentation model and a model of voices. */
async function listeningModel(model: ModelSource, options: PipelineOptions): Promise<unknown> {
  const { embedding: given, ...rest } = options;
  const own = typeof given === "function" ? given : undefined;
  if (own && own.task !== "speaker-verification")
    throw new InputError(
      `its task is '${own.task}'`,
      "options.embedding",
      "Give a pipeline of speaker-verification.",
    );
  const { device, signal, flavour, threads, priority } = rest;
  const shared = { device, signal, flavour, threads, priority } as PipelineOptions;
  const made = own || !given ? undefined : await voices(given as ModelSource, shared);
  try {
    const request = await loadRequest("speaker-diarization", model, rest);
    const loading = { signal, onProgress: rest.progress_callback };
    const pipe = await diarizationPipeline(request, loading, own ?? made);
    last = pipe.info;
    return pipe;
  } catch (e) {
    await made?.dispose();
    throw e;
  }
}

/** @throws InputError if an option does not exist, or is one that is not taken here */
function checkOptions(options: PipelineOptions, lacks: readonly string[], where: string): void {
  const known = OPTIONS.filter((name) => !lacks.includes(name));
  for (const name of Object.keys(options))
    if (!known.includes(name))
      throw new InputError(
        `there is no option '${name}'`,
        where,
        meant(name.slice(0, 100), known, `Options are: ${known.join(", ")}.`),
      );
  checkFunction("progress_callback", options.progress_callback);
  checkBytes("expert_bytes", options.expert_bytes);
  levelOf(options.priority, USUAL);
}

/**
 * Settings and tokenizer files of a model in a folder or on a hub, and the address of its .onnx
 * file. They are kept as those of pipelines are.
 * @param model id, or address of the folder
 * @param options see {@link PipelineOptions}
 * @param reader what is made of them: options that it does not have are refused
 * @throws InputError, ModelError, Aborted
 */
export async function modelFiles(
  model: string | URL,
  options?: PipelineOptions | null,
  reader: keyof typeof READERS = "tokenizer",
): Promise<ModelFiles> {
  options ??= {};
  checkOptions(options, READERS[reader], "from_pretrained");
  const request = await loadRequest("text-generation", model, options);
  const client = await startClient();
  try {
    const { signal, progress_callback } = options;
    const onProgress = reader === "pipeline" ? undefined : progress_callback; // it reports them
    return await client.call("find", request, { signal, onProgress });
  } finally {
    client.end();
  }
}

/** Options of one task alone. */
const OWN: Readonly<Record<string, readonly string[]>> = {
  "text-to-speech": ["codec", "audio_tokens", "vocoder"],
  "speaker-diarization": ["embedding"],
  "audio-to-audio": ["sampling_rate"],
  "text-generation": ["assistant_model"],
};
const LANGUAGE = ["capacity", "cache_dtype", "cache_bytes", "expert_bytes", "training"];
const COMPILING = [...LANGUAGE, "max_length", "personalize", ...Object.values(OWN).flat()];
/** Options that models have no use for that are opened from their files alone. */
const FILES = ["max_length", "personalize", "integrity", "fetch_options"];
/** Options that readers of a model's files do not have. */
const READERS = {
  tokenizer: COMPILING,
  session: [...COMPILING, "integrity", "fetch_options"],
  pipeline: notOf("text-generation"),
};

/** Options that a task does not have. */
function notOf(task: string): readonly string[] {
  const others = Object.keys(OWN).filter((of) => of !== task);
  const not = others.flatMap((of) => OWN[of]!);
  if (task === "text-generation") return ["personalize", ...not];
  if (LEARNS.includes(task)) return ["personalize", ...not];
  if (GENERATES.includes(task)) return ["training", "personalize", ...not];
  const opened = task in OWN && task !== "text-to-speech";
  return [...LANGUAGE, ...(opened ? FILES : []), ...not];
}

const OPTIONS: readonly string[] = [
  "dtype",
  "progress_callback",
  "signal",
  "flavour",
  "threads",
  "priority",
  "revision",
  "subfolder",
  "model_file_name",
  "capacity",
  "cache_dtype",
  "cache_bytes",
  "expert_bytes",
  "training",
  "max_length",
  "personalize",
  "cache",
  "cache_files",
  "integrity",
  "fetch_options",
  "device",
  "executionProviders",
  "codec",
  "audio_tokens",
  "vocoder",
  "embedding",
  "sampling_rate",
  "assistant_model",
] satisfies (keyof PipelineOptions)[];

/** The request to load a model, with defaults filled in. */
async function loadRequest(
  task: string,
  model: ModelSource,
  options: PipelineOptions,
): Promise<LoadRequest> {
  const { fetch_options: fetchOptions } = options;
  return {
    task,
    max_length: options.max_length,
    personalize: options.personalize ?? false,
    model: await placed(model, options),
    base: baseUrl()!,
    urls: await urls(),
    remoteHost: env.remoteHost,
    remotePathTemplate: env.remotePathTemplate,
    revision: options.revision ?? "main",
    dtype: options.dtype ?? "auto",
    subfolder: options.subfolder ?? "onnx",
    model_file_name: options.model_file_name ?? "model",
    device: deviceOf(options),
    flavour: options.flavour ?? env.flavour,
    threads: options.threads ?? env.threads,
    priority: options.priority,
    capacity:
      options.capacity ?? (notOf(task).includes("capacity") ? undefined : options.max_length),
    cache_dtype: options.cache_dtype,
    cache_bytes: options.cache_bytes,
    expert_bytes: options.expert_bytes,
    programs: programsOf(options.training),
    cache: options.cache ?? env.cachePlans,
    cache_files: options.cache_files ?? env.cacheFiles,
    integrity: options.integrity,
    // as plain objects, since Headers cannot be cloned
    fetch_options:
      fetchOptions &&
      ({
        ...fetchOptions,
        headers: fetchOptions.headers
          ? Object.fromEntries(new Headers(fetchOptions.headers))
          : undefined,
      } as RequestInit),
  };
}

async function placed(
  model: ModelSource,
  { signal }: PipelineOptions,
): Promise<LoadRequest["model"]> {
  return sources(typeof model === "string" && model ? await placeOf(env, model, signal) : model);
}

const TEXT_OPTIONS = [
  "return_full_text",
  "return_tensors",
  "add_special_tokens",
  "skip_special_tokens",
  "clean_up_tokenization_spaces",
  "continue_final_message",
  "truncation",
  "truncation_side",
  "cache",
  "logprobs",
  "tools",
  "tool_choice",
  "parallel_tool_calls",
];

function makePipeline(client: Client, id: number, firstInfo: ModelInfo): TextGenerationPipeline {
  last = firstInfo;
  let current = firstInfo;
  let stats: Stats | undefined;
  const call = async (
    input: GenerateRequest["input"],
    options?: GenerateOptions | null,
  ): Promise<never> => {
    const { streamer, signal, priority, stopping_criteria, ...listeners } = options ?? {};
    const { on_parsed, on_delta, onScores, ...rest } = listeners;
    for (const [name, one] of Object.entries({ on_delta, on_parsed, onScores }))
      checkFunction(name, one);
    const follower = (typeof streamer === "object" && streamer) || undefined;
    if (follower) checkStreamer(follower);
    if (!follower) checkFunction("streamer", streamer);
    const text = textStreamer(streamer);
    const request = {
      model: id,
      input,
      ...splitFields(rest),
      stream: text && streamOptions(text),
      tokens: follower !== undefined,
      parsed: typeof on_parsed === "function",
      deltas: typeof on_delta === "function",
    };
    const result = await interruptible(stopping_criteria, (interrupt) =>
      client.call("generate", request, {
        signal,
        priority,
        interrupt,
        onText: (piece, end) => {
          if (piece || end) text?.on_finalized_text(piece, end);
          if (end) follower?.end();
        },
        onTokens: (ids) => follower?.put(ids),
        onEvent: ({ name, value }) => {
          if (name === "scores") onScores?.(value as TokenScore[]);
          else if (name === "delta") on_delta?.(value as MessageDelta);
          else on_parsed?.(value);
        },
      }),
    );
    current = last = result.info;
    stats = result.stats;
    return result.output as never;
  };
  const extras: Omit<TextGenerationPipeline, never> = {
    task: "text-generation",
    get info() {
      return current;
    },
    get stats() {
      return stats;
    },
    tokenizer: remoteTokenizer(client, id),
    stream: (input, options) => streamed(call, input, options),
    run: (messages, options) => runTools(call, messages, options),
    clearCache: () => client.call("clear", { model: id }),
    ...prefixMethods(client, id),
    profile: (work: string | Message[] | (() => unknown), options?: GenerateOptions) =>
      watched(client, id, typeof work === "function" ? work : () => call(work, options)),
    dispose: async () => client.end(),
  } as TextGenerationPipeline;
  const handle = { client, model: id, adapters: [] };
  const made = Object.defineProperties(call, {
    ...Object.getOwnPropertyDescriptors(extras),
    ...Object.getOwnPropertyDescriptors(adapterMethods(handle)),
  }) as unknown as TextGenerationPipeline;
  handles.set(made, handle);
  return made;
}

/** The methods of prefixes in files. */
function prefixMethods(
  client: Client,
  id: number,
): Pick<TextGenerationPipeline, "savePrefix" | "loadPrefix"> {
  return {
    savePrefix: async (input, given) => {
      const { signal, ...options } = optionsOf(given);
      return client.call("save_prefix", { model: id, input, options }, { signal });
    },
    loadPrefix: async (source) => {
      return client.call("load_prefix", { model: id, file: blobOf(source, "source") });
    },
  };
}

/** The text of a call as it is generated. */
async function* streamed(
  call: (input: GenerateRequest["input"], options: GenerateOptions) => Promise<unknown>,
  input: GenerateRequest["input"],
  given: GenerateOptions = {},
): AsyncGenerator<string, void, undefined> {
  const { signal, ...options } = optionsOf(given);
  const pieces = new Queue<string>();
  const end = new AbortController();
  const work = call(input, {
    ...options,
    streamer: (text) => pieces.put(text),
    signal: signal ? AbortSignal.any([signal, end.signal]) : end.signal,
  }).finally(() => pieces.end());
  work.catch(() => undefined); // it is thrown below
  try {
    yield* pieces;
    await work;
  } finally {
    end.abort();
  }
}

/** Separates the fields of GenerationConfig from the call's other options; drops undefined ones. */
function splitFields(given: Record<string, unknown>): Pick<GenerateRequest, "fields" | "options"> {
  const fields: Record<string, unknown> = {};
  const options: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(given)) {
    if (!TEXT_OPTIONS.includes(name)) {
      if (value !== undefined) fields[name] = value;
    } else if (value !== undefined && value !== null) options[name] = value;
  }
  return { fields, options };
}

/** @throws InputError if a streamer lacks a method */
function checkStreamer(
  streamer: Exclude<GenerateOptions["streamer"], undefined | ((text: string) => void)>,
): void {
  if (typeof streamer.put !== "function" || typeof streamer.end !== "function")
    throw new InputError(
      "it has no methods put and end",
      "options.streamer",
      "Give a TextStreamer, a function of pieces of text, or an object with put(ids) and end().",
    );
}

function textStreamer(streamer: GenerateOptions["streamer"]): TextStreamer | undefined {
  if (typeof streamer === "function")
    return new TextStreamer(undefined, { skip_prompt: true, callback_function: streamer });
  return streamer instanceof TextStreamer ? streamer : undefined;
}

function streamOptions({ options }: TextStreamer): GenerateRequest["stream"] {
  const { skip_special_tokens = true, clean_up_tokenization_spaces, skip_prompt = false } = options;
  const decode = {
    skip_special_tokens,
    ...(clean_up_tokenization_spaces === undefined ? {} : { clean_up_tokenization_spaces }),
  };
  return { skip_prompt, decode };
}

function remoteTokenizer(client: Client, model: number): TextGenerationPipeline["tokenizer"] {
  return {
    encode: async (text, options) => {
      const { add_special_tokens } = optionsOf(options);
      return client.call("encode", { model, text, add_special_tokens });
    },
    decode: async (ids, options = {}) =>
      client.call("decode", { model, ids: tokenIds(ids), options: optionsOf(options) }),
    apply_chat_template: (messages, options = {}) =>
      client.call("chat", { model, messages, options }) as Promise<never>,
  };
}

/** @throws InputError if they are no list */
function tokenIds(ids: Parameters<TextGenerationPipeline["tokenizer"]["decode"]>[0]): number[] {
  if (typeof ids !== "object" || ids === null || !("length" in ids))
    throw new InputError("it is no list of token ids", "ids", "Give what encode returned.");
  return Array.from(ids);
}

/** Bytes that training may take in a page: a share of its 4 GB, or of a device with less. */
function pageMemory(): number {
  const { deviceMemory = 4 } = navigator as { deviceMemory?: number };
  return 0.75 * 2 ** 30 * Math.min(4, deviceMemory);
}

/** Options of training as the compiler takes them, which has their defaults and checks them. */
function programsOf(training: PipelineOptions["training"]): LoadRequest["programs"] {
  if (!training) return undefined;
  const given = training === true ? {} : training;
  const { adapter = "lora", fit, memory = fit && pageMemory() } = given;
  // as JSON, which leaves out what is undefined
  return JSON.parse(JSON.stringify({ ...given, adapter, memory }));
}

function sources(model: ModelSource): LoadRequest["model"] {
  if (typeof model === "string" && model) return model;
  if (model instanceof URL) return model.href;
  // files of a folder have names relative to it: "onnx/model.onnx"
  const named = (blob: Blob) => ({
    name:
      blob instanceof File
        ? blob.webkitRelativePath?.replace(/^[^/]*\//, "") || blob.name
        : "model.edge",
    blob,
  });
  if (model instanceof Blob) return [named(model)];
  if (model instanceof ArrayBuffer || model instanceof Uint8Array)
    return hand(model instanceof Uint8Array ? model : new Uint8Array(model), "model.edge");
  const list = Array.from((model as ArrayLike<File> | undefined) ?? []);
  if (!list.length || !list.every((f) => f instanceof Blob))
    throw new InputError("there is no model", "pipeline", "Give a model id, an address, or files.");
  return list.map(named);
}
