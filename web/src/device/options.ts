// Options of a device.

import type { DeviceName, Flavour } from "../shared/platform.ts";

/** Addresses of the engine's files. */
export interface DeviceUrls {
  /**
   * Folder (ending in `/`) of edgewise-simd128.wasm and edgewise-relaxed-threads.wasm, and of
   * edgewise-*-full.wasm, which have all kernels.
   */
  engineUrl: string;
  /** Address of thread.js. */
  threadUrl: string;
}

/** Options of `openDevice`. */
export interface DeviceOptions extends DeviceUrls {
  /** Device to use. Default: `auto`, the fastest available. */
  device?: DeviceName | "auto";
  /** Build of the engine. Default: `auto`, see `choose`. */
  flavour?: Flavour | "auto";
  /** Number of compute threads, 1 to 64. Default: by the number of processors. */
  threads?: number;
  /** Use the build with all kernels, including rare ones. Default: false. */
  full?: boolean;
}
