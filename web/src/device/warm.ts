// Browsers compile WebAssembly in two steps: quickly, to code of a fifth of the speed, and again,
// in the background, what turns out to be busy. So the first training step would be the slow one.
// While a worker waits for a model anyway, and for what the page wants of it, it can make the
// kernels busy.

import { WARM } from "../gen/warm.ts";
import type { Buffer, Device, Plan } from "./device.ts";
import { slotsOfPlan } from "./plan-header.ts";

// it takes some 40 until all kernels are compiled, and as many again where another core is not idle
const RUNS = 150;
const PATIENCE_MS = 20; // what comes sooner is not worth it
const BREATH_MS = 2;

/**
 * Runs a small training step again and again until somebody else runs something, but not for long.
 * A device that was made without some of its kernels has nothing to warm. Never throws.
 */
export async function warm(device: Device): Promise<void> {
  let mine = device.runs;
  await pause(PATIENCE_MS);
  const held: Buffer[] = [];
  let plan: Plan | undefined;
  try {
    const bytes = unpacked(WARM);
    plan = device.loadPlan(bytes, "warm");
    for (const [slot, { bytes: size }] of slotsOfPlan(bytes)!.entries()) {
      held.push(device.allocate(size, "a warm start"));
      device.bind(plan, slot, held.at(-1)!);
    }
    device.init(plan, "warm");
    for (let runs = 0; device.runs === mine && !device.watcher && runs < RUNS; runs++) {
      device.run(plan, "warm"); // half a millisecond
      mine = device.runs;
      await pause(BREATH_MS); // in which the model's bytes are taken care of, for instance
    }
  } catch {
    // Closed meanwhile, without memory or kernels: then the first step is slower.
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
