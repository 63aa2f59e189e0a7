// Which shaders run a step, and how much a GPU is given at once, by logic/gpu/variants.py.

import { BUFFERS } from "../../gen/plan_format.ts";
import {
  COMMON,
  type KernelShaders,
  PART_OF,
  SHADERS,
  type ShaderSource,
  type Values,
} from "../../gen/shaders.ts";
import { class_of } from "../../logic/gpu/accessors.ts";
import { declarations } from "../../logic/gpu/link.ts";
import { follows, type Shader } from "../../logic/gpu/steps.ts";
import {
  alone,
  applied,
  is_aligned,
  is_fixed,
  parts_of,
  staged,
  excess as tooMuch,
} from "../../logic/gpu/variants.ts";
import type { Device } from "../device.ts";
import type { ResolvedStep } from "../wasm/resolve.ts";
import { elementType, mode, type Packing, type PlanStep, valuesOf } from "./steps.ts";

/** Workgroups in two dimensions. */
export type Grid = [across: number, down: number];

/** Declarations by name. */
export type Parts = Map<string, string>;

/** A shader of a kernel; `parts`: its own functions, `all`: these and the common ones. */
export interface Variant extends ShaderSource {
  parts: Parts;
  all: Parts;
}

let common: Parts | undefined;
const known = new Map<string, readonly Variant[]>();

/** The shaders of a kernel, special ones first; none where it has none. */
export function variantsOf(kernel: string): readonly Variant[] {
  let found = known.get(kernel);
  if (!found) {
    const shared = (common ??= parts_of(COMMON));
    found = (SHADERS[kernel]?.shaders ?? []).flatMap(formsOf).map((source) => {
      const parts = parts_of(source.body);
      return { ...source, parts, all: new Map([...shared, ...parts]) };
    });
    known.set(kernel, found);
  }
  return found;
}

/**
 * The forms of a shader, in order of preference: the barrier-free form (one invocation does the
 * work of a workgroup), if it has one, then the shader.
 */
function formsOf(source: ShaderSource): ShaderSource[] {
  const { name, alone: when, body } = source;
  if (!when) return [source];
  return [{ ...source, name: `${name}.alone`, threads: true, when, body: alone(body) }, source];
}

/** Workgroups of a step. */
export function countOf({ count, threads, group }: Variant, values: Values): number {
  return threads ? Math.ceil(count(values) / group) : count(values);
}

/**
 * The shaders that run a step, one after the other; none where the kernel has none for these
 * parameters and types.
 * @param largest the highest values of the plan's registers
 */
export const stagesOf = (step: PlanStep, largest: readonly number[]): readonly Variant[] =>
  (step.memo.stages ??= findStages(step, largest)) as readonly Variant[];

function findStages(step: PlanStep, largest: readonly number[]): Variant[] {
  const { contract } = step;
  if (!contract) return [];
  const values = valuesOf(step, largest);
  for (const [i, { name }] of contract.operands.entries())
    if (step.operands[i] && name !== "scratch" && !class_of(...elementType(step, i))) return [];
  const variants = variantsOf(step.kernel);
  const fit = variants.filter(
    (variant) =>
      !variant.computes &&
      (variant.when?.(values) ?? true) &&
      [...appliedOf(variant, step).values()].every((name) => variant.all.has(name)) &&
      isAligned(variant, step) &&
      isFixed(variant, step),
  );
  const before = variants.flatMap(({ stages }) => stages.map((name) => `${step.kernel}.${name}`));
  const names = fit.map(({ name }) => name);
  return staged(names, before).map((i) => fit[i]!);
}

/** How far two elements that a step takes are apart; 0: it takes them one by one. */
export const apartOf = (step: PlanStep, largest: readonly number[]): number =>
  stagesOf(step, largest)[0]!.apart?.(valuesOf(step, largest)) ?? 0;

/** Whether arrays that follow registers are only indexed by constants. */
function isFixed({ body }: Variant, { params }: PlanStep): boolean {
  return is_fixed(
    body,
    [...params].filter(([, value]) => follows(value)).map(([name]) => name),
  );
}

/** Whether operands that are read as words begin with one. */
function isAligned({ body }: Variant, { contract, operands }: PlanStep): boolean {
  const places = contract!.operands.flatMap(({ name }, i) => {
    const v = operands[i];
    return v ? [{ name, offset: v.offset, scale: v.scale }] : [];
  });
  return is_aligned(body, places);
}

