// Capabilities of this browser, and the choice of the engine's build and threads.

import { InputError } from "./errors.ts";

/**
 * Builds of the engine. `simd128` runs everywhere, `simd128-threads` is the same with threads;
 * `relaxed-threads` uses relaxed SIMD and threads, `relaxed-threads-64` also 64-bit addresses, for
 * models that need more than 4 GB.
 */
export const FLAVOURS = [
  "simd128",
  "simd128-threads",
  "relaxed-threads",
  "relaxed-threads-64",
] as const;

/** Name of a build of the engine, see `FLAVOURS`. */
export type Flavour = (typeof FLAVOURS)[number];

/** The build with 64-bit addresses. */
export const WIDE_FLAVOUR: Flavour = "relaxed-threads-64";

/** A compute device: `wasm` (CPU, by WebAssembly) or `webgpu` (GPU). */
export type DeviceName = "wasm" | "webgpu";

/** The device that a model runs on. */
export interface DeviceInfo {
  /** Name of the device. */
  name: DeviceName;
  /** Build of the engine. */
  flavour: Flavour;
  /** Number of compute threads, including the worker itself. */
  threads: number;
  /** Why no faster device or more threads are used; empty if there are none. */
  why: string;
  /** Properties of the GPU, where the device is `webgpu`. */
  gpu?: {
    /** Name of the adapter, as far as the browser tells it. */
    adapter: string;
    /** Number of compiled programs. */
    pipelines: number;
    /** Kernels whose steps run in WebAssembly instead, each with a copy to it and back, and why. */
    onWasm: Record<string, string>;
    /** Values of tunables of shaders that are the fastest on it, as measured at the first use. */
    tuned: Record<string, number>;
    /** Bytes of these copies so far, from the GPU and to it. */
    downloads: number;
    uploads: number;
  };
}

/** Capabilities of the browser. */
export interface Platform {
  /** 128-bit SIMD, which the engine requires (Chrome 91, Firefox 89, Safari 16.4). */
  simd: boolean;
  /** Relaxed SIMD: fused multiply-add and int8 dot products. */
  relaxed: boolean;
  /** 64-bit addresses: memory64, with 64-bit tables. */
  wide: boolean;
  /** Shared WebAssembly memory, even if the page may not send it to threads. */
  shared: boolean;
  /**
   * Whether the page is cross-origin isolated (COOP and COEP headers), which browsers require for
   * sending shared memory to threads. True outside of browsers.
   */
  isolated: boolean;
  /** Number of logical processors. */
  cores: number;
}

// WebAssembly modules with one function that returns a v128: i8x16.popcnt(i8x16.splat(0)), and
// i8x16.relaxed_swizzle of two splats; and one with a table and a memory of 64-bit addresses.
const SIMD = [
  0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0, 10, 10, 1, 8, 0, 65, 0, 253, 15,
  253, 98, 11,
];
const RELAXED = [
  0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0, 10, 15, 1, 13, 0, 65, 1, 253, 15,
  65, 2, 253, 15, 253, 128, 2, 11,
];
const WIDE = [0, 97, 115, 109, 1, 0, 0, 0, 4, 4, 1, 112, 4, 0, 5, 3, 1, 4, 0];

/**
 * The build that has a file: `simd128` is `simd128-threads`, on a memory that is not shared.
 * @param build a flavour, or one with `-full`
 */
export const storedBuild = (build: string): string =>
  build.replace(/^simd128(?=-full$|$)/, "simd128-threads");

/** The name of a build's file. */
export const fileName = (build: string): string => `edgewise-${storedBuild(build)}.wasm`;

let found: Platform | undefined;

/** Detects the capabilities, once per thread. */
export function platform(): Platform {
  return (found ??= {
    simd: WebAssembly.validate(new Uint8Array(SIMD)),
    relaxed: WebAssembly.validate(new Uint8Array(RELAXED)),
    wide: WebAssembly.validate(new Uint8Array(WIDE)),
    shared: canShareMemory(),
    isolated: globalThis.crossOriginIsolated ?? true, // Node, Deno and Bun do not have it
    cores: globalThis.navigator?.hardwareConcurrency ?? 1,
  });
}

function canShareMemory(): boolean {
  try {
    const memory = new WebAssembly.Memory({ initial: 1, maximum: 1, shared: true });
    return memory.buffer !== undefined && typeof Atomics === "object";
  } catch {
    return false;
  }
}

/** The chosen build and threads. */
export interface Choice {
  /** Build of the engine. */
  flavour: Flavour;
  /** Number of compute threads. */
  threads: number;
  /** Why threads are not used; empty if they are. */
  whyNotThreads: string;
}

/** Chooses a build and a number of threads from the capabilities and the caller's options. */
export function chooseBuild(
  have: Platform,
  flavour: Flavour | "auto" = "auto",
  threads?: number,
): Choice {
  const why = whyOneThread(have, flavour, threads);
  return {
    flavour: flavour === "auto" ? fastest(have, !why) : flavour,
    threads: why ? 1 : (threads ?? defaultThreads(have.cores)),
    whyNotThreads: why,
  };
}

function fastest({ relaxed, shared }: Platform, threads: boolean): Flavour {
  if (relaxed && shared) return "relaxed-threads";
  return threads ? "simd128-threads" : "simd128";
}

/** Why not more than one thread is used; empty if more can be. */
function whyOneThread(
  have: Platform,
  flavour: Flavour | "auto",
  threads: number | undefined,
): string {
  if (flavour === "simd128") return "the flavour simd128, which was asked for, has no threads";
  if (threads === 1) return "one thread was asked for";
  if (flavour.startsWith("relaxed") && !have.relaxed)
    return `this browser lacks WebAssembly relaxed SIMD, which the flavour ${flavour} needs`;
  if (!have.isolated)
    return (
      "the page is not cross-origin isolated: serve it with the headers " +
      "Cross-Origin-Opener-Policy: same-origin and Cross-Origin-Embedder-Policy: " +
      "require-corp (or credentialless)"
    );
  if (!have.shared) return "this browser does not allow shared WebAssembly memory";
  return threads === undefined && have.cores < 2 ? "the device has one processor" : "";
}

/**
 * The assumed number of physical cores, at most 8: more threads do not speed up a memory-bound
 * decode.
 */
function defaultThreads(cores: number): number {
  return Math.min(8, cores <= 4 ? cores : Math.ceil(cores / 2));
}

/**
 * What a device is asked for by: its name; `auto`; or, within the library, `webgpu-or-wasm`, which
 * is WebGPU where the model can be run on it.
 */
export type DeviceWish = DeviceName | "auto" | "webgpu-or-wasm";

const WHY: { [wish in DeviceWish]?: string } = {
  auto: "'auto' has not found a GPU for WebGPU",
};

/** @throws InputError if a caller cannot ask for the device */
export function checkDevice(device: unknown): asserts device is DeviceName | "auto" | undefined {
  if (["wasm", "webgpu", "auto", undefined].includes(device as string)) return;
  throw new InputError(
    `device is '${String(device)}'`,
    "options.device",
    "Give 'wasm', 'webgpu' or 'auto'.",
  );
}

/**
 * Describes the CPU as the device in use.
 * @param asked the option `device`
 * @param whyNotGpu why the GPU that was asked for is not used
 */
export function deviceInfo(
  { flavour, threads, whyNotThreads }: Choice,
  asked: DeviceWish = "auto",
  whyNotGpu = WHY[asked],
): DeviceInfo {
  const why = [whyNotGpu, whyNotThreads].filter(Boolean).join("; ");
  return { name: "wasm", flavour, threads, why };
}
