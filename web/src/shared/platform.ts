// What this browser can do. Features are detected once; the choice of a build follows from them and
// from what the caller asks.

import { InputError } from "./errors.ts";

/**
 * The two builds of the engine. `simd128` runs everywhere; `relaxed-threads` has relaxed SIMD and
 * shared memory for threads.
 */
export type Flavour = "simd128" | "relaxed-threads";

/** A device that computes: `wasm`, the processor by WebAssembly, or `webgpu`, a graphics card. */
export type DeviceName = "wasm" | "webgpu";

/** What a model runs on. */
export interface DeviceInfo {
  /** The device that was taken. */
  name: DeviceName;
  /** The engine's build. */
  flavour: Flavour;
  /** Threads that compute, the worker's own among them. */
  threads: number;
  /** Why nothing faster was taken: another device, more threads. Empty where nothing is faster. */
  why: string;
}

/** What this browser has. */
export interface Platform {
  /** 128-bit SIMD, without which the engine does not run (Chrome 91, Firefox 89, Safari 16.4). */
  simd: boolean;
  /** Relaxed SIMD: fused multiply-add and int8 dot products. */
  relaxed: boolean;
  /** WebAssembly memory that can be shared, even if it may not be sent to threads. */
  shared: boolean;
  /**
   * The page is cross-origin isolated (COOP and COEP headers), which browsers demand before they
   * let memory be shared.
   */
  isolated: boolean;
  /** Logical processors. */
  cores: number;
}

// Modules of one function that returns a v128: i8x16.popcnt(i8x16.splat(0)), and
// i8x16.relaxed_swizzle of two splats.
const SIMD = [
  0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0, 10, 10, 1, 8, 0, 65, 0, 253, 15,
  253, 98, 11,
];
const RELAXED = [
  0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0, 10, 15, 1, 13, 0, 65, 1, 253, 15,
  65, 2, 253, 15, 253, 128, 2, 11,
];

let found: Platform | undefined;

/** Detects once per thread. */
export function platform(): Platform {
  return (found ??= {
    simd: WebAssembly.validate(new Uint8Array(SIMD)),
    relaxed: WebAssembly.validate(new Uint8Array(RELAXED)),
    shared: canShareMemory(),
    isolated: globalThis.crossOriginIsolated === true,
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

/** What will be used, and in words why not threads. */
export interface Choice {
  /** The engine's build. */
  flavour: Flavour;
  /** Threads that compute. */
  threads: number;
  /** Empty where threads are used. */
  whyNotThreads: string;
}

/** Picks a flavour and a number of threads from what there is and what the caller asked for. */
export function choose(
  have: Platform,
  flavour: Flavour | "auto" = "auto",
  threads?: number,
): Choice {
  const single = (f: Flavour, why: string): Choice => ({
    flavour: f,
    threads: 1,
    whyNotThreads: why,
  });
  if (flavour === "simd128")
    return single("simd128", "the flavour simd128, which was asked for, has no threads");
  const best: Flavour =
    flavour === "auto" && !(have.relaxed && have.shared) ? "simd128" : "relaxed-threads";
  if (threads === 1) return single(best, "one thread was asked for");
  if (!have.relaxed)
    return single(
      best,
      "this browser lacks WebAssembly relaxed SIMD, which the build with threads needs",
    );
  if (!have.isolated)
    return single(
      best,
      "the page is not cross-origin isolated: serve it with the headers " +
        "Cross-Origin-Opener-Policy: same-origin and Cross-Origin-Embedder-Policy: " +
        "require-corp (or credentialless)",
    );
  if (!have.shared) return single(best, "this browser does not allow shared WebAssembly memory");
  if (threads === undefined && have.cores < 2) return single(best, "the device has one processor");
  return { flavour: best, threads: threads ?? defaultThreads(have.cores), whyNotThreads: "" };
}

/**
 * Physical cores where the number suggests hyper-threads or efficiency cores, at most 8: more do
 * not help a memory-bound decode.
 */
function defaultThreads(cores: number): number {
  return Math.min(8, cores <= 4 ? cores : Math.ceil(cores / 2));
}

const NO_WEBGPU = "this version of Edgewise cannot compute on WebGPU";

/** @throws InputError: there is no such device, or it cannot be used */
export function checkDevice(device: unknown): asserts device is "wasm" | "auto" | undefined {
  if (device === undefined || device === "wasm" || device === "auto") return;
  if (device === "webgpu")
    throw new InputError(
      NO_WEBGPU,
      "options.device",
      "Give 'wasm', or 'auto', which takes the fastest device that there is.",
    );
  throw new InputError(
    `device is '${String(device)}'`,
    "options.device",
    "Give 'wasm', 'webgpu' or 'auto'.",
  );
}

/** What was taken, and why nothing faster. @param asked the option `device` */
export function deviceInfo(
  { flavour, threads, whyNotThreads }: Choice,
  asked: DeviceName | "auto" = "auto",
): DeviceInfo {
  const why = [asked === "auto" ? NO_WEBGPU : "", whyNotThreads].filter(Boolean).join("; ");
  return { name: "wasm", flavour, threads, why };
}
