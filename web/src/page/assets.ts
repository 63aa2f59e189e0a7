// The library's own files, beside edgewise.js. The addresses are literal, so that bundlers copy the
// files. In edgewise.inline.js and edgewise.global.js assets-inline.ts stands in the place of this
// module (pack.mjs).

import type { EngineFiles } from "../protocol/loading.ts";
import type { WorkerPart } from "../shared/worker-parts.ts";
import { pythonFiles } from "./own-files.ts";

/** Defaults of `env`. */
export const assets = {
  workerUrl: new URL("./worker.js", import.meta.url).href,
  compilerUrl: new URL("./compiler.js", import.meta.url).href,
  inlineUrl: new URL("./inline.js", import.meta.url).href,
  engineUrl: {
    simd128: new URL("./engine/edgewise-simd128.wasm", import.meta.url).href,
    "simd128-full": new URL("./engine/edgewise-simd128-full.wasm", import.meta.url).href,
    "simd128-threads": new URL("./engine/edgewise-simd128-threads.wasm", import.meta.url).href,
    "simd128-threads-full": new URL("./engine/edgewise-simd128-threads-full.wasm", import.meta.url)
      .href,
    "relaxed-threads": new URL("./engine/edgewise-relaxed-threads.wasm", import.meta.url).href,
    "relaxed-threads-full": new URL("./engine/edgewise-relaxed-threads-full.wasm", import.meta.url)
      .href,
  } as string | EngineFiles,
};

/** Scripts that worker.js loads when it needs them, by name. */
export const parts: Record<WorkerPart, string> = {
  "worker-adapters": new URL("./worker-adapters.js", import.meta.url).href,
  "worker-candidates": new URL("./worker-candidates.js", import.meta.url).href,
  "worker-diffusion": new URL("./worker-diffusion.js", import.meta.url).href,
  "worker-generation": new URL("./worker-generation.js", import.meta.url).href,
  "worker-heads": new URL("./worker-heads.js", import.meta.url).href,
  "worker-images": new URL("./worker-images.js", import.meta.url).href,
  "worker-indexed": new URL("./worker-indexed.js", import.meta.url).href,
  "worker-inference": new URL("./worker-inference.js", import.meta.url).href,
  "worker-moonshine": new URL("./worker-moonshine.js", import.meta.url).href,
  "worker-onnx": new URL("./worker-onnx.js", import.meta.url).href,
  "worker-pipelines": new URL("./worker-pipelines.js", import.meta.url).href,
  "worker-profile": new URL("./worker-profile.js", import.meta.url).href,
  "worker-sounds": new URL("./worker-sounds.js", import.meta.url).href,
  "worker-speech": new URL("./worker-speech.js", import.meta.url).href,
  "worker-storage": new URL("./worker-storage.js", import.meta.url).href,
  "worker-templates": new URL("./worker-templates.js", import.meta.url).href,
  "worker-texts": new URL("./worker-texts.js", import.meta.url).href,
  "worker-voices": new URL("./worker-voices.js", import.meta.url).href,
  "worker-webgpu": new URL("./worker-webgpu.js", import.meta.url).href,
  "worker-webgpu-choice": new URL("./worker-webgpu-choice.js", import.meta.url).href,
  "worker-webgpu-probe": new URL("./worker-webgpu-probe.js", import.meta.url).href,
  "worker-webgpu-bytes": new URL("./worker-webgpu-bytes.js", import.meta.url).href,
  "worker-webgpu-serial": new URL("./worker-webgpu-serial.js", import.meta.url).href,
  "worker-webgpu-images": new URL("./worker-webgpu-images.js", import.meta.url).href,
  "worker-webgpu-training": new URL("./worker-webgpu-training.js", import.meta.url).href,
  "worker-training": new URL("./worker-training.js", import.meta.url).href,
};

/** Python's files. */
export const python = pythonFiles(import.meta.url);

/** The address or content that stands for one of `assets`. */
export const resolve = <T>(value: T): T => value;
