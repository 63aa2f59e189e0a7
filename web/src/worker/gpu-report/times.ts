// How long plans take on both devices.

import type { Buffer, Device, PlanHandle } from "../../device/device.ts";

/** Milliseconds of runs in WebAssembly, which browsers compile a second time meanwhile. */
const WASM_MS = 60;
/** Runs on the GPU between two reads, and where those are slow. */
const RUNS = 64;
const FEW = 4;
const SLOW_MS = 40;
/** A run that takes longer is not repeated. */
const MAX_MS = 1000;

/** Milliseconds of a run in WebAssembly: the least of several. */
export function inWasm(wasm: Device, handle: PlanHandle): number {
  const end = performance.now() + WASM_MS;
  let least = Infinity;
  for (let now = performance.now(); now < end; ) {
    wasm.run(handle, "report");
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
    for (let i = 0; i < runs; i++) gpu.run(handle, "report");
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
