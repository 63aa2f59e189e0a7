// A part of a program: nodes that were compiled together, with a plan for each set of shapes (and
// of shape-determining values) seen recently. A run with known shapes costs comparisons, the
// binding of buffers that changed, and the kernels.

import type { Buffer, Device, PlanHandle } from "../../device/device.ts";
import { MAX_SHAPE_NUMBERS } from "../../gen/session.ts";
import { UnsupportedOp } from "../../shared/errors.ts";
import type { InferencePlan } from "./manifest.ts";
import type { Pool, PoolBlock } from "./memory.ts";
import type { Beyond, PartUnit } from "./program.ts";
import { type Dim, dimAt, dimsAt, isLength, ruleAt } from "./registers.ts";
import { NumberTensor, type RunValue, release } from "./values.ts";

/** Maximum number of plans of a part; the least recently used are dropped. */
export const MAX_PLANS = 16;

/** A loaded plan. `plan` is undefined if all outputs are inputs or constants. */
export interface LoadedPlan {
  readonly info: InferencePlan;
  readonly plan: PlanHandle | undefined;
  readonly where: string;
  /** Whether it has loops. */
  readonly loops: boolean;
  /** Slots that are bound in each run, with the buffers currently bound. */
  readonly inputs: {
    name: string;
    index: number;
    slot: number;
    bytes: number;
    bound: Buffer | undefined;
    where: string;
  }[];
  readonly outputs: {
    names: { name: string; dtype: string; shape: Dim[] }[];
    slot: number;
    bytes: number;
    bound: Buffer | undefined;
    where: string;
  }[];
  /**
   * The input dimension whose size is the register, or `scale` times it, for each register;
   * undefined for one that follows from others. Empty if shapes are fixed.
   */
  readonly follows: ({ index: number; axis: number; scale: number } | undefined)[];
  /** Outputs that were computed at compile time. */
  readonly numbers: { name: string; value: NumberTensor }[];
}

/** A plan with the shapes that it is for. */
interface Variant {
  types: string[];
  dims: (readonly Dim[])[];
  known: { index: number; bytes: Uint8Array }[];
  loaded: LoadedPlan;
}

/** Copies a tensor to the device, if it is not there, and returns its buffer. */
export type Upload = (v: NumberTensor, where?: string) => Buffer;

/** The plans of a part. */
export class Part {
  /** Most recently used first. */
  private readonly variants: Variant[] = [];

  /** Adds a plan at the front. Returns plans that were dropped, which the caller must free. */
  add(inputs: readonly string[], loaded: LoadedPlan): LoadedPlan[] {
    const { info } = loaded;
    const replaced = info.register ? this.variants.filter((v) => sameRange(v, info, inputs)) : [];
    for (const v of replaced) this.variants.splice(this.variants.indexOf(v), 1);
    this.variants.unshift({
      types: inputs.map((n) => info.inputs.get(n)!.dtype),
      dims: inputs.map((n) => info.inputs.get(n)!.shape),
      known: Array.from(info.known, ([n, bytes]) => ({ index: inputs.indexOf(n), bytes })),
      loaded,
    });
    return [...replaced, ...this.variants.splice(MAX_PLANS)].map((v) => v.loaded);
  }

  /** The plans, least recently used first. */
  get plans(): LoadedPlan[] {
    return this.variants.map((v) => v.loaded).reverse();
  }

  /** Makes a plan the most recently used one. Returns false if it has been dropped. */
  use(loaded: LoadedPlan): boolean {
    const i = this.variants.findIndex((v) => v.loaded === loaded);
    if (i > 0) this.variants.unshift(...this.variants.splice(i, 1));
    return i >= 0;
  }

  /** The plan for these values, if there is one. */
  find(unit: PartUnit, values: readonly RunValue[], known: KnownBytes): LoadedPlan | undefined {
    for (let i = 0; i < this.variants.length; i++) {
      const v = this.variants[i]!;
      if (!fits(v, unit, values, known)) continue;
      if (i) this.variants.unshift(...this.variants.splice(i, 1));
      return v.loaded;
    }
    return undefined;
  }
}

