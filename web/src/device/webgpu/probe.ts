// Measures whether the GPU computes a model's main product faster than WebAssembly, here and now.

import { PROBES, type Probe } from "../../gen/probe.ts";
import { megabytes, message } from "../../shared/words.ts";
import type { Buffer, Device, PlanHandle } from "../device.ts";
import { slotsOfPlan } from "../plan-header.ts";

/** A GPU must take this part of WebAssembly's time: beside products it has other dispatches. */
const WORTH = 0.8;
/** Milliseconds of runs in WebAssembly, which browsers compile a second time meanwhile. */
const WASM_MS = 60;
/** Runs on the GPU between two reads, and where those are slow. */
const RUNS = 64;
const FEW = 4;
const SLOW_MS = 40;
/** A run that takes longer is not repeated. */
const MAX_MS = 1000;
/** Bytes of the smallest and largest weight. */
const MIN = 1 << 18;
const MAX = 1 << 26;

/** What `auto` may wait for a measurement. */
const PATIENCE_MS = 1500;

/** A GPU that was opened to be measured. */
interface Probed extends Device {
  readonly gpu: { close(): void };
  why: string;
}

/** What is measured. */
export interface Product {
  probe: Probe;
  /** Of the weight. */
  bytes: number;
}

/**
 * The product that takes most of a token's time: of the size that most of a model's weights have.
 * @param sizes of the weights, in bytes
 * @param kernels of the plans
 */
export function mainProduct(sizes: readonly number[], kernels: readonly string[]): Product {
  const sums = new Map<number, number>();
  for (const bytes of sizes) sums.set(bytes, (sums.get(bytes) ?? 0) + bytes);
  const [[main] = [MIN]] = [...sums].sort(([, a], [, b]) => b - a);
  return {
    probe: PROBES.find(({ kernel }) => kernels.includes(kernel)) ?? PROBES.at(-1)!,
    bytes: Math.max(MIN, Math.min(main, MAX)),
  };
}

/** The plan of a product. */
export function probePlan({ probe, bytes }: Product): Uint8Array<ArrayBuffer> {
  const { plan, words, bits } = probe;
  const out = Uint8Array.from(atob(plan), (c) => c.charCodeAt(0));
  const view = new DataView(out.buffer);
  const weights = (bytes * 8) / bits;
  const k = Math.max(64, Math.round(Math.sqrt(weights / 2) / 64) * 64);
  const n = Math.max(64, Math.round(weights / k / 64) * 64);
  for (const [at, one, ofK, ofN, both] of words as [number, number, number, number, number][])
    view.setUint32(at, (one + ofK * k + ofN * n + both * k * n) / 32, true);
  return out;
}

/** Whether a GPU is worth it, and what is said about it. */
export function verdict({ bytes }: Product, gpu: number, wasm: number): [boolean, string] {
  const ms = (x: number): string => `${Number(x.toPrecision(2))} ms`;
  const what = `a product with ${megabytes(bytes)} of weights takes ${ms(gpu)} on the GPU`;
  return [gpu < WORTH * wasm, `${what}, ${ms(wasm)} in WebAssembly`];
}

/**
 * Opens a GPU if it computes a product faster than the engine.
 * @param open opens it
 * @returns the GPU, or why the engine is taken
 */
export function faster<T extends Probed>(
  open: () => Promise<T>,
  wasm: Device,
  product: Product,
): Promise<T | string> {
  let late = false;
  let timer: ReturnType<typeof setTimeout> | undefined;
  const probe = async (): Promise<T | string> => {
    const gpu = await open();
    let worth = false;
    try {
      if (late) return "";
      const found = await measured(gpu, wasm, product);
      [worth, gpu.why] = verdict(product, ...found);
      return worth && !late ? gpu : gpu.why;
    } finally {
      if (!worth || late) gpu.gpu.close();
    }
  };
  const deadline = new Promise<string>((resolve) => {
    timer = setTimeout(() => {
      late = true;
      resolve(`the GPU gave no measurement within ${PATIENCE_MS} ms`);
    }, PATIENCE_MS);
  });
  return Promise.race([probe().catch(message), deadline]).finally(() => clearTimeout(timer));
}

/**
 * Milliseconds of a product on a GPU and in WebAssembly.
 * @param gpu it has no other plans
 * @param wasm the engine beside it, which has the same handles of plans
 */
async function measured(
  gpu: Device,
  wasm: Device,
  product: Product,
): Promise<[gpu: number, wasm: number]> {
  const bytes = probePlan(product);
  const slots = slotsOfPlan(bytes)!;
  const kinds = slots.map(() => "state");
  const handle = gpu.loadPlan(bytes, "probe", "probe", undefined, kinds);
  const held: [Device, Buffer][] = [];
  const bind = (device: Device): Buffer[] =>
    slots.map(({ bytes: size }, slot) => {
      const buffer = device.allocate(size, "a measurement");
      held.push([device, buffer]);
      device.bind(handle, slot, buffer);
      return buffer;
    });
  try {
    bind(wasm);
    const here = inWasm(wasm, handle);
    const result = bind(gpu).at(-1)!;
    await gpu.ready();
    return [await onGpu(gpu, handle, result), here];
  } finally {
    gpu.freePlan(handle);
    for (const [device, buffer] of held) device.release(buffer);
  }
}

/** Milliseconds of a run in WebAssembly: the least of several. */
export function inWasm(wasm: Device, handle: PlanHandle): number {
  const end = performance.now() + WASM_MS;
  let least = Infinity;
  for (let now = performance.now(); now < end; ) {
    wasm.run(handle, "probe");
    const done = performance.now();
    least = Math.min(least, done - now);
    now = done;
  }
  return Math.max(least, 0.005); // clocks of pages are coarse
}

/** Milliseconds of a run on a GPU, without the wait for its result where that is not all. */
export async function onGpu(gpu: Device, handle: PlanHandle, result: Buffer): Promise<number> {
  const timed = async (runs: number): Promise<number> => {
    const start = performance.now();
    for (let i = 0; i < runs; i++) gpu.run(handle, "probe");
    await gpu.read(result, 0, 4);
    return performance.now() - start;
  };
  const first = await timed(1);
  if (first > MAX_MS && (await timed(1)) > MAX_MS) return first;
  const few = await timed(FEW);
  if (few > SLOW_MS) return few / FEW;
  const more = await timed(FEW + RUNS);
  const wait = Math.min(few, await timed(FEW)); // for a read; the first one may have been disturbed
  return more > wait ? (more - wait) / RUNS : more / (FEW + RUNS);
}
