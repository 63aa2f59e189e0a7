// A part of a program: nodes that Python compiled together, with a plan for each set of shapes (and
// of numbers that shapes depend on) that has come lately. A run with shapes that are known costs
// comparisons, the binding of what lies elsewhere than last time, and the kernels.

import { UnsupportedOp } from "../../shared/errors.ts";
import { MAX_SHAPE_NUMBERS } from "../../gen/session.ts";
import type { InferencePlan } from "./manifest.ts";
import type { Pool } from "./memory.ts";
import type { PartUnit } from "./program.ts";
import { NumberTensor, release, sameDims, type RunValue } from "./values.ts";
import type { Buffer, Device, Plan } from "../../device/device.ts";

/** Plans that a part has at once: those for the shapes that came lately. */
export const MAX_PLANS = 16;

/**
 * A plan in the engine, or none where nothing is left to compute: its outputs are inputs and
 * numbers.
 */
export interface LoadedPlan {
  readonly info: InferencePlan;
  readonly plan: Plan | undefined;
  readonly where: string;
  /** Slots that are bound in each run, and the memory that they are bound to now. */
  readonly inputs: {
    name: string;
    index: number;
    slot: number;
    bytes: number;
    bound: Buffer | undefined;
    where: string;
  }[];
  readonly outputs: {
    names: { name: string; dtype: string; shape: number[] }[];
    slot: number;
    bytes: number;
    bound: Buffer | undefined;
    where: string;
  }[];
  /** Numbers that binding computed. */
  readonly numbers: { name: string; value: NumberTensor }[];
}

/** A plan with the shapes that it is for. */
interface Variant {
  types: string[];
  dims: (readonly number[])[];
  known: { index: number; bytes: Uint8Array }[];
  loaded: LoadedPlan;
}

/** Copies a tensor to the device where it is not there yet. Returns its memory. */
export type Place = (v: NumberTensor, where?: string) => Buffer;

/** The plans of a part. */
export class Part {
  /** The latest first. */
  private readonly variants: Variant[] = [];

  /**
   * Puts a plan first. The plans that are too many now are given back; who holds them frees them.
   */
  add(inputs: readonly string[], loaded: LoadedPlan): LoadedPlan[] {
    const { info } = loaded;
    this.variants.unshift({
      types: inputs.map((n) => info.inputs.get(n)!.dtype),
      dims: inputs.map((n) => info.inputs.get(n)!.shape),
      known: Array.from(info.known, ([n, bytes]) => ({ index: inputs.indexOf(n), bytes })),
      loaded,
    });
    return this.variants.splice(MAX_PLANS).map((v) => v.loaded);
  }

  /** Its plans, the oldest first. */
  get plans(): LoadedPlan[] {
    return this.variants.map((v) => v.loaded).reverse();
  }

  /** The plan for these values, if there is one. */
  find(
    { needs }: PartUnit,
    values: readonly RunValue[],
    known: KnownBytes,
  ): LoadedPlan | undefined {
    for (let i = 0; i < this.variants.length; i++) {
      const v = this.variants[i]!;
      if (!fits(v, needs, values, known)) continue;
      if (i) this.variants.unshift(...this.variants.splice(i, 1));
      return v.loaded;
    }
    return undefined;
  }
}

/** Bytes of the inputs that shapes depend on, by their numbers. */
export type KnownBytes = ReadonlyMap<number, Uint8Array>;

export const NOTHING_KNOWN: KnownBytes = new Map();

/** Reads the inputs that shapes depend on. */
export async function knownBytes(
  needs: readonly number[],
  values: readonly RunValue[],
  device: Device,
): Promise<KnownBytes> {
  const known = new Map<number, Uint8Array>();
  for (const i of needs) {
    const v = values[i]!;
    // larger ones are refused when a plan is compiled
    if (v.kind === "tensor" && v.count <= MAX_SHAPE_NUMBERS) known.set(i, await v.read(device));
  }
  return known;
}

