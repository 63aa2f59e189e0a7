// The library's own files, beside edgewise.js. The addresses are literal, so that bundlers copy the
// files. In edgewise.inline.js and edgewise.global.js assets-inline.ts stands in the place of this
// module (pack.mjs).

import type { PythonUrls } from "../protocol/compiler.ts";
import type { EngineFiles } from "../protocol/loading.ts";
import { pythonFiles } from "./own-files.ts";

export { parts } from "../gen/worker_urls.ts";

/** Defaults of `env`. */
export const assets = {
  workerUrl: new URL("./worker.js", import.meta.url).href,
  compilerUrl: new URL("./compiler.js", import.meta.url).href,
  inlineUrl: new URL("./inline.js", import.meta.url).href,
  engineUrl: {
    "simd128-threads": new URL("./engine/edgewise-simd128-threads.wasm", import.meta.url).href,
    "simd128-threads-full": new URL("./engine/edgewise-simd128-threads-full.wasm", import.meta.url)
      .href,
    "relaxed-threads": new URL("./engine/edgewise-relaxed-threads.wasm", import.meta.url).href,
    "relaxed-threads-full": new URL("./engine/edgewise-relaxed-threads-full.wasm", import.meta.url)
      .href,
    "relaxed-threads-64": new URL("./engine/edgewise-relaxed-threads-64.wasm", import.meta.url)
      .href,
  } as string | EngineFiles,
};

/** Python's files. */
export const python: PythonUrls = { files: pythonFiles(import.meta.url) };

/** The address or content that stands for one of `assets`. */
export const resolve = <T>(value: T): T => value;