/** Contents of the inputs that shapes depend on, by index. */
export type KnownBytes = ReadonlyMap<number, Uint8Array>;

export const NOTHING_KNOWN: KnownBytes = new Map();

/** Reads the inputs that shapes depend on. */
export async function knownBytes(
  unit: PartUnit,
  values: readonly RunValue[],
  device: Device,
): Promise<KnownBytes> {
  const known = new Map<number, Uint8Array>();
  for (const i of unit.needs) {
    const v = values[i]!;
    // larger inputs are rejected when a plan is compiled
    if (v.kind === "tensor" && v.count <= MAX_SHAPE_NUMBERS)
      known.set(i, asKnown(unit, i, await v.read(device), values));
  }
  return known;
}

/** What a plan knows of input i: its bytes, or its growth beyond a dimension in the same type. */
export function asKnown(
  unit: PartUnit,
  i: number,
  bytes: Uint8Array,
  values: readonly RunValue[],
): Uint8Array {
  const beyond = unit.beyond.find(([input]) => input === i);
  if (!beyond || (bytes.length !== 4 && bytes.length !== 8)) return bytes;
  const [, other, axis] = beyond;
  const v = values[other]!;
  const rows = (v.kind === "tensor" && v.dims[axis]) || 0;
  const given = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const out = new DataView(new ArrayBuffer(bytes.length));
  if (bytes.length === 4) out.setInt32(0, Math.max(given.getInt32(0, true) - rows, 0), true);
  else {
    const growth = given.getBigInt64(0, true) - BigInt(rows);
    out.setBigInt64(0, growth > 0n ? growth : 0n, true);
  }
  return new Uint8Array(out.buffer);
}

function fits(
  { types, dims, known, loaded }: Variant,
  { needs, beyond }: PartUnit,
  values: readonly RunValue[],
  given: KnownBytes,
): boolean {
  if (known.length !== needs.length || !sameBeyond(beyond, loaded.info.beyond)) return false;
  const registers = registersOf(loaded, values);
  if (!registers) return false;
  for (let i = 0; i < types.length; i++) {
    const v = values[i]!;
    if (v.kind !== "tensor" || v.type !== types[i] || !fitsDims(v.dims, dims[i]!, registers))
      return false;
  }
  for (const { index, bytes } of known) {
    const here = given.get(index);
    if (!here) return false;
    for (let i = 0; i < bytes.length; i++) if (here[i] !== bytes[i]) return false;
  }
  return true;
}

/** Whether the numbers that plans know mean the same. */
function sameBeyond(a: readonly Beyond[], b: readonly Beyond[]): boolean {
  return a.length === b.length && a.every((one, i) => one.every((x, k) => x === b[i]![k]));
}

/** Whether a shape equals that of a plan at values of its registers. */
function fitsDims(dims: readonly number[], of: readonly Dim[], registers: number[]): boolean {
  if (dims.length !== of.length) return false;
  for (let i = 0; i < of.length; i++) if (dims[i] !== dimAt(of[i]!, registers)) return false;
  return true;
}

/** Whether a plan has the same shapes and values, for a part of the range of the register. */
function sameRange(v: Variant, info: InferencePlan, inputs: readonly string[]): boolean {
  const text = (dims: readonly (readonly Dim[])[]) => JSON.stringify(dims);
  return (
    v.loaded.info.register !== undefined &&
    v.loaded.info.register[0] >= info.register![0] &&
    v.loaded.info.register[1] <= info.register![1] &&
    JSON.stringify(v.loaded.info.registers) === JSON.stringify(info.registers) &&
    sameBeyond(v.loaded.info.beyond, info.beyond) &&
    text(v.dims) === text(inputs.map((n) => info.inputs.get(n)!.shape)) &&
    inputs.every((n, i) => v.types[i] === info.inputs.get(n)!.dtype) &&
    v.known.length === info.known.size &&
    v.known.every(
      ({ index, bytes }) => String(bytes) === String(info.known.get(inputs[index]!) ?? ""),
    )
  );
}

