// The part for models that compute with bytes: their shaders, and how the engine in C lays out
// packed weights. That depends on the machine; its steps may read them, and plans share them. The
// twin of python/edgewise/compiler/gpu/packing.py.

import { PACKING } from "../../../gen/packing.ts";
import type { Device } from "../../device.ts";
import { slotsOfPlan } from "../../plan-header.ts";
import { hasDots } from "../gpu.ts";
import type { Packing } from "../steps.ts";

export { PART } from "../../../gen/shaders_bytes.ts";

/** How the engine packs weights, from packing a matrix. */
export async function machineOf(wasm: Device): Promise<Packing> {
  const { columns, rows } = PACKING;
  const bytes = Uint8Array.from(atob(PACKING.plan), (c) => c.charCodeAt(0));
  const plan = wasm.loadPlan(bytes, "the layout of weights");
  const made = slotsOfPlan(bytes)!.map(({ bytes: size }) => wasm.allocate(size, "a packed matrix"));
  try {
    for (const [slot, buffer] of made.entries()) wasm.bind(plan, slot, buffer);
    const [matrix, packed] = made;
    wasm.write(
      matrix!,
      Uint8Array.from({ length: columns * rows }, (_, i) => i),
    );
    wasm.run(plan, "the layout of weights");
    const found = await wasm.read(packed!, 4 * columns); // after the sums of the columns
    return [found.indexOf(4) / 4, found.indexOf(rows), hasDots()];
  } finally {
    wasm.freePlan(plan);
    for (const buffer of made) wasm.release(buffer);
  }
}
