// What page and worker say to each other. Calls carry an id, replies the same id in any order;
// events of a call (progress, tokens) carry it too. Errors cross as class name, words and fields.

import * as errors from "./errors.ts";
import type { Urls } from "./env.ts";
import type { DType } from "./hub.ts";
import type { OpenInfo, OpenRequest, RunAnswer, RunRequest } from "./inference/model.ts";
import type { CacheDType } from "./package.ts";
import type { Flavour } from "./platform.ts";
import type { ProfileData } from "./profile.ts";
import type { Handed } from "./source.ts";
import type { Message } from "./text.ts";
import type { AdapterInfo } from "./training/adapters.ts";
import type { PlainTensor } from "./tensor.ts";
import type { ArtifactsInfo } from "./training/artifacts.ts";
import type { KeptAdapter } from "./training/kept.ts";
import type {
  StepEvent,
  TrainingFields,
  TrainingInfo,
  TrainingResult,
} from "./training/trainer.ts";

export type { Urls };

/** A model to load, with `PipelineOptions` and `Env` resolved: see there. */
export interface LoadRequest {
  /** Model id or address, or files, or the bytes of a package. */
  model: string | { name: string; blob: Blob }[] | Handed;
  /** The page's address. */
  base: string;
  urls: Urls;
  remoteHost: string;
  remotePathTemplate: string;
  revision: string;
  dtype: DType;
  subfolder: string;
  model_file_name: string;
  flavour: Flavour | "auto";
  threads: number | undefined;
  capacity: number | undefined;
  cache_dtype: CacheDType | undefined;
  /** Training programs to compile along, as python/edgewise/training/package.py takes them. */
  programs: Record<string, unknown>[] | undefined;
  cache: boolean;
  cache_files: boolean;
  integrity: string | Record<string, string> | undefined;
  fetch_options: RequestInit | undefined;
}

/** What a call decides besides the fields of GenerationConfig. */
export interface TextOptions {
  /** The prompt and what was written (the default), or only what was written. */
  return_full_text?: boolean;
  /** Results are `{generated_token_ids}`, prompt included, instead of texts. */
  return_tensors?: boolean;
  /** Whether the tokenizer adds tokens like `<s>` to a text. Default: true. */
  add_special_tokens?: boolean;
  /** Leave tokens like `<|endoftext|>` out of the result. Default: true. */
  skip_special_tokens?: boolean;
  /** Default: as tokenizer_config.json says. */
  clean_up_tokenization_spaces?: boolean;
  /** Go on with the last message of a chat. Default: true where it is the assistant's. */
  continue_final_message?: boolean;
}

/** A call of a pipeline. */
export interface GenerateRequest {
  model: number;
  input: string | Message[] | (string | Message[])[];
  fields: Record<string, unknown>;
  options: TextOptions;
  /** Text is decoded as it comes, and sent as events. */
  stream:
    | {
        skip_prompt: boolean;
        decode: { skip_special_tokens?: boolean; clean_up_tokenization_spaces?: boolean };
      }
    | undefined;
  /** Token ids are sent as events. */
  tokens: boolean;
}

/** What the worker does when called. `model`: the number that `load` gave. */
export interface Methods {
  load(request: LoadRequest): Loaded;
  generate(request: GenerateRequest): Generated;
  encode(request: {
    model: number;
    text: string;
    add_special_tokens: boolean | undefined;
  }): number[];
  decode(request: {
    model: number;
    ids: number[];
    options: { skip_special_tokens?: boolean; clean_up_tokenization_spaces?: boolean };
  }): string;
  chat(request: { model: number; messages: Message[]; options: Record<string, unknown> }): string;
  unload(request: { model: number }): void;

  /** Makes a run ready. A model has one at a time. */
  train(request: { model: number; texts: string[]; fields: TrainingFields }): TrainingInfo;
  /** Steps to the end, or to an abort; steps are sent as events. */
  train_fit(request: { model: number }): TrainingResult;
  train_step(request: { model: number }): StepEvent;
  train_pause(request: { model: number; paused: boolean }): void;
  train_evaluate(request: { model: number }): number;
  train_save(request: { model: number }): number;
  train_result(request: { model: number }): TrainingResult;
  /** Ends the run; what it learned stays. */
  train_close(request: { model: number }): AdapterInfo[];

