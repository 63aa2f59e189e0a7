// Which shaders run a step. The twin of the first half of python/edgewise/webgpu/wgsl.py.

import {
  COMMON,
  type KernelShaders,
  PART_OF,
  SHADERS,
  type ShaderSource,
  type Values,
} from "../../gen/shaders.ts";
import type { Device } from "../device.ts";
import { classOf, type Machine } from "./accessors.ts";
import { elementType, follows, mode, type PlanStep, valuesOf } from "./steps.ts";

/** Workgroups in the first dimension of a grid, all that WebGPU promises. */
export const FOLD = 65535;

/** Workgroups in two dimensions. */
export type Grid = [across: number, down: number];

/** Declarations by name. */
export type Parts = ReadonlyMap<string, string>;

/** A shader of a kernel; `parts`: its own functions, `all`: these and the common ones. */
export interface Variant extends ShaderSource {
  parts: Parts;
  all: Parts;
}

/** The declarations of a WGSL text without comments. */
export function partsOf(text: string): Parts {
  const out = new Map<string, string>();
  for (const declaration of text.split(/\n(?=(?:fn|var|const|struct|alias)\b)/)) {
    const found = /^\s*(?:fn|var(?:<\w+>)?|const|struct|alias)\s+(\w+)/.exec(declaration);
    if (found) out.set(found[1]!, declaration.trim());
  }
  return out;
}

let common: Parts | undefined;
const known = new Map<string, readonly Variant[]>();

/** The shaders of a kernel, special ones first; none where it has none. */
export function variantsOf(kernel: string): readonly Variant[] {
  let found = known.get(kernel);
  if (!found) {
    const shared = (common ??= partsOf(COMMON));
    found = (SHADERS[kernel]?.shaders ?? []).flatMap(formsOf).map((source) => {
      const parts = partsOf(source.body);
      return { ...source, parts, all: new Map([...shared, ...parts]) };
    });
    known.set(kernel, found);
  }
  return found;
}

/**
 * A shader, behind the form in which an invocation does the work of a workgroup, without barriers,
 * where it has that; the Python module says why.
 */
function formsOf(source: ShaderSource): ShaderSource[] {
  const { name, alone, body } = source;
  if (!alone) return [source];
  // in a built page no space follows a comma
  const text = body.replace(/\w+_of_lanes\(lane, ?/g, "(").replaceAll("GROUP", "1u");
  const own = `${text}\nfn element(i: u32) { run(i, 0u); }`;
  return [{ ...source, name: `${name}.alone`, threads: true, when: alone, body: own }, source];
}

/** Workgroups of a step. */
export function countOf({ count, threads, group }: Variant, values: Values): number {
  return threads ? Math.ceil(count(values) / group) : count(values);
}

/** A number of workgroups in two dimensions. */
export const folded = (count: number): Grid =>
  count <= FOLD ? [count, 1] : [FOLD, Math.ceil(count / FOLD)];

/**
 * The shaders that run a step, one after the other; none where the kernel has none for these
 * parameters and types.
 * @param largest the highest values of the plan's registers
 */
export function stagesOf(step: PlanStep, largest: readonly number[]): Variant[] {
  const { contract } = step;
  if (!contract) return [];
  const values = valuesOf(step, largest);
  for (const [i, { name }] of contract.operands.entries())
    if (step.operands[i] && name !== "scratch" && !classOf(...elementType(step, i))) return [];
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
  const last = fit.find(({ name }) => !before.includes(name));
  return last ? [...fit.filter(({ name }) => before.includes(name)), last] : [];
}

/** How far two elements that a step takes are apart; 0: it takes them one by one. */
export const apartOf = (step: PlanStep, largest: readonly number[]): number =>
  stagesOf(step, largest)[0]!.apart?.(valuesOf(step, largest)) ?? 0;

/**
 * Whether arrays that follow registers are only indexed by constants: they are values of functions
 * then, and not every compiler of WGSL indexes those by variables.
 */
function isFixed({ body }: Variant, { params }: PlanStep): boolean {
  return ![...params].some(
    ([name, value]) => follows(value) && new RegExp(`\\b${name}\\[(?!\\d)`).test(body),
  );
}

/** Whether operands that are read as words begin with one. */
function isAligned({ body }: Variant, { contract, operands }: PlanStep): boolean {
  return contract!.operands.every(({ name }, i) => {
    const v = operands[i];
    return !v || !body.includes(`${name}_word(`) || (v.offset % 4 === 0 && v.scale % 4 === 0);
  });
}

/** Names in the body, and the functions that they stand for. */
export function appliedOf({ apply }: Variant, step: PlanStep): Map<string, string> {
  return new Map(
    apply.map(([name, pattern]) => [
      name,
      pattern.replace(/\{(\w+)\}/g, (_, parameter: string) => named(step, parameter)),
    ]),
  );
}

/** What stands for a parameter in the name of a function: the item of an enum, or a class. */
function named({ contract, params }: PlanStep, parameter: string): string {
  const code = params.get(parameter);
  const items = contract!.enums[parameter]?.split(" ");
  if (items && typeof code === "number") return items[code]!;
  if (parameter.includes("type") && typeof code === "number") return classOf(code, 0) ?? "";
  return String(code);
}

// Shaders that language models do not run are scripts of their own, loaded for the first plan with
// a kernel of theirs.

type Part = (typeof PART_OF)[string] | "serial";
type Loaded = Promise<{
  PART: Readonly<Record<string, KernelShaders>>;
  machineOf?(wasm: Device): Promise<Machine>;
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
  machine: Machine,
  software: boolean,
): Part[] {
  const parts = new Set<Part>(software && !mode.serial ? ["serial"] : []);
  for (const kernel of kernels) {
    const part = PART_OF[kernel];
    if (part && (!SHADERS[kernel] || (part === "bytes" && !machine.PANEL))) parts.add(part);
  }
  return [...parts];
}

/**
 * Loads parts.
 * @throws EngineError if a script does not come
 */
export async function loadParts(
  parts: readonly Part[],
  { machine, wasm }: { machine: Machine; wasm: Device },
): Promise<void> {
  for (const { PART, machineOf } of await Promise.all(parts.map((part) => LOAD[part]()))) {
    Object.assign(machine, await machineOf?.(wasm));
    Object.assign(SHADERS, PART);
  }
  if (parts.includes("serial")) {
    mode.serial = true;
    known.clear();
  }
}
