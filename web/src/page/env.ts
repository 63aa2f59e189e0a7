import type { Urls } from "../protocol/loading.ts";
import type { DeviceName } from "../shared/platform.ts";

/**
 * Global settings: addresses of Edgewise's own files and of models, caching, and defaults of the
 * device options. Set them before the first call of `pipeline` or `InferenceSession.create`.
 */
export interface Env {
  /** Worker script; must have the page's origin. Default: worker.js next to edgewise.js. */
  workerUrl: string;
  /** Script of the engine's threads. Default: thread.js next to edgewise.js. */
  threadUrl: string;
  /** Script of the compiler's worker. Default: compiler.js next to edgewise.js. */
  compilerUrl: string;
  /**
   * Script of sessions without a worker (`proxy: false`). Default: inline.js next to edgewise.js.
   */
  inlineUrl: string;
  /** Folder of the engine's .wasm files, ending in `/`. Default: engine/ next to edgewise.js. */
  engineUrl: string;
  /**
   * Folder of Pyodide's files (npm package `pyodide` 314.0.7), ending in `/`. Needed only to
   * compile models in the page. Default: pyodide/ next to edgewise.js.
   */
  pyodideUrl: string;
  /**
   * Edgewise's Python wheel. Needed only to compile models in the page. A file of the same name
   * that ends in `.snapshot` instead of `.whl` (`make web` makes it) is used where there is one:
   * Python starts from it about ten times as fast. Default: the wheel next to edgewise.js.
   */
  wheelUrl: string;
  /**
   * Host of model ids such as `org/name`, as in transformers.js. Default:
   * `https://huggingface.co/`.
   */
  remoteHost: string;
  /**
   * Path of a model's files on that host, as in transformers.js. Default:
   * `{model}/resolve/{revision}/`.
   */
  remotePathTemplate: string;
  /**
   * Keep compiled models in the browser's storage (OPFS), so that the next visit does not compile.
   * Default: true.
   */
  cachePlans: boolean;
  /**
   * Keep downloaded model files in the browser's storage, and resume interrupted downloads on the
   * next visit. Default: false.
   */
  cacheFiles: boolean;
  /**
   * Device to compute on: `wasm`, `webgpu` (not supported by this version) or `auto`, the fastest
   * available. Default: `auto`.
   */
  device: DeviceName | "auto";
  /**
   * Build of the engine: `relaxed-threads` uses relaxed SIMD and threads, `simd128` runs
   * everywhere. Default: `auto`, which takes `relaxed-threads` if the browser supports it.
   */
  flavour: "auto" | "simd128" | "relaxed-threads";
  /**
   * Number of compute threads, 1 to 64. Default: undefined, which chooses by the number of
   * processors (at most 8).
   */
  threads: number | undefined;
  /**
   * Milliseconds without progress after which waiting for a server, the browser's storage, a file
   * or a worker fails with an error that names it. A silent server is retried three times first.
   * Only time in which the page's threads run counts, so that a sleeping laptop does not time out.
   * Default: 30000.
   */
  stallTimeout: number;
  /** Whether InferenceSession computes in a worker (SessionOptions.proxy). Default: true. */
  proxy: boolean;
}

const beside = (name: string): string => new URL(name, import.meta.url).href;

/** Global settings of the page. */
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

/** The addresses in `env` as absolute URLs. */
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

/** Resolves an address relative to the page's base URL. */
export function full(url: string): string {
  return new URL(url, globalThis.document?.baseURI ?? globalThis.location?.href).href;
}
