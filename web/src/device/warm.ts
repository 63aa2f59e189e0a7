// Warms up the engine. Browsers compile WebAssembly twice: first quickly, to code that runs at
// about a fifth of the speed, and again in the background for functions that are hot. Without
// warm-up the first training step would run the slow code, so a worker that is waiting for its
// model, or for the page's next call, makes the kernels hot.

import { WARM } from "../gen/warm.ts";
import type { Buffer, Device, PlanHandle } from "./device.ts";
import { slotsOfPlan } from "./plan-header.ts";

// about 40 runs until all kernels are compiled, twice that if no other core is idle
const RUNS = 150;
const PATIENCE_MS = 20; // not worth it if work arrives sooner
const BREATH_MS = 2;

/**
 * Runs a small training step repeatedly, until other work runs on the device or RUNS is reached.
 * Does nothing on devices without the required kernels. Never throws.
 */
export async function warm(device: Device): Promise<void> {
  if (device.info.name !== "wasm") return;
  let mine = device.runs;
  await pause(PATIENCE_MS);
  const held: Buffer[] = [];
  let plan: PlanHandle | undefined;
  try {
    const bytes = unpacked(WARM);
    plan = device.loadPlan(bytes, "warm");
    for (const [slot, { bytes: size }] of slotsOfPlan(bytes)!.entries()) {
      held.push(device.allocate(size, "a warm start"));
      device.bind(plan, slot, held.at(-1)!);
    }
    device.init(plan, "warm");
    for (let runs = 0; device.runs === mine && !device.watcher && runs < RUNS; runs++) {
      device.run(plan, "warm"); // takes half a millisecond
      mine = device.runs;
      await pause(BREATH_MS); // lets other tasks run, such as receiving the model's bytes
    }
  } catch {
    // closed meanwhile, or no memory or kernels: the first step will be slower
  }
  if (plan) device.freePlan(plan);
  for (const buffer of held) device.release(buffer);
}

const pause = (ms: number): Promise<void> =>
  new Promise((resolve) => {
    setTimeout(resolve, ms);
  });

function unpacked(base64: string): Uint8Array {
  const text = atob(base64);
  const bytes: number[] = [];
  for (let i = 0; i < text.length; i++) {
    const byte = text.charCodeAt(i);
    if (byte) bytes.push(byte);
    else for (let n = text.charCodeAt(++i); n; n--) bytes.push(0);
  }
  return Uint8Array.from(bytes);
}