function fits(
  { types, dims, known }: Variant,
  needs: readonly number[],
  values: readonly RunValue[],
  given: KnownBytes,
): boolean {
  if (known.length !== needs.length) return false;
  for (let i = 0; i < types.length; i++) {
    const v = values[i]!;
    if (v.kind !== "tensor" || v.type !== types[i] || !sameDims(v.dims, dims[i]!)) return false;
  }
  for (const { index, bytes } of known) {
    const here = given.get(index);
    if (!here) return false;
    for (let i = 0; i < bytes.length; i++) if (here[i] !== bytes[i]) return false;
  }
  return true;
}

/** Bytes of the inputs that shapes depend on. @throws UnsupportedOp: they are too many */
export async function shapeBytes(
  unit: PartUnit,
  values: readonly RunValue[],
  device: Device,
): Promise<Map<string, Uint8Array<ArrayBuffer>>> {
  const found = new Map<string, Uint8Array<ArrayBuffer>>();
  for (const i of unit.needs) {
    const v = values[i]!;
    const name = unit.inputs[i]!;
    if (v.kind === "tensor" && v.count > MAX_SHAPE_NUMBERS)
      throw new UnsupportedOp(
        `a shape depends on its ${v.count} numbers`,
        `value '${name}'`,
        "Check what is fed; if it is right, report this model.",
      );
    found.set(name, v.kind === "tensor" ? (await v.read(device)).slice() : new Uint8Array(0));
  }
  return found;
}

/** Runs a plan; `set` gets its outputs, one reference each. */
export function runPlan(
  device: Device,
  pool: Pool,
  loaded: LoadedPlan,
  unit: PartUnit,
  values: readonly RunValue[],
  place: Place,
  seed: () => NumberTensor,
  set: (name: string, v: RunValue) => void,
): void {
  const { plan, info } = loaded;
  for (const [name, source] of info.passed) {
    const v = values[unit.inputs.indexOf(source)]!;
    v.refs++;
    set(name, v);
  }
  for (const { name, value } of loaded.numbers) {
    value.refs++;
    set(name, value);
  }
  if (plan === undefined) return;
  let drawn: NumberTensor | undefined;
  for (const input of loaded.inputs) {
    const tensor = input.index < 0 ? (drawn = seed()) : (values[input.index] as NumberTensor);
    const buffer = place(tensor, input.where);
    if (input.bound !== buffer) {
      // refuses memory below the slot's size
      device.bind(plan, input.slot, buffer, loaded.where);
      input.bound = buffer;
    }
  }
  for (const output of loaded.outputs) {
    const block = pool.take(output.bytes, output.where);
    if (output.bound !== block.buffer) {
      device.bind(plan, output.slot, block.buffer, loaded.where);
      output.bound = block.buffer;
    }
    const { names } = output;
    for (let i = 0; i < names.length; i++) {
      const { name, dtype, shape } = names[i]!;
      if (i) block.retain();
      set(name, new NumberTensor(dtype, shape, undefined, block.buffer, block));
    }
  }
  device.run(plan, loaded.where);
  if (drawn) release(drawn);
}

/** What a plan's slots are for. */
export function slotsOf(
  info: InferencePlan,
  inputs: readonly string[],
): Pick<LoadedPlan, "inputs" | "outputs"> {
  const ins: LoadedPlan["inputs"] = [];
  const outs: LoadedPlan["outputs"] = [];
  info.slots.forEach(({ name, kind, bytes }, slot) => {
    if (kind === "input")
      ins.push({
        name,
        index: name === info.seed ? -1 : inputs.indexOf(name),
        slot,
        bytes,
        bound: undefined,
        where: `value '${name}'`,
      });
    if (kind === "output")
      outs.push({
        names: [...info.outputs]
          .filter(([, o]) => o.slot === name)
          .map(([n, { dtype, shape }]) => ({ name: n, dtype, shape })),
        slot,
        bytes,
        bound: undefined,
        where: `value '${name}'`,
      });
  });
  return { inputs: ins, outputs: outs };
}