  adapters(request: { model: number }): AdapterInfo[];
  adapter_load(request: {
    model: number;
    files: { name: string; blob: Blob }[] | undefined;
    name: string;
  }): AdapterInfo[];
  adapter_use(request: { model: number; name: string | null; scale: number }): AdapterInfo[];
  adapter_save(request: { model: number; name: string }): { name: string; blob: Blob }[];
  adapter_rename(request: { model: number; name: string; to: string }): AdapterInfo[];
  adapter_remove(request: { model: number; name: string }): AdapterInfo[];
  adapter_keep(request: { model: number; name: string }): number;
  adapter_kept(request: { model: number }): KeptAdapter[];
  adapter_forget(request: { model: number; name: string }): void;
  adapter_merge(request: {
    model: number;
    name: string;
    files: { name: string; blob: Blob }[] | string | undefined;
  }): Blob;

  /** Watches what the engine of a model (undefined: of the worker's session) runs. */
  profile_start(request: { model: number | undefined }): void;
  profile_stop(request: { model: number | undefined; wanted: boolean }): ProfileData | undefined;
  profile_trace(request: { data: ProfileData }): Blob;

  inference_open(request: OpenRequest): OpenInfo;
  inference_run(request: RunRequest): RunAnswer;
  /** Bytes of an output that stayed in the engine. */
  inference_read(request: { id: number }): Uint8Array<ArrayBuffer>;
  inference_drop(request: { ids: number[] }): void;

  artifacts_open(request: {
    files: Record<string, Blob | string>;
    urls: Urls;
    flavour: Flavour | "auto";
    threads: number | undefined;
  }): ArtifactsInfo;
  artifacts_run(request: {
    kind: "train" | "eval";
    feeds: Record<string, PlainTensor>;
  }): Record<string, PlainTensor>;
  artifacts_update(request: {}): void;
  artifacts_reset(request: {}): void;
  artifacts_rate(request: { rate: number | undefined }): number;
  artifacts_seed(request: { seed: bigint }): void;
  artifacts_read(request: { names: string[] }): Record<string, PlainTensor>;
  artifacts_write(request: { values: Record<string, Uint8Array<ArrayBuffer>> }): void;
  artifacts_save(request: { optimizer: boolean }): Uint8Array<ArrayBuffer>;
  artifacts_export(request: { outputs: string[] }): Uint8Array<ArrayBuffer>;
}

/** What a loaded pipeline says of itself. */
export interface ModelInfo {
  /** The engine's build. */
  flavour: Flavour;
  /** Threads that compute, the worker's own among them. */
  threads: number;
  /** The page is cross-origin isolated. */
  isolated: boolean;
  /** In words why there is one thread only; empty where there are more. */
  whyNotThreads: string;
  /** Where the plans came from: a package, this page's cache, or compiled here just now. */
  origin: "package" | "cache" | "compiled";
  /** The precision that was asked for or found, as in the file's name; empty for packages. */
  dtype: string;
  /** Most tokens of a text, prompt included. */
  capacity: number;
  /** What keys and values are kept as. */
  cacheDtype: CacheDType;
  /** Tokens in the model's vocabulary. */
  vocabSize: number;
  /** Whether messages can be given instead of a text. */
  hasChatTemplate: boolean;
  /**
   * How it can be trained (`fineTune`), with rows of a batch, tokens of a row and the compiled
   * defaults; empty where it was compiled without.
   */
  training: {
    adapter: "lora" | "full";
    batch: number;
    sequence: number;
    learning_rate: number;
    optimizer: string;
    r?: number;
    lora_alpha?: number;
  }[];
  /** Bytes. `engine` is all that the engine holds, the others are parts of it. */
  memory: { engine: number; weights: number; cachePerSequence: number };
  /**
   * Milliseconds: instantiating the engine, compiling in Pyodide (with its start), and loading in
   * all.
   */
  ms: { engine: number; compile: number; load: number };
}

