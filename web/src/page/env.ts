import type { Urls } from "../protocol/loading.ts";
import type { DeviceName } from "../shared/platform.ts";

/**
 * Where Edgewise finds its own files and the models, and what it keeps. Change it before the first
 * `pipeline`.
 */
export interface Env {
  /**
   * The worker's script. Default: worker.js beside edgewise.js. Must be of the page's own origin.
   */
  workerUrl: string;
  /** Script of the engine's threads. Default: thread.js beside edgewise.js. */
  threadUrl: string;
  /** Script of the compiler's worker. Default: compiler.js beside edgewise.js. */
  compilerUrl: string;
  /**
   * Script of sessions without a worker (`proxy: false`). Default: inline.js beside edgewise.js.
   */
  inlineUrl: string;
  /** Folder of the engine's .wasm files, ending in `/`. Default: engine/ beside edgewise.js. */
  engineUrl: string;
  /**
   * Folder of Pyodide's files (npm package `pyodide` 314.0.7), ending in `/`. Default: pyodide/
   * beside edgewise.js. Needed only to compile models in the page.
   */
  pyodideUrl: string;
  /**
   * Edgewise's Python wheel. Default: beside edgewise.js. Needed only to compile models in the
   * page. A file of the same name that ends in `.snapshot` instead of `.whl` (`make web` makes it)
   * is used where there is one: Python starts from it about ten times as fast.
   */
  wheelUrl: string;
  /**
   * Site of model ids like `org/name`, as in transformers.js. Default: `https://huggingface.co/`.
   */
  remoteHost: string;
  /**
   * Path of a model's files there, as in transformers.js. Default: `{model}/resolve/{revision}/`.
   */
  remotePathTemplate: string;
  /**
   * Keep compiled models in the browser's storage (OPFS), so that a second visit needs no compiler.
   * Default: true.
   */
  cachePlans: boolean;
  /**
   * Keep downloaded model files there, too, and continue broken downloads on the next visit.
   * Default: false.
   */
  cacheFiles: boolean;
  /**
   * What computes: `wasm`, `webgpu` (which this version does not have) or `auto`, the fastest that
   * can be used. Default: `auto`.
   */
  device: DeviceName | "auto";
  /**
   * The engine's build: `relaxed-threads` has relaxed SIMD and threads, `simd128` runs everywhere.
   * Default: 'auto', the first where the browser has what it takes.
   */
  flavour: "auto" | "simd128" | "relaxed-threads";
  /**
   * Threads that compute, 1 to 64. Default: undefined, which chooses by the number of processors
   * (at most 8).
   */
  threads: number | undefined;
  /**
   * Milliseconds that a server, the browser's storage, a file or a worker may give no sign of life
   * before the work ends with an error that names it. A silent server is asked again first, three
   * times. Only time in which the page's threads run counts: a laptop may sleep. Default: 30000.
   */
  stallTimeout: number;
  /** Whether an InferenceSession computes in a worker: see SessionOptions.proxy. Default: true. */
  proxy: boolean;
}

const beside = (name: string): string => new URL(name, import.meta.url).href;

/** Settings of the whole page. */
export const env: Env = {
  workerUrl: beside("worker.js"),
  threadUrl: beside("thread.js"),
  compilerUrl: beside("compiler.js"),
  inlineUrl: beside("inline.js"),
  engineUrl: beside("engine/"),
  pyodideUrl: beside("pyodide/"),
  wheelUrl: beside(__WHEEL__),
  remoteHost: "https://huggingface.co/",
  remotePathTemplate: "{model}/resolve/{revision}/",
  cachePlans: true,
  cacheFiles: false,
  device: "auto",
  flavour: "auto",
  threads: undefined,
  stallTimeout: 30_000,
  proxy: true,
};

declare const __WHEEL__: string;

/** As `env` says now. */
export function urls(): Urls {
  const folder = (url: string): string => full(url).replace(/\/?$/, "/");
  return {
    engineUrl: folder(env.engineUrl),
    threadUrl: full(env.threadUrl),
    compilerUrl: full(env.compilerUrl),
    pyodideUrl: folder(env.pyodideUrl),
    wheelUrl: full(env.wheelUrl),
    snapshotUrl: full(env.wheelUrl.replace(/\.whl(?=$|[?#])/, ".snapshot")),
  };
}

/** An address relative to the page's. */
export function full(url: string): string {
  return new URL(url, globalThis.document?.baseURI ?? globalThis.location?.href).href;
}
