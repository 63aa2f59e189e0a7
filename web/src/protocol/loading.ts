// Messages about loading a language model.

import type { Handed } from "../shared/files/source.ts";
import type { DeviceInfo, DeviceName, Flavour } from "../shared/platform.ts";

/** Where a worker finds the rest of Edgewise: absolute addresses; folders end in `/`. */
export interface Urls {
  /** As `Env`'s, likewise below. */
  engineUrl: string;
  threadUrl: string;
  compilerUrl: string;
  pyodideUrl: string;
  wheelUrl: string;
  snapshotUrl: string;
}

/**
 * Precision of the weights, which selects the file as in transformers.js. `auto` takes the first of
 * q8, q4, fp32, fp16, q4f16 that is there.
 */
export type DType = "auto" | "fp32" | "fp16" | "q8" | "int8" | "uint8" | "q4" | "q4f16" | "bnb4";
/** What keys and values of attention can be kept as. */
export type CacheDType = "float32" | "float16";

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
  device: DeviceName | "auto";
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

/** What a loaded pipeline says of itself. */
export interface ModelInfo {
  /** What it runs on, and why on nothing faster. */
  device: DeviceInfo;
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
