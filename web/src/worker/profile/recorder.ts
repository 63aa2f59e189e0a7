// Records a profile in the worker: measures the steps of all plans that a device runs, and the
// device's limits.

import type { Buffer, Device, PlanHandle, PlanInfo } from "../../device/device.ts";
import { openDevice } from "../../device/open.ts";
import { slotsOfPlan } from "../../device/plan-header.ts";
import type { GpuDevice } from "../../device/webgpu/device.ts";
import { LIMITS } from "../../gen/limits.ts";
import type { Notes, Run } from "../../logic/profile.ts";
import type { Limits, ProfileData } from "../../protocol/profile.ts";
import { InputError } from "../../shared/errors.ts";
import { builtFor, measure } from "./gpu.ts";

interface Watched {
  known: PlanInfo;
  runs: Run[];
}

/**
 * Records all plan runs of a device, step by step, from construction on.
 * @throws InputError if another recorder is active
 */
export class Recorder {
  private readonly plans = new Map<PlanHandle, Watched>();
  /** Plans that were freed meanwhile; their handles may be reused. */
  private readonly gone: Watched[] = [];
  private readonly begun = performance.now();
  private readonly gpu: GpuDevice | undefined;

  constructor(private readonly device: Device) {
    if (device.watcher)
      throw new InputError("another profile is active", "profile", "Let it end first.");
    device.watcher = this;
    if (device.info.name === "webgpu") this.gpu = device as GpuDevice;
  }

  /** Runs a plan in place of the device and records the time of each step. */
  run(plan: PlanHandle, where: string): void {
    const { device } = this;
    const known = device.describe(plan);
    const steps = known.kernels.length;
    const ms = new Float64Array(steps);
    const began = performance.now();
    let before = began;
    if (this.gpu) measure(this.gpu, plan, where, ms);
    else
      for (let i = 0; i < steps; i++) {
        device.runStep(plan, i, where);
        const after = performance.now();
        ms[i] = after - before;
        before = after;
      }
    let watched = this.plans.get(plan);
    if (watched?.known !== known) {
      if (watched) this.gone.push(watched);
      this.plans.set(plan, (watched = { known, runs: [] }));
    }
    const [low, high] = known.range;
    watched!.runs.push({
      at: began - this.begun,
      ms,
      place: high > low ? (known.first - low) / (high - low) : 0,
    });
  }

  /**
   * Stops recording and returns the profile.
   * @throws what `Device.ready` does; it has stopped then, too
   */
  async stop(): Promise<ProfileData> {
    const { device, gpu } = this;
    try {
      await gpu?.ready(); // for runs whose results nothing has read
    } finally {
      this.release();
    }
    const wallMs = performance.now() - this.begun;
    const plans = await Promise.all(
      [...this.gone, ...this.plans.values()].map(async ({ known, runs }) => ({
        name: known.title,
        arena_bytes: known.arenaBytes,
        kernels: known.kernels,
        notes: await notesOf(known),
        runs,
      })),
    );
    return {
      flavour: gpu ? builtFor(gpu) : device.choice.flavour,
      threads: device.choice.threads,
      wallMs,
      limits: plans.length && !gpu ? await limits(device) : {},
      plans,
    };
  }

  /** Stops recording without a result. */
  release(): void {
    if (this.device.watcher === this) this.device.watcher = undefined;
  }
}

/** Parses the package's notes on a plan; null if there are none that match it. */
async function notesOf({ notes, title, kernels }: PlanInfo): Promise<Notes | null> {
  if (!notes) return null;
  try {
    const { names, plans } = JSON.parse(await inflated(notes)) as {
      names: string[];
      plans: Record<
        string,
        {
          node: number[];
          op: number[];
          operations: (number | number[])[];
          bytes: (number | number[])[];
          in_use: number[];
          integer: number[];
        }
      >;
    };
    const found = plans[title];
    const texts = (of: number[]) => of.map((i) => String(names[i]));
    const pairs = (of: (number | number[])[]) =>
      of.map((x): [number, number] =>
        typeof x === "number" ? [x, x] : [Number(x[0]), Number(x[1])],
      );
    if (
      !found ||
      [found.node, found.op, found.operations, found.bytes, found.in_use, found.integer].some(
        (list) => list.length !== kernels.length,
      )
    )
      return null;
    return {
      node: texts(found.node),
      op: texts(found.op),
      operations: pairs(found.operations),
      bytes: pairs(found.bytes),
      in_use: found.in_use.map(Number),
      integer: found.integer.map(Boolean),
    };
  } catch {
    return null; // a profile without names is better than none
  }
}

const MAX_NOTES = 64 << 20; // limit of the decompressed size, in bytes

async function inflated(bytes: Uint8Array): Promise<string> {
  const { readable, writable } = new DecompressionStream("deflate");
  const writer = writable.getWriter();
  // errors are reported by the reader
  void writer.write(bytes as Uint8Array<ArrayBuffer>).catch(() => undefined);
  void writer.close().catch(() => undefined);
  const reader = readable.getReader();
  const decoder = new TextDecoder();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return text + decoder.decode();
    text += decoder.decode(value, { stream: true });
    if (text.length > MAX_NOTES) throw new RangeError("the notes are too long");
  }
}

const MEASURE_MS = 30; // per limit
const measured = new Map<string, Limits>();

/** Measures the limits of such a device in a separate one, so that its memory is freed. */
async function limits({ choice, options }: Device): Promise<Limits> {
  const key = `${choice.flavour} ${choice.threads}`;
  let found = measured.get(key);
  if (found) return found;
  found = {};
  let device: Device | undefined;
  try {
    device = await openDevice({ ...options, flavour: choice.flavour, threads: choice.threads });
    for (const name of ["float32", "int8", "memory"] as const)
      found[name] = reached(device, ...LIMITS[name]);
    measured.set(key, found);
  } catch {
    // a profile without some of its limits is better than none
  }
  device?.close();
  return found;
}

/**
 * Rate of the plan's last step in 10^9 operations or bytes per second; undefined if the device
 * lacks the kernel or the memory.
 */
function reached(device: Device, base64: string, work: number): number | undefined {
  const bytes = Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
  const held: Buffer[] = [];
  let plan: PlanHandle | undefined;
  try {
    plan = device.loadPlan(bytes, "limit");
    for (const [slot, { bytes: size }] of slotsOfPlan(bytes)!.entries()) {
      const buffer = device.allocate(size, "a measurement", true);
      held.push(buffer);
      // write every page: untouched pages may share one physical page
      device.fill(buffer, 0x3d);
      device.bind(plan, slot, buffer);
    }
    const last = device.describe(plan).kernels.length - 1;
    const times: number[] = [];
    for (const end = performance.now() + MEASURE_MS; !times.length || performance.now() < end; ) {
      for (let step = 0; step < last; step++) device.runStep(plan, step, "limit"); // packs operands
      const begin = performance.now();
      device.runStep(plan, last, "limit");
      times.push(Math.max(performance.now() - begin, 0.005)); // resolution of the clock
    }
    // the fastest eighth, since clocks may jump
    return work / times.sort((a, b) => a - b)[times.length >> 3]! / 1e6;
  } catch {
    return undefined;
  } finally {
    for (const buffer of held) device.release(buffer);
    if (plan !== undefined) device.freePlan(plan);
  }
}