/** Names in the body, and the functions that they stand for. */
export function appliedOf({ apply }: Variant, step: PlanStep): Map<string, string> {
  return applied(
    apply.map(([name, text]): [string, string] => [name, text]),
    (parameter) => named(step, parameter),
  );
}

/** A shader as the programs of a step have it. */
export function shaderOf(variant: Variant, step: PlanStep): Shader {
  return {
    group: variant.group,
    element: variant.parts.has("element"),
    total: variant.text(Object.fromEntries(step.params)),
    applied: appliedOf(variant, step),
    parts: variant.parts,
    shared: (common ??= parts_of(COMMON)),
    before: variant.before?.[0] ?? "",
    after: variant.after?.[0] ?? "",
    takes: variant.takes?.[0] ?? "",
    joins: variant.joins ?? "",
    paired: variant.apart !== undefined,
  };
}

/** What stands for a parameter in the name of a function: the item of an enum, or a class. */
function named({ contract, params }: PlanStep, parameter: string): string {
  const code = params.get(parameter);
  const items = contract!.enums[parameter]?.split(" ");
  if (items && typeof code === "number") return items[code]!;
  if (parameter.includes("type") && typeof code === "number") return class_of(code, 0);
  return String(code);
}

// Shaders that language models do not run are scripts of their own, loaded for the first plan with
// a kernel of theirs.

type Part = (typeof PART_OF)[string] | "serial";
type Loaded = Promise<{
  PART: Readonly<Record<string, KernelShaders>>;
  machineOf?(wasm: Device): Promise<Packing>;
}>;

const LOAD: Readonly<Record<Part, () => Loaded>> = {
  bytes: () => import("./parts/bytes.ts"),
  serial: () => import("../../gen/shaders_serial.ts"),
  images: () => import("../../gen/shaders_images.ts"),
  training: () => import("../../gen/shaders_training.ts"),
};

/**
 * Parts with shaders of these kernels that have not been loaded, or not for this machine.
 * @param software whether the GPU is one in software
 */
export function missingParts(
  kernels: Iterable<string>,
  machine: ReadonlyMap<string, string>,
  software: boolean,
): Part[] {
  const parts = new Set<Part>(software && !mode.serial ? ["serial"] : []);
  for (const kernel of kernels) {
    const part = PART_OF[kernel];
    if (part && (!SHADERS[kernel] || (part === "bytes" && !machine.has("PANEL")))) parts.add(part);
  }
  return [...parts];
}

/**
 * Loads parts.
 * @throws EngineError if a script does not come
 */
export async function loadParts(
  parts: readonly Part[],
  { machine, wasm }: { machine: Map<string, string>; wasm: Device },
): Promise<void> {
  for (const { PART, machineOf } of await Promise.all(parts.map((part) => LOAD[part]()))) {
    const packing = await machineOf?.(wasm);
    if (packing) for (const [name, text] of declarations(...packing)) machine.set(name, text);
    Object.assign(SHADERS, PART);
  }
  if (parts.includes("serial")) {
    mode.serial = true;
    known.clear();
  }
}

// ---- how much a GPU is given at once

/**
 * The operations of a step: as its contract declares, or else one for each byte that it
 * touches.
 * @param resolved the step with any registers
 * @param slots bytes of the plan's slots
 * @param largest the highest values of the registers
 */
export function operationsOf(
  step: PlanStep,
  resolved: ResolvedStep,
  slots: readonly number[],
  largest: readonly number[],
): number {
  const cost = step.contract?.cost;
  if (cost) return cost(valuesOf(step, largest));
  return resolved.operands.reduce((sum, v) => {
    if (!v) return sum;
    const whole = resolved.registers && v.buffer >= BUFFERS.SLOT0;
    return sum + (whole ? slots[v.buffer - BUFFERS.SLOT0]! : v.end - v.begin);
  }, 0);
}

/**
 * Why steps are too much for a GPU; "" if they are not.
 * @param steps those of the dispatch; each has a shader
 * @param operations of each
 * @param largest the highest values of the registers
 */
export function excess(
  steps: readonly PlanStep[],
  operations: readonly number[],
  largest: readonly number[],
): string {
  const stages = steps.map((step) => stagesOf(step, largest).at(-1)!);
  const groups = stages.map((stage, i) => countOf(stage, valuesOf(steps[i]!, largest)));
  const counts = stages.map(({ group }, i) => groups[i]! * group);
  return tooMuch(operations, counts, steps.length === 1 ? groups[0]! : 1, mode.serial);
}