/** The values of the registers for these inputs; undefined if one is out of range. */
export function registersOf(
  { info: { register, registers }, follows }: LoadedPlan,
  values: readonly RunValue[],
): number[] | undefined {
  const found: number[] = [];
  if (!register) return found;
  for (const [k, place] of follows.entries()) {
    const entry = k ? registers[k - 1]! : register;
    if (entry.length === 7) {
      found.push(ruleAt(entry, found));
      continue;
    }
    const v = place && values[place.index]!;
    const length = v?.kind === "tensor" ? v.dims[place!.axis] : undefined;
    if (length === undefined) return undefined;
    const value = length / place!.scale;
    if (!Number.isInteger(value) || value < entry[0] || value > entry[1]) return undefined;
    found.push(value);
  }
  return found;
}

/**
 * Reads the inputs that shapes depend on.
 * @throws UnsupportedOp if they have too many elements
 */
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

/** Binds a buffer to a slot, where another one is bound. The engine checks its size. */
export function bindTo(
  device: Device,
  { plan, where }: LoadedPlan,
  place: { readonly slot: number; bound: Buffer | undefined },
  buffer: Buffer,
): void {
  if (place.bound === buffer) return;
  device.bind(plan!, place.slot, buffer, where);
  place.bound = buffer;
}

/**
 * Runs a plan. `set` receives its outputs, one reference each.
 * @param loop runs plans with loops; then the result is a promise
 */
export function runPlan(
  device: Device,
  pool: Pool,
  loaded: LoadedPlan,
  unit: PartUnit,
  values: readonly RunValue[],
  place: Upload,
  seed: () => NumberTensor,
  set: (name: string, v: RunValue) => void,
  loop: (plan: PlanHandle, where: string) => Promise<void>,
): Promise<void> | undefined {
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
  if (plan === undefined) return undefined;
  let drawn: NumberTensor | undefined;
  const registers = registersOf(loaded, values) ?? [];
  for (const [k, place] of loaded.follows.entries())
    if (place) device.register(plan, k, registers[k]!);
  const moved: PoolBlock[] = [];
  for (const input of loaded.inputs) {
    const tensor = input.index < 0 ? (drawn = seed()) : (values[input.index] as NumberTensor);
    let buffer = place(tensor, input.where);
    if (loaded.follows.length && buffer.bytes < input.bytes) {
      // the buffer is too small for the largest length
      const block = pool.take(input.bytes, input.where);
      moved.push(block);
      device.copy(buffer, block.buffer, tensor.bytes);
      buffer = block.buffer;
    }
    bindTo(device, loaded, input, buffer);
  }
  for (const output of loaded.outputs) {
    const block = pool.take(output.bytes, output.where);
    bindTo(device, loaded, output, block.buffer);
    const { names } = output;
    for (let i = 0; i < names.length; i++) {
      const { name, dtype, shape } = names[i]!;
      if (i) block.retain();
      set(name, new NumberTensor(dtype, dimsAt(shape, registers), undefined, block.buffer, block));
    }
  }
  const done = () => {
    if (drawn) release(drawn);
    for (const block of moved) block.release();
  };
  if (loaded.loops) return loop(plan, loaded.where).then(done);
  device.run(plan, loaded.where);
  done();
  return undefined;
}

/** The meaning of a plan's slots. */
export function slotsOf(
  info: InferencePlan,
  inputs: readonly string[],
): Pick<LoadedPlan, "inputs" | "outputs" | "follows"> {
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
  const follows: LoadedPlan["follows"] = [];
  for (let k = 0; info.register && k <= info.registers.length; k++) {
    const axes = inputs.map((n) => info.inputs.get(n)!.shape.findIndex((d) => isLength(d, k)));
    const index = axes.findIndex((axis) => axis >= 0);
    const axis = axes[index]!;
    const dim = index < 0 ? 1 : info.inputs.get(inputs[index]!)!.shape[axis]!;
    const scale = typeof dim === "number" ? 1 : dim[0];
    follows.push(index < 0 ? undefined : { index, axis, scale });
  }
  return { inputs: ins, outputs: outs, follows };
}
