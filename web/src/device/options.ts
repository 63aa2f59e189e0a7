// Options of a device.

import type { EngineFiles } from "../protocol/loading.ts";
import type { DeviceWish, Flavour } from "../shared/platform.ts";

/** Addresses of the engine's files. */
export interface DeviceUrls {
  /**
   * Folder (ending in `/`) of edgewise-BUILD.wasm, or these files by build: those of
   * `FLAVOURS`, each also with `-full`, which has all kernels, as `relaxed-threads-64` has.
   */
  engineUrl: string | EngineFiles;
  /** Script of the threads: worker.js. */
  threadUrl: string;
}

/** The name, among those of kernels, of the functions that resample pictures and sound. */
export const MEDIA = "media";

/** Options of `openDevice`. */
export interface DeviceOptions extends DeviceUrls {
  /** Device to use. Default: `auto`. */
  device?: DeviceWish;
  /** Why the device is not the GPU that was asked for. */
  whyNotGpu?: string;
  /**
   * The GPU that may take the place of WebAssembly, by the name of its adapter; set where `auto`
   * was asked for. Models are then compiled for a GPU: WebAssembly runs these plans as fast.
   */
  adapter?: string | undefined;
  /** Build of the engine. Default: `auto`, see `choose`. */
  flavour?: Flavour | "auto";
  /** Number of compute threads, 1 to 64. Default: by the number of processors. */
  threads?: number;
  /** Use the build with all kernels, including rare ones, and {@link MEDIA}. Default: false. */
  full?: boolean;
}
