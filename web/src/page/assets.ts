// The library's own files, beside edgewise.js. The addresses are literal, so that bundlers copy the
// files. In edgewise.inline.js and edgewise.global.js assets-inline.ts stands in the place of this
// module (pack.mjs).

import type { EngineFiles } from "../protocol/loading.ts";

declare const __WHEEL__: string;
declare const __CDN__: string;
declare const __PYODIDE__: string;

/** Where Python's files are: Pyodide's folder, and the wheel. */
export interface PythonPlace {
  pyodideUrl: string;
  wheelUrl: string;
}

/** Defaults of `env`. */
export const assets = {
  workerUrl: new URL("./worker.js", import.meta.url).href,
  compilerUrl: new URL("./compiler.js", import.meta.url).href,
  inlineUrl: new URL("./inline.js", import.meta.url).href,
  engineUrl: {
    simd128: new URL("./engine/edgewise-simd128.wasm", import.meta.url).href,
    "simd128-full": new URL("./engine/edgewise-simd128-full.wasm", import.meta.url).href,
    "relaxed-threads": new URL("./engine/edgewise-relaxed-threads.wasm", import.meta.url).href,
    "relaxed-threads-full": new URL("./engine/edgewise-relaxed-threads-full.wasm", import.meta.url)
      .href,
  } as string | EngineFiles,
};

/**
 * Python's files: beside this module, and on the CDN for bundles, which leave them behind. The
 * first that answers is used.
 */
export const pythonPlaces: PythonPlace[] = [
  ...besideThis(import.meta.url),
  { pyodideUrl: __PYODIDE__, wheelUrl: __CDN__ + __WHEEL__ },
];

/** No address: of a bundler's own scheme, webpack's `file:`, or in Node. */
function besideThis(url: string): PythonPlace[] {
  if (!/^(https?|[a-z]+-extension):/.test(url)) return [];
  return [{ pyodideUrl: new URL("pyodide/", url).href, wheelUrl: new URL(__WHEEL__, url).href }];
}

/** The address or content that stands for one of `assets`. */
export const resolve = <T>(value: T): T => value;
