// Prints the WGSL programs of plans as JSON, for tests/gpu/test_programs.py. Reads from standard
// input: `plans`, of whose steps each is printed alone; `loaded`, whose steps are grouped as a
// device does it, with what C says that they touch; `damaged` plans in the place of the first of
// these, of which it says whether they are refused; and `numbers`. `serial` are the programs of
// `plans` for GPUs in software.

import { readFileSync } from "node:fs";
import type { Device, PlanHandle } from "../../src/device/device.ts";
import type { ResolvedStep } from "../../src/device/wasm/resolve.ts";
import type { GpuContext } from "../../src/device/webgpu/context.ts";
import { PART } from "../../src/device/webgpu/parts/bytes.ts";
import { GpuPlan } from "../../src/device/webgpu/plan.ts";
import { linked, partsOf } from "../../src/device/webgpu/steps.ts";
import { inSubgroups } from "../../src/device/webgpu/subgroups.ts";
import { loadParts, shaderOf, stagesOf } from "../../src/device/webgpu/variants.ts";
import { SHADERS } from "../../src/gen/shaders.ts";
import { arrange } from "../../src/logic/gpu/arrange.ts";
import { decimal, declarations } from "../../src/logic/gpu/link.ts";
import { program_of } from "../../src/logic/gpu/wgsl.ts";

/** A plan, the kinds of its slots, and [buffer, begin, end] of the operands of its steps. */
interface Loaded {
  plan: string;
  kinds: string[];
  resolved: ([buffer: number, begin: number, end: number] | null)[][];
}

const { plans, loaded, damaged, numbers } = JSON.parse(readFileSync(0, "utf8")) as {
  plans: string[];
  loaded: Loaded[];
  damaged: string[];
  numbers: number[];
};
Object.assign(SHADERS, PART);
const machine = declarations(32, 4, true);
const none = { machine: new Map<string, string>(), wasm: undefined as unknown as Device };
await loadParts(["images", "training"], none);
const bytesOf = (base64: string): Uint8Array => Buffer.from(base64, "base64");

const print = (plan: string): unknown => {
  const { steps, registers } = partsOf(bytesOf(plan));
  const largest = registers.map(([, high]) => high);
  return steps.map((step, i) => {
    const spans = step.operands.map((v) =>
      v && v.buffer > 0 ? { number: v.buffer, begin: 0, end: 1 << 20, zero: v.offset } : null,
    );
    return stagesOf(step, largest).map((variant) => {
      const { roles, bindings, ranges, offsets } = arrange([linked(step)], [spans]);
      const { text } = program_of(
        linked(step),
        shaderOf(variant, step),
        roles[0]!,
        bindings,
        i % 2 === 1,
        null,
        machine,
      );
      return [inSubgroups(text), ranges, offsets[0]];
    });
  });
};
const printed = plans.map(print);

/** A plan on a GPU that compiles nothing. */
class Printed extends GpuPlan {
  override resolve(first: number, count: number): ResolvedStep[] {
    const steps = loaded[this.handle]!.resolved.slice(first, first + count);
    return steps.map(
      (step) =>
        ({
          operands: step.map((v) => v && { buffer: v[0], begin: v[1], end: v[2] }),
        }) as unknown as ResolvedStep,
    );
  }
}

const device = {
  gpu: {
    bindings: 10,
    bindingBytes: 2 ** 27,
    buffer: (size: number) => ({ size }),
    write: () => undefined,
    free: () => undefined,
  },
  machine,
  pipelines: { get: () => ({ made: Promise.resolve() }) },
  texts: new Map(),
  refused: new Map(),
} as unknown as GpuContext;
const grouped = loaded.map(({ plan, kinds }, i) => {
  const one = new Printed(device, i as PlanHandle, bytesOf(plan), kinds, "");
  return one.launches.flatMap((launch) =>
    launch
      ? [[launch.index, launch.steps.length, launch.programs.map(({ text }) => inSubgroups(text))]]
      : [],
  );
});
const refused = damaged.map((plan) => {
  try {
    new Printed(device, 0 as PlanHandle, bytesOf(plan), loaded[0]!.kinds, "");
    return "";
  } catch (e) {
    return String(e);
  }
});
await loadParts(["serial"], none);
const serial = plans.map(print);
process.stdout.write(
  JSON.stringify({ printed, serial, grouped, refused, numbers: numbers.map(decimal) }),
);
