// A part of a program: nodes that Python compiled together, with a plan for each set of shapes (and
// of numbers that shapes depend on) that has come lately. A run with shapes that are known costs
// comparisons, the binding of what lies elsewhere than last time, and the kernels.

import type { Engine } from "../../device/wasm/engine.ts";
import { UnsupportedOp } from "../../shared/errors.ts";
import { MAX_SHAPE_NUMBERS } from "../../gen/session.ts";
import type { InferencePlan } from "./manifest.ts";
import type { Pool } from "./memory.ts";
import type { PartUnit } from "./program.ts";
import { NumberTensor, release, sameDims, type RunValue } from "./values.ts";
import type { Plan } from "../../device/wasm/plan-header.ts";

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
  /** Slots that are bound in each run: what lies there, and the address that is bound now. */
  readonly inputs: {
    name: string;
    index: number;
    slot: number;
    bytes: number;
    bound: number;
    where: string;
  }[];
  readonly outputs: {
    names: { name: string; dtype: string; shape: number[] }[];
    slot: number;
    bytes: number;
    bound: number;
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

/** Brings a tensor into engine memory, where it is not there yet. */
export type Place = (v: NumberTensor, where?: string) => number;

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
  find(unit: PartUnit, values: readonly RunValue[], engine: Engine): LoadedPlan | undefined {
    for (let i = 0; i < this.variants.length; i++) {
      const v = this.variants[i]!;
      if (!this.fits(v, unit, values, engine)) continue;
      if (i) this.variants.unshift(...this.variants.splice(i, 1));
      return v.loaded;
    }
    return undefined;
  }

  private fits(
    { types, dims, known }: Variant,
    { needs }: PartUnit,
    values: readonly RunValue[],
    engine: Engine,
  ): boolean {
    if (known.length !== needs.length) return false;
    for (let i = 0; i < types.length; i++) {
      const v = values[i]!;
      if (v.kind !== "tensor" || v.type !== types[i] || !sameDims(v.dims, dims[i]!)) return false;
    }
    for (const { index, bytes } of known) {
      if (!needs.includes(index)) return false;
      const given = (values[index] as NumberTensor).read(engine);
      for (let i = 0; i < bytes.length; i++) if (given[i] !== bytes[i]) return false;
    }
    return true;
  }
}

/** Bytes of the inputs that shapes depend on. @throws UnsupportedOp: they are too many */
export function shapeBytes(
  unit: PartUnit,
  values: readonly RunValue[],
  engine: Engine,
): Map<string, Uint8Array<ArrayBuffer>> {
  return new Map(
    unit.needs.map((i) => {
      const v = values[i]!;
      if (v.kind !== "tensor") return [unit.inputs[i]!, new Uint8Array(0)];
      if (v.count > MAX_SHAPE_NUMBERS)
        throw new UnsupportedOp(
          `a shape depends on its ${v.count} numbers`,
          `value '${unit.inputs[i]!}'`,
          "Check what is fed; if it is right, report this model.",
        );
      return [unit.inputs[i]!, v.read(engine).slice()];
    }),
  );
}

/** Runs a plan; `set` gets its outputs, one reference each. */
export function runPlan(
  engine: Engine,
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
    const address = place(tensor, input.where);
    const { room } = tensor;
    if (input.bound !== address || room < input.bytes) {
      // refuses memory below the slot's size
      engine.bind(plan, input.slot, address, room, loaded.where);
      input.bound = address;
    }
  }
  for (const output of loaded.outputs) {
    const block = pool.take(output.bytes, output.where);
    if (output.bound !== block.address) {
      engine.bind(plan, output.slot, block.address, output.bytes, loaded.where);
      output.bound = block.address;
    }
    const { names } = output;
    for (let i = 0; i < names.length; i++) {
      const { name, dtype, shape } = names[i]!;
      if (i) block.retain();
      set(name, new NumberTensor(dtype, shape, undefined, block.address, block));
    }
  }
  engine.run(plan, loaded.where);
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
        bound: 0,
        where: `value '${name}'`,
      });
    if (kind === "output")
      outs.push({
        names: [...info.outputs]
          .filter(([, o]) => o.slot === name)
          .map(([n, { dtype, shape }]) => ({ name: n, dtype, shape })),
        slot,
        bytes,
        bound: 0,
        where: `value '${name}'`,
      });
  });
  return { inputs: ins, outputs: outs };
}
