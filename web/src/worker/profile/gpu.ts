// Times of a plan's steps on a GPU: by its own clock where the browser gives that, else each
// dispatch is waited for alone.

import type { PlanHandle } from "../../device/device.ts";
import type { GpuDevice } from "../../device/webgpu/device.ts";
import type { GpuPlan } from "../../device/webgpu/plan.ts";

/** Flags of WebGPU, as its specification numbers them: QUERY_RESOLVE and COPY_SRC. */
const USAGE = 0x200 | 0x4;
/** Queries of a set, at most. */
const MAX = 4096;

const hasClock = ({ gpu }: GpuDevice): boolean => gpu.device.features.has("timestamp-query");

/** The build of a profile, with what its times are. */
export const builtFor = (device: GpuDevice): string =>
  `webgpu (${hasClock(device) ? "by the GPU's clock" : "each dispatch with a wait for it"})`;

/**
 * Runs a plan in the order of calls, and measures it.
 * @param ms receives the milliseconds of each step; those that share a dispatch count as its first
 *   one, and steps in WebAssembly with their copies
 */
export function measure(
  device: GpuDevice,
  handle: PlanHandle,
  where: string,
  ms: Float64Array,
): void {
  device.within(handle, where, async (plan) => {
    await plan.connect();
    const { initCount, steps } = plan.parts;
    const ranges = plan.launches.flatMap((launch, i): Part[] => {
      const [first, end] = plan.spanOf(i);
      return first < initCount || first === steps.length
        ? []
        : [{ i, first, end, onGpu: launch !== undefined }];
    });
    const timed: Part[] = [];
    const flush = async (): Promise<void> => {
      await byClock(device, plan, timed.splice(0), ms);
    };
    for (const part of ranges) {
      const clocked = part.onGpu && hasClock(device) && !plan.divides(part.i);
      if (clocked) {
        timed.push(part);
        if (2 * timed.length < MAX) continue;
      }
      await flush();
      if (!clocked) await byWait(device, plan, part, ms);
    }
    await flush();
  });
}

/** A launch, and its first step and the one after its last. */
interface Part {
  i: number;
  first: number;
  end: number;
  onGpu: boolean;
}

async function byWait(
  { gpu }: GpuDevice,
  plan: GpuPlan,
  { first, end }: Part,
  ms: Float64Array,
): Promise<void> {
  const begin = performance.now();
  await plan.run(first, end);
  gpu.submit();
  await gpu.device.queue.onSubmittedWorkDone();
  ms[first - plan.parts.initCount] = performance.now() - begin;
}

async function byClock(
  device: GpuDevice,
  plan: GpuPlan,
  parts: readonly Part[],
  ms: Float64Array,
): Promise<void> {
  if (!parts.length) return;
  const { gpu } = device;
  const count = 2 * parts.length;
  const querySet = gpu.device.createQuerySet({ type: "timestamp", count });
  const times = gpu.device.createBuffer({ size: 8 * count, usage: USAGE });
  try {
    plan.move();
    parts.forEach(({ i }, k) => {
      const timestampWrites = {
        querySet,
        beginningOfPassWriteIndex: 2 * k,
        endOfPassWriteIndex: 2 * k + 1,
      };
      const pass = gpu.encoder().beginComputePass({ timestampWrites });
      plan.encode(pass, i, i + 1);
      pass.end();
    });
    gpu.encoder().resolveQuerySet(querySet, 0, count, times, 0);
    plan.unchecked ||= plan.fails;
    const [words] = await device.fetchWords([{ gpu: times, offset: 0, bytes: 8 * count }]);
    const at = new BigUint64Array(words!.slice().buffer);
    parts.forEach(({ first }, k) => {
      const spent = Number(at[2 * k + 1]! - at[2 * k]!) / 1e6;
      ms[first - plan.parts.initCount] = Math.max(spent, 0); // clocks of GPUs may jump
    });
  } finally {
    querySet.destroy();
    gpu.free(times);
  }
}
