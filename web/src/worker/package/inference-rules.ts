// Rules of plans that run a model of any kind: their registers, inputs and outputs, as
// python/edgewise/compiler/manifest/inference.py has them.

import { MAX_LENGTH, MAX_RANK, MAX_REGISTERS, MAX_SIZE } from "../../gen/manifest.ts";
import type { Inference, InferencePlan, ManifestSlot } from "../../gen/schema.ts";
import { ELEMENT_BITS } from "../../gen/session.ts";
import type { Checker } from "./checker.ts";
import { type Contents, checkPlanFile, checkSlots, product } from "./rules.ts";

/** The lowest and the highest value of a register. */
type Range = readonly [low: number, high: number];
/** Numbers of a register that follows from others. */
const RULE = 7;
/** Fields that only plans of a page's own storage have. */
const OWN = ["part", "known", "beyond", "numbers"] as const;

/** Checks `inference`, the part of a package of task "inference", or one of its `programs`. */
export function checkInference(
  c: Checker,
  inference: Inference,
  at: string,
  contents: Contents,
): void {
  for (const field of ["programs", "overridable"] as const)
    if (inference[field] !== undefined && !contents.own)
      c.fail(`${at}.${field}`, "are only valid in a page's own storage");
  const declared = new Set(inference.inputs.map(({ name }) => name));
  inference.plans.forEach((plan, i) => {
    const path = `${at}.plans[${i}]`;
    checkInferencePlan(c, plan, path, contents);
    for (const name of Object.keys(plan.inputs))
      if (!declared.has(name) && plan.part === undefined)
        c.fail(`${path}.inputs`, `has '${name}', which is not an input of the model`);
  });
}

/** Checks one plan. */
export function checkInferencePlan(
  c: Checker,
  plan: InferencePlan,
  at: string,
  contents: Contents,
): void {
  for (const field of OWN)
    if (plan[field] !== undefined && !contents.own)
      c.fail(`${at}.${field}`, "is only valid in a page's own storage");
  const { file, slots, passed = {} } = plan;
  const outputs = new Map(Object.entries(plan.outputs));
  if (file !== undefined) checkPlanFile(c, file, at, contents);
  else if (plan.part === undefined || slots.length || outputs.size)
    c.fail(`${at}.file`, "is missing");
  checkSlots(c, slots, `${at}.slots`, contents);
  slots.forEach(({ kind }, i) => {
    if (kind === "cache" || kind === "state")
      c.fail(`${at}.slots[${i}]`, `is a ${kind}, which such a plan cannot have`);
  });
  const ranges = checkRegisters(c, plan, at);
  const inputs = checkInputs(c, plan, at, ranges);
  checkInputSlots(c, plan, at, inputs);
  checkOutputs(c, outputs, slots, at, ranges);
  for (const [name, source] of Object.entries(passed)) {
    if (!inputs.has(source))
      c.fail(`${at}.passed['${name}']`, `is '${source}', which is not an input`);
    if (outputs.has(name)) c.fail(`${at}.passed['${name}']`, "is computed as well");
  }
}

/** The ranges of the registers that dimensions of a plan follow; empty where they are fixed. */
function checkRegisters(c: Checker, plan: InferencePlan, at: string): Range[] {
  if (plan.register === undefined) {
    if (plan.registers !== undefined) c.fail(`${at}.registers`, "needs a register");
    return [];
  }
  const found = [checkRange(c, plan.register, `${at}.register`)];
  const { registers = [] } = plan;
  c.list(registers, `${at}.registers`, MAX_REGISTERS).forEach((entry, i) => {
    const path = `${at}.registers[${i}]`;
    const rule = Array.isArray(entry) && entry.length === RULE;
    found.push(rule ? checkRule(c, entry, path, found) : checkRange(c, entry, path));
  });
  return found;
}

function checkRange(c: Checker, value: unknown, path: string): Range {
  const [first, second] = c.tuple(value, path, 2);
  const low = c.integer(first, `${path}[0]`, 0, MAX_LENGTH);
  return [low, c.integer(second, `${path}[1]`, low, MAX_LENGTH)];
}

/** A register that follows from others, for the lowest and the highest values of those. */
function checkRule(
  c: Checker,
  entry: readonly unknown[],
  path: string,
  before: readonly Range[],
): Range {
  const last = before.length - 1;
  const least = [0, 0, 0, 0, 0, -MAX_LENGTH, 1];
  const [a, b, product, ofA, ofB, add, divisor] = entry.map((x, i) =>
    c.integer(x, `${path}[${i}]`, least[i]!, i < 2 ? last : MAX_LENGTH),
  ) as [number, number, number, number, number, number, number];
  const at = (end: 0 | 1) => {
    const [x, y] = [before[a]![end], before[b]![end]];
    return Math.floor((product * x * y + ofA * x + ofB * y + add) / divisor);
  };
  const [low, high] = [at(0), at(1)];
  if (low < 0 || high > MAX_SIZE) c.fail(path, "has values out of range");
  return [low, high];
}