/** A model in the worker, by number. */
export interface Loaded {
  model: number;
  info: ModelInfo;
}
/** What a generation gave. */
export interface Generated {
  /** TextGenerationOutput[], or a list of them for several inputs. */
  output: unknown;
  /** As of now: its memory grows. */
  info: ModelInfo;
  /** Tokens given to the model and made by it, and milliseconds spent on each. */
  stats: { prompt_tokens: number; new_tokens: number; prefill_ms: number; decode_ms: number };
}

/** What `progress_callback` gets. The first five are those of transformers.js. */
export type ProgressEvent =
  | { status: "initiate" | "download" | "done"; name: string; file: string }
  /**
   * `progress` in percent; `loaded` and `total` in bytes (`total` is 0 where the server does not
   * say).
   */
  | {
      status: "progress";
      name: string;
      file: string;
      progress: number;
      loaded: number;
      total: number;
    }
  | { status: "ready"; name: string; task: string }
  /**
   * The model is compiled in the page: Pyodide starts (`pyodide`), then Python compiles
   * (`compile`).
   */
  | { status: "compile"; name: string; stage: "pyodide" | "compile" | "done"; message: string }
  /** Something did not work, and what was asked for is done without it. */
  | { status: "warning"; name: string; message: string };

/** A call on its way. */
export type Call = {
  [M in keyof Methods]: { id: number; method: M; request: Parameters<Methods[M]>[0] };
}[keyof Methods];
/** What the page posts. */
export type ToWorker =
  | Call
  | { id: number; abort: true; reason: string | undefined }
  /** First of all. `life`: the lock to hold while it lives (lives.ts). */
  | { start: { life: string; stallTimeout: number } }
  /** Last of all: it ends its threads, says that it has, and is ended. */
  | { end: true };
/** What the worker posts. */
export type FromWorker =
  | { started: true }
  | { ended: true }
  /** It holds a lock, or one of its threads does; or that thread is going to be ended. */
  | { life: string; held: boolean }
  | { id: number; value: unknown }
  | { id: number; error: PlainError }
  | { id: number; progress: ProgressEvent }
  | { id: number; step: StepEvent }
  | { id: number; text: string; end: boolean }
  | { id: number; tokens: number[] };

/** An error on its way; `name`: its class's. */
export interface PlainError {
  name: string;
  what: string;
  where: string;
  remedy: string;
  stack: string;
  fields: Record<string, unknown>;
}

type ErrorClass = new (what: string, where?: string, remedy?: string) => errors.EdgewiseError;

/** An error as data. Errors that are not Edgewise's become EngineError, with their own message. */
export function plainError(e: unknown): PlainError {
  const error = e instanceof Error ? e : new Error(String(e));
  const fields: Record<string, unknown> = {};
  if (error instanceof errors.EdgewiseError) {
    for (const [key, value] of Object.entries(error))
      if (
        !["name", "what", "where", "remedy", "message", "stack", "cause"].includes(key) &&
        cloneable(value)
      )
        fields[key] = value;
    return {
      name: error.name,
      what: error.what,
      where: error.where,
      remedy: error.remedy,
      stack: error.stack ?? "",
      fields,
    };
  }
  return {
    name: "EngineError",
    what: `${error.name}: ${error.message}`,
    where: "",
    remedy: "This is a mistake in Edgewise; please report it.",
    stack: error.stack ?? "",
    fields,
  };
}

/** The error that `plainError` took apart; its stack in the worker is `workerStack`. */
export function makeError(plain: PlainError): errors.EdgewiseError {
  const found: unknown = (errors as Record<string, unknown>)[plain.name];
  const type = (
    typeof found === "function" &&
    (found === errors.EdgewiseError || found.prototype instanceof errors.EdgewiseError)
      ? found
      : errors.EdgewiseError
  ) as ErrorClass;
  const error = new type(plain.what, plain.where, plain.remedy);
  Object.assign(error, plain.fields);
  if (plain.stack)
    Object.defineProperty(error, "workerStack", { value: plain.stack, enumerable: false });
  return error;
}

function cloneable(value: unknown): boolean {
  try {
    structuredClone(value);
    return true;
  } catch {
    return false;
  }
}
