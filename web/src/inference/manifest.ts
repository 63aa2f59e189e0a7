// What a package of any model says of itself: its inputs, its outputs, and plans for some shapes of them.

import { parseSlots, product, type Checker, type Json, type Slot, type Weight } from "../checker.ts";
import { MAX_DECLARED_RANK, MAX_INFERENCE_PLANS, MAX_VALUES, SIZES, WEIGHT_FILES } from "../gen/manifest.ts";

export { SIZES };

/** An input or output. `shape`: sizes, names of free dimensions, null where they have none; null: unknown rank. `type`: "tensor", or what else it is. */
export interface ValueInfo { name: string; type: string; dtype: string; shape: (number | string | null)[] | null }

/** The part with constants that a graph spells out, as weights: python/edgewise/compile.py. No file of a model is called so. */
export const CONSTANTS = "//constants";

/** A plan for inputs of fixed shapes. */
export interface InferencePlan {
  /** Name of the part with its bytes. */
  file: string;
  /** Shapes and types it is for. */
  inputs: Map<string, { dtype: string; shape: number[] }>;
  /** `slot`: name of the output slot with its bytes; two outputs may share one. */
  outputs: Map<string, { slot: string; dtype: string; shape: number[]; bytes: number }>;
  /** Outputs that are inputs passed through, and which: the plan does not compute them; the host gives back what was fed. */
  passed: Map<string, string>;
  /** In the plan's order. */
  slots: Slot[];
  /** The input slot, int64 [1], that another seed is put into before each run; undefined where the plan draws no random numbers. */
  seed: string | undefined;
  /** Inputs whose numbers it is for as well, since shapes follow from them, and these numbers in decimal. */
  known: Map<string, string[]>;
}

/** What such a package holds. */
export interface InferenceInfo { inputs: ValueInfo[]; outputs: ValueInfo[]; plans: InferencePlan[] }

/** Which plan serves: what of inputs decides about it. */
export function planKey(inputs: Iterable<[string, { dtype: string; shape: readonly number[] }]>): string {
  return JSON.stringify([...inputs].map(([name, { dtype, shape }]) => [name, dtype, ...shape]).sort());
}

/** Which plan serves a run for some outputs, where inputs' numbers decide as well. */
export function runKey({ inputs, outputs, passed, known }: { inputs: Iterable<[string, { dtype: string; shape: readonly number[] }]>; outputs: { keys(): Iterable<string> }; passed?: { keys(): Iterable<string> }; known: Iterable<[string, readonly string[]]> }): string {
  return planKey(inputs) + JSON.stringify([[...outputs.keys(), ...(passed?.keys() ?? [])].sort(), ...[...known].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, numbers]) => numbers)]);
}

/** A plan as a manifest has it: the inverse of `parsePlan`. */
export function planJson({ file, inputs, outputs, passed, slots, seed, known }: InferencePlan): Record<string, unknown> {
  return {
    file, slots, ...(seed === undefined ? {} : { seed }), ...(passed.size ? { passed: Object.fromEntries(passed) } : {}), known: Object.fromEntries(known), inputs: Object.fromEntries(Array.from(inputs, ([name, { dtype, shape }]) => [name, [dtype, shape]])),
    outputs: Object.fromEntries(Array.from(outputs, ([name, { slot, dtype, shape, bytes }]) => [name, [slot, dtype, shape, bytes]])),
  };
}

/** Checks a manifest's part. @throws PackageError */
export function parseInference(c: Checker, json: Json | undefined, files: Map<string, unknown>, weights: ReadonlyMap<string, Weight>, computed: Map<string, number>): InferenceInfo {
  const root = c.object(json, "inference");
  const values = (of: "inputs" | "outputs") => c.list(root.get(of), `inference.${of}`, MAX_VALUES).map((entry, i) => parseValue(c, entry, `inference.${of}[${i}]`));
  const [inputs, outputs] = [values("inputs"), values("outputs")];
  const declared = new Set(inputs.map((i) => i.name));
  const plans = c.list(root.get("plans"), "inference.plans", MAX_INFERENCE_PLANS).map((entry, i) => {
    const plan = parsePlan(c, entry, `inference.plans[${i}]`, files, weights, computed);
    for (const name of plan.inputs.keys()) if (!declared.has(name)) c.fail(`inference.plans[${i}].inputs`, `has '${name}', which is no input of the model`);
    return plan;
  });
  return { inputs, outputs, plans };
}

function parseValue(c: Checker, json: Json, at: string): ValueInfo {
  const root = c.object(json, at);
  const shape = root.get("shape") ?? null;
  return {
    name: c.text(root.get("name"), `${at}.name`), type: c.text(root.get("type"), `${at}.type`), dtype: c.text(root.get("dtype"), `${at}.dtype`),
    shape: shape === null ? null : c.list(shape, `${at}.shape`, MAX_DECLARED_RANK).map((d, i) => (d === null || typeof d === "string" ? d : c.integer(d, `${at}.shape[${i}]`, -1))),
  };
}