/** The largest shape of each input. */
function checkInputs(
  c: Checker,
  plan: InferencePlan,
  at: string,
  ranges: readonly Range[],
): Map<string, number[]> {
  const inputs = new Map<string, number[]>();
  const lengths = new Set<number>(); // registers that are the size of a dimension
  for (const [name, [, dims]] of Object.entries(plan.inputs)) {
    inputs.set(name, checkDims(c, dims, `${at}.inputs['${name}'][1]`, ranges));
    for (const dim of dims)
      if (typeof dim === "object" && dim[0] === 1 && dim[1] === 0) lengths.add(dim[2] ?? 0);
  }
  ranges.forEach((_, i) => {
    if (!lengths.has(i) && !(i && plan.registers![i - 1]!.length === RULE))
      c.fail(
        i ? `${at}.registers[${i - 1}]` : `${at}.register`,
        "is not the size of a dimension of an input",
      );
  });
  return inputs;
}

/** Checks a shape; returns it for the registers' highest values. */
function checkDims(c: Checker, value: unknown, path: string, ranges: readonly Range[]): number[] {
  return c.list(value, path, MAX_RANK).map((dim, i) => {
    const at = `${path}[${i}]`;
    if (!ranges.length || !Array.isArray(dim)) return c.integer(dim, at);
    const further = dim.length === 3;
    const register = further ? c.integer(dim[2], `${at}[2]`, 1, ranges.length - 1) : 0;
    const pair = c.tuple(further ? dim.slice(0, 2) : dim, at, 2);
    const scale = c.integer(pair[0], `${at}[0]`, 1, MAX_LENGTH);
    const add = c.integer(pair[1], `${at}[1]`, -MAX_LENGTH, MAX_LENGTH);
    const [low, high] = ranges[register]!;
    if (scale * low + add < 0) c.fail(at, "is negative at the register's lowest value");
    return scale * high + add;
  });
}

function sizesOf(slots: readonly ManifestSlot[], kind: string): Map<string, number> {
  return new Map(slots.filter((s) => s.kind === kind).map((s) => [s.name, s.bytes]));
}

/** Checks the slots of inputs, and that of the seed of random numbers. */
function checkInputSlots(
  c: Checker,
  { slots, seed, inputs: described }: InferencePlan,
  at: string,
  inputs: ReadonlyMap<string, readonly number[]>,
): void {
  const sizes = sizesOf(slots, "input");
  if (seed !== undefined && (inputs.has(seed) || sizes.get(seed) !== 8))
    c.fail(`${at}.seed`, `is '${seed}', which is not an input slot of 8 bytes of its own`);
  for (const [name, bytes] of sizes) {
    if (name === seed) continue;
    const shape = inputs.get(name);
    if (!shape) c.fail(at, `has a slot for an input '${name}', which its inputs lack`);
    if (bytes !== tensorBytes(described[name]![0], shape, bytes))
      c.fail(at, `has a slot of ${bytes} bytes for its input '${name}', which has another size`);
  }
}

function checkOutputs(
  c: Checker,
  outputs: ReadonlyMap<string, InferencePlan["outputs"][string]>,
  slots: readonly ManifestSlot[],
  at: string,
  ranges: readonly Range[],
): void {
  const sizes = sizesOf(slots, "output");
  for (const [name, [slot, dtype, dims, bytes]] of outputs) {
    const path = `${at}.outputs['${name}']`;
    const shape = checkDims(c, dims, `${path}[2]`, ranges);
    if ((sizes.get(slot) ?? -1) < bytes)
      c.fail(path, `lies in the slot '${slot}', which is missing or too short`);
    if (bytes !== tensorBytes(dtype, shape, bytes))
      c.fail(
        path,
        `has ${bytes} bytes, which do not match ${dtype.slice(0, 40)} [${shape.join(", ")}]`,
      );
  }
}

/** Bytes of a tensor; `unknown` for a dtype without a fixed size. */
function tensorBytes(dtype: string, shape: readonly number[], unknown: number): number {
  const bits = Object.hasOwn(ELEMENT_BITS, dtype) ? ELEMENT_BITS[dtype] : undefined;
  return bits === undefined ? unknown : Math.ceil((product(shape) * bits) / 8);
}
