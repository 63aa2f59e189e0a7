// Options of a device.

import type { DeviceName, Flavour } from "../shared/platform.ts";

/** Where the parts of the engine are fetched from. */
export interface DeviceUrls {
  /**
   * Folder (ending in `/`) of edgewise-simd128.wasm and edgewise-relaxed-threads.wasm, and of
   * edgewise-*-full.wasm for models that need one.
   */
  engineUrl: string;
  /** thread.js */
  threadUrl: string;
}

/** How a device is opened. */
export interface DeviceOptions extends DeviceUrls {
  /** Default: `auto`, the fastest that can be used. */
  device?: DeviceName | "auto";
  /** The build. Default: auto, as `choose` says. */
  flavour?: Flavour | "auto";
  /** Threads that compute, 1 to 64. Default: by the number of processors. */
  threads?: number;
  /** The engine with all kernels, also those that few models need. Default: false. */
  full?: boolean;
}
