// Messages of loading a language model.

import type { OwnFile } from "../shared/files/own.ts";
import type { Handed } from "../shared/files/source.ts";
import type { DeviceInfo, DeviceWish, Flavour } from "../shared/platform.ts";
import type { Priority } from "../shared/priority.ts";
import type { PythonUrls } from "./compiler.ts";

/**
 * An engine that came compressed with the library. Several .wasm files are compressed together:
 * each is cut into `pieces` of equal length, and a piece of each follows in turn.
 */
export interface PackedEngine {
  /** All files, compressed as deflate without a header. */
  packed: Blob;
  /** Bytes of each file. */
  sizes: number[];
  pieces: number;
  /** Which of the files it is. */
  index: number;
}

/**
 * The engine's .wasm files by the name of their build (`simd128-threads`, `simd128-threads-full`,
 * ...): addresses, contents, or files of the library.
 */
export type EngineFiles = Record<string, string | PackedEngine | OwnFile>;

/** Absolute addresses of Edgewise's files; folders end in `/`. Fields as in `Env`. */
export interface Urls {
  /** As `Env`'s, likewise below. */
  engineUrl: string | EngineFiles;
  threadUrl: string;
  compilerUrl: string;
  /** Python's files, to compile models. */
  python: PythonUrls;
}

/**
 * Precision of the weights, which selects the file as in transformers.js. `auto` takes the first
 * available of q8, q4, fp32, fp16, q4f16.
 */
export type DType =
  | ("auto" | "fp32" | "fp16" | "q8" | "int8" | "uint8")
  | ("q4" | "q4f16" | "q2" | "q2f16" | "q1" | "q1f16" | "bnb4");
/** Element type of the key/value cache. */
export type CacheDType = "float32" | "float16" | "int8" | "int4";

/** A model to load: PipelineOptions and Env with defaults resolved. */
export interface LoadRequest {
  /** Name of the task, not an alias. */
  task: string;
  /** Model id, address, files, or the bytes of a package, served through a port. */
  model: string | { name: string; blob: Blob }[] | Handed;
  /** Base URL of the page. */
  base: string;
  urls: Urls;
  remoteHost: string;
  remotePathTemplate: string;
  revision: string;
  /** For all files, or by their names. */
  dtype: DType | Record<string, DType>;
  subfolder: string;
  model_file_name: string;
  device: DeviceWish;
  flavour: Flavour | "auto";
  threads: number | undefined;
  /** For the page, which starts the worker with it; the worker does not read it. */
  priority: Priority | undefined;
  capacity: number | undefined;
  cache_dtype: CacheDType | undefined;
  /** Most tokens of a text, for tasks other than text-generation. */
  max_length: number | undefined;
  /** Whether the model is to be taught labels of its user. */
  /** Or { lora: true, or { rank, alpha } }. */
  personalize: boolean | object;
  /** Options of training, as `training_programs` of python/edgewise/compiler/training/package.py
   * takes them. */
  programs: Record<string, unknown> | undefined;
  cache: boolean;
  /** Bytes of states of earlier generations; undefined: the default. */
  cache_bytes?: number | undefined;
  /** Bytes of memory for weights of experts; undefined: as much as there is. */
  expert_bytes?: number | undefined;
  cache_files: boolean | "auto";
  integrity: string | Record<string, string> | undefined;
  fetch_options: RequestInit | undefined;
  /** Of SpeechT5: another model that has its vocoder. */
  vocoder?: LoadRequest["model"] | undefined;
  /** Of a codec, where the caller says it. */
  sampling_rate?: number | undefined;
  /** The model of this worker whose tokens this one guesses. */
  assists?: number | undefined;
}

/** Properties of a loaded pipeline. */
export interface ModelInfo {
  /** The device in use, and why no faster one is used. */
  device: DeviceInfo;
  /** Build of the engine. */
  flavour: Flavour;
  /** Number of compute threads, including the worker itself. */
  threads: number;
  /** Whether the page is cross-origin isolated. */
  isolated: boolean;
  /** Why only one thread is used; empty if there are more. */
  whyNotThreads: string;
  /** Source of the plans: a package, the browser's storage, or compiled during this load. */
  origin: "package" | "cache" | "compiled";
  /** Precision requested or found, as in the file's name; empty for packages. */
  dtype: string;
  /** Maximum number of tokens of a sequence, prompt included. */
  capacity: number;
  /** Element type of the key/value cache. */
  cacheDtype: CacheDType;
  /** Size of the model's vocabulary. */
  vocabSize: number;
  /** Whether the tokenizer has a chat template, so that messages can be passed. */
  hasChatTemplate: boolean;
  /**
   * Ways to train the model (`fineTune`): sequences per batch, tokens per sequence and the compiled
   * defaults. Empty if it was compiled without training.
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
  /**
   * Bytes. `engine` is the total that the engine holds; the others are parts of it. `kept`: the
   * states of earlier conversations. `cachePerSequence`: keys and values of a new conversation,
   * which take more in steps as it gets longer; `cachePerToken`: as much for each token, but for
   * layers of a sliding window, which have all their rows before long.
   */
  memory: {
    engine: number;
    weights: number;
    cachePerSequence: number;
    cachePerToken: number;
    kept: number;
  };
  /**
   * Durations in milliseconds: instantiating the engine; compiling in Pyodide, including its start;
   * the whole load.
   */
  ms: { engine: number; compile: number; load: number };
}

/** A model in the worker: its number and properties. */
export interface Loaded {
  model: number;
  info: ModelInfo;
}

/** Events of `progress_callback`. The first six are those of transformers.js. */
export type ProgressEvent =
  | { status: "initiate" | "download" | "done"; name: string; file: string }
  /** `progress` in percent, `loaded` and `total` in bytes; `total` is 0 if the server omits it. */
  | {
      status: "progress";
      name: string;
      file: string;
      progress: number;
      loaded: number;
      total: number;
    }
  /**
   * Progress of all files, before each `progress`. The files of a hub's listing are known from the
   * beginning on; of others a file counts once it arrives.
   */
  | {
      status: "progress_total";
      name: string;
      progress: number;
      loaded: number;
      total: number;
      files: Record<string, { loaded: number; total: number }>;
    }
  | { status: "ready"; name: string; task: string }
  /** The model is compiled in the page: Pyodide starts (`pyodide`), then compiles (`compile`). */
  | { status: "compile"; name: string; stage: "pyodide" | "compile" | "done"; message: string }
  /** Something failed, and the request continues without it. */
  | { status: "warning"; name: string; message: string };

/** Files of a model in a folder or on a hub. */
export interface ModelFiles {
  /** Settings and the tokenizer's files, by name. */
  texts: Record<string, string>;
  /** Address of the .onnx file that a pipeline loads; undefined: there is none of its dtype. */
  onnx: string | undefined;
}
