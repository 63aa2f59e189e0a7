// Steps of a GPU's plan that run in WebAssembly, on copies of what they read and write. The twin of
// python/edgewise/host/webgpu/mirror.py.

import { KERNELS } from "../../gen/kernels.ts";
import { BUFFERS } from "../../gen/plan_format.ts";
import type { Buffer } from "../device.ts";
import type { PlanContext } from "./context.ts";

type Ranges = Map<number, [begin: number, end: number]>;

/** By kernel: which operands are written. */
const written = (kernel: string): boolean[] =>
  KERNELS.find(([name]) => name === kernel)![1]
    .split(" ")
    .map((operand) => operand.endsWith("*"));

/** Memory of WebAssembly for the slots that these steps use. */
export class Mirrors {
  /** Bytes copied from the GPU and to it, in all runs. */
  downloads = 0;
  uploads = 0;
  private readonly buffers = new Map<number, Buffer>();
  /** Weights and constants whose copy is up to date. */
  private readonly current = new Set<number>();

  constructor(private readonly plan: PlanContext) {}

  /** The slot was bound to other memory. */
  moved(slot: number): void {
    this.current.delete(slot);
    const copy = this.buffers.get(slot);
    if (!copy || !this.plan.parts.grows[slot]) return;
    this.buffers.delete(slot);
    this.copyOf(slot); // steps are checked with the room of what is bound
    this.plan.device.wasm.release(copy);
  }

  /** Init steps have run, of this plan or of one that shares its computed slots. */
  computed(): void {
    for (const slot of this.current)
      if (this.plan.kinds[slot] === "computed") this.current.delete(slot);
  }

  /** Runs steps first to end - 1 in WebAssembly, init steps counted. Throws as Device.run. */
  async run(first: number, end: number): Promise<void> {
    const { plan } = this;
    const { device, parts, where } = plan;
    const [read, changed] = this.ranges(first, end);
    for (const [slot, range] of read) {
      // while init steps run, weights arrive and computed slots are written
      const fixed =
        first >= parts.initCount &&
        (plan.kinds[slot] === "weight" || plan.kinds[slot] === "computed");
      const copy = this.copyOf(slot);
      if (fixed && this.current.has(slot)) continue;
      const [begin, stop] = fixed ? [0, parts.slotBytes[slot]!] : range;
      if (fixed) this.current.add(slot);
      const data = await device.fetch(plan.bufferOf(slot), begin, stop - begin);
      device.wasm.write(copy, data, begin);
      this.downloads += data.length;
    }
    const { wasm } = device;
    if (first < parts.initCount) wasm.initSteps(plan.handle, first, end - first, where);
    else wasm.runSteps(plan.handle, first - parts.initCount, end - first, where);
    for (const [slot, [begin, stop]] of changed) {
      const data = await wasm.read(this.copyOf(slot), begin, stop - begin);
      await device.store(plan.bufferOf(slot), data, begin);
      this.uploads += data.length;
    }
  }

  private copyOf(slot: number): Buffer {
    let copy = this.buffers.get(slot);
    if (!copy) {
      const { device, handle, parts } = this.plan;
      const bytes = parts.grows[slot] ? this.plan.bufferOf(slot).bytes : parts.slotBytes[slot]!;
      copy = device.wasm.allocate(bytes, "a step that the GPU cannot run");
      this.buffers.set(slot, copy);
      device.wasm.bind(handle, slot, copy);
    }
    return copy;
  }

  /**
   * Bytes of slots that steps access, and bytes that they write. What they write is read as well,
   * since strides may leave gaps.
   */
  private ranges(first: number, end: number): [read: Ranges, changed: Ranges] {
    const read: Ranges = new Map();
    const changed: Ranges = new Map();
    for (const { kernel, operands } of this.plan.resolve(first, end - first)) {
      const outputs = written(kernel);
      operands.forEach((v, i) => {
        if (!v || v.buffer < BUFFERS.SLOT0 || v.begin >= v.end) return;
        const slot = v.buffer - BUFFERS.SLOT0;
        for (const ranges of outputs[i] ? [read, changed] : [read]) {
          const [low, high] = ranges.get(slot) ?? [v.begin, v.end];
          ranges.set(slot, [Math.min(low, v.begin), Math.max(high, v.end)]);
        }
      });
    }
    return [read, changed];
  }

  /** Frees the memory. The plan must have been freed. */
  free(): void {
    for (const buffer of this.buffers.values()) this.plan.device.wasm.release(buffer);
    this.buffers.clear();
  }
}