/** One plan, of a package or as the compiler just made it. `files`: the names of those that plans may lie in. */
export function parsePlan(c: Checker, json: Json | undefined, at: string, files: { has(name: string): boolean }, weights: ReadonlyMap<string, Pick<Weight, "bytes">>, computed: Map<string, number>): InferencePlan {
  const root = c.object(json, at);
  const file = c.text(root.get("file"), `${at}.file`);
  if (!files.has(file) || WEIGHT_FILES.includes(file)) c.fail(`${at}.file`, `is '${file}', which is no plan in the package`);
  const slots = parseSlots(c, root.get("slots"), `${at}.slots`, weights, computed);
  slots.forEach(({ kind }, s) => kind === "cache" || kind === "state" ? c.fail(`${at}.slots[${s}]`, `is a ${kind}, which such a plan has not`) : undefined);
  const bytes = (kind: Slot["kind"]) => new Map(slots.filter((s) => s.kind === kind).map((s) => [s.name, s.bytes]));
  const inputs: InferencePlan["inputs"] = new Map();
  for (const [name, entry] of c.object(root.get("inputs"), `${at}.inputs`)) {
    const [dtype, shape] = c.tuple(entry, `${at}.inputs['${name}']`, 2);
    inputs.set(c.text(name, `the name in ${at}.inputs`), { dtype: c.text(dtype, `${at}.inputs['${name}'][0]`), shape: c.shape(shape, `${at}.inputs['${name}'][1]`) });
  }
  const given = bytes("input");
  const seed = root.has("seed") ? c.text(root.get("seed"), `${at}.seed`) : undefined;
  if (seed !== undefined && (inputs.has(seed) || given.get(seed) !== 8)) c.fail(`${at}.seed`, `is '${seed}', which is no input slot of 8 bytes of its own`);
  for (const [name, size] of given) {
    if (name === seed) continue;
    const input = inputs.get(name);
    if (!input) c.fail(at, `has a slot for an input '${name}', which its inputs lack`);
    if (size < tensorBytes(input, 0)) c.fail(at, `has a slot of ${size} bytes for its input '${name}', which is longer`);
  }
  const places = bytes("output");
  const outputs: InferencePlan["outputs"] = new Map();
  for (const [name, entry] of c.object(root.get("outputs"), `${at}.outputs`)) {
    const path = `${at}.outputs['${name}']`;
    const [slot, dtype, shape, size] = c.tuple(entry, path, 4);
    c.text(name, `the name in ${at}.outputs`);
    const found = { slot: c.text(slot, `${path}[0]`), dtype: c.text(dtype, `${path}[1]`), shape: c.shape(shape, `${path}[2]`), bytes: c.integer(size, `${path}[3]`) };
    if ((places.get(found.slot) ?? -1) < found.bytes) c.fail(path, `lies in the slot '${found.slot}', which is missing or too short`);
    if (found.bytes !== tensorBytes(found, found.bytes)) c.fail(path, `has ${found.bytes} bytes, which are not those of ${found.dtype.slice(0, 40)} [${found.shape.join(", ")}]`);
    outputs.set(name, found);
  }
  const passed: InferencePlan["passed"] = new Map();
  for (const [name, entry] of c.object(root.has("passed") ? root.get("passed") : {}, `${at}.passed`)) {
    c.text(name, `the name in ${at}.passed`);
    const input = c.text(entry, `${at}.passed['${name}']`);
    if (!inputs.has(input)) c.fail(`${at}.passed['${name}']`, `is '${input}', which is no input`);
    if (outputs.has(name)) c.fail(`${at}.passed['${name}']`, "is computed as well");
    passed.set(name, input);
  }
  const known: InferencePlan["known"] = new Map();
  for (const [name, entry] of c.object(root.has("known") ? root.get("known") : {}, `${at}.known`)) {
    if (!inputs.has(name)) c.fail(`${at}.known`, `has numbers of '${name}', which is no input`);
    known.set(name, c.list(entry, `${at}.known['${name}']`).map((x, i) => c.text(x, `${at}.known['${name}'][${i}]`)));
  }
  return { file, inputs, outputs, passed, slots, seed, known };
}

/** Of a tensor; `unknown` for types that pages have no tensors of. */
function tensorBytes({ dtype, shape }: { dtype: string; shape: number[] }, unknown: number): number {
  return Object.hasOwn(SIZES, dtype) ? SIZES[dtype]! * product(shape) : unknown;
}
