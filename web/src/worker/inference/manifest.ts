// Manifest of a package of any model: inputs, outputs, and plans for certain shapes.

import {
  MAX_DECLARED_RANK,
  MAX_INFERENCE_PLANS,
  MAX_METADATA_TEXT,
  MAX_VALUES,
  WEIGHT_FILES,
} from "../../gen/manifest.ts";
import { ELEMENT_BITS } from "../../gen/session.ts";
import type { ModelInfo, ModelMetadata, ValueInfo } from "../../protocol/inference.ts";
import {
  type Checker,
  type Json,
  type ManifestSlot,
  parseSlots,
  type Weight,
} from "../package/checker.ts";
import {
  type Beyond,
  type GraphProgram,
  parseBeyond,
  parseConstant,
  parseProgram,
} from "./program.ts";
import {
  type Dim,
  dimsAt,
  isLength,
  parseDims,
  parseRange,
  parseRegisters,
  type Range,
  type Register,
} from "./registers.ts";
import { byteSize, fromHex, NumberTensor, toHex } from "./values.ts";

/**
 * Name of the part that holds constants of the graph as weights
 * (python/edgewise/compiler/compile/). Not a possible file name of a model.
 */
export const CONSTANTS = "//constants";

/** A plan for inputs of fixed shapes, or of shapes that depend on a register. */
export interface InferencePlan {
  /** Name of the part with its bytes; "" if there is nothing to execute. */
  file: string;
  /** The part of a program that it computes; "" for a whole model. */
  part: string;
  /** Range of the register that dimensions depend on; undefined if all are fixed. */
  register: readonly [low: number, high: number] | undefined;
  /** Further registers that dimensions depend on, from register 1 on. */
  registers: readonly Register[];
  /** Shapes and types of the inputs that it is valid for. */
  inputs: Map<string, { dtype: string; shape: Dim[] }>;
  /**
   * `slot`: the output slot with the output's bytes, sized for the largest shape. Outputs may share
   * a slot.
   */
  outputs: Map<string, { slot: string; dtype: string; shape: Dim[]; bytes: number }>;
  /** Outputs that are inputs passed through, by input: the host returns the feed. */
  passed: Map<string, string>;
  /** In the plan's order. */
  slots: ManifestSlot[];
  /**
   * Name of the input slot, int64 [1], that receives a new seed before each run; undefined if the
   * plan draws no random numbers.
   */
  seed: string | undefined;
  /** Contents of inputs that it is valid for, where shapes depend on them. */
  known: Map<string, Uint8Array<ArrayBuffer>>;
  /** Those of them that hold a growth, by the indices of the part's inputs. */
  beyond: readonly Beyond[];
  /** Outputs that are determined by the shapes alone. */
  numbers: Map<string, NumberTensor>;
}

/**
 * Contents of such a package. `programs`: the partition of the model into parts; empty if each plan
 * computes the whole model.
 */
export interface InferenceInfo extends ModelInfo {
  plans: InferencePlan[];
  programs: GraphProgram[];
}

/** Serializes a plan for a manifest: the inverse of `parsePlan`. */
export function planJson({
  file,
  part,
  register,
  registers,
  inputs,
  outputs,
  passed,
  slots,
  seed,
  known,
  beyond,
  numbers,
}: InferencePlan): Record<string, unknown> {
  const fields = <V>(map: Map<string, V>, of: (v: V) => unknown) =>
    Object.fromEntries(Array.from(map, ([name, v]) => [name, of(v)]));
  return {
    ...(file ? { file } : {}),
    slots,
    ...(part ? { part } : {}),
    ...(register ? { register } : {}),
    ...(registers.length ? { registers } : {}),
    ...(seed === undefined ? {} : { seed }),
    ...(passed.size ? { passed: Object.fromEntries(passed) } : {}),
    ...(known.size ? { known: fields(known, toHex) } : {}),
    ...(beyond.length ? { beyond } : {}),
    ...(numbers.size ? { numbers: fields(numbers, (v) => [v.type, v.dims, toHex(v.data!)]) } : {}),
    inputs: fields(inputs, ({ dtype, shape }) => [dtype, shape]),
    outputs: fields(outputs, ({ slot, dtype, shape, bytes }) => [slot, dtype, shape, bytes]),
  };
}

/**
 * Parses and checks the `inference` entry of a manifest, or one of its `programs`.
 * @param own whether it is from the page's own storage, where programs are allowed
 * @param at position in the manifest
 * @throws PackageError
 */
export function parseInference(
  c: Checker,
  json: Json | undefined,
  files: Map<string, unknown>,
  weights: ReadonlyMap<string, Weight>,
  computed: Map<string, number>,
  own: boolean,
  at = "inference",
): InferenceInfo {
  const root = c.object(json, at);
  if (!own) refuseOwn(c, root, at);
  const values = (of: "inputs" | "outputs" | "overridable") =>
    c
      .list(root.get(of) ?? (of === "overridable" ? [] : undefined), `${at}.${of}`, MAX_VALUES)
      .map((entry, i) => parseValue(c, entry, `${at}.${of}[${i}]`));
  const [inputs, outputs] = [values("inputs"), values("outputs")];
  const metadata = parseMetadata(c, root.get("metadata"), `${at}.metadata`);
  const overridable = own ? values("overridable") : [];
  const declared = new Set(inputs.map((i) => i.name));
  const programs = (
    own ? c.list(root.get("programs") ?? [], `${at}.programs`, MAX_VALUES) : []
  ).map((entry, i) => parseProgram(c, entry, `${at}.programs[${i}]`));
  const parts = new Map(
    programs.flatMap((p) =>
      p.units.flatMap((u) => (u.kind === "part" ? [[u.part, u] as const] : [])),
    ),
  );
  const plans = c.list(root.get("plans"), `${at}.plans`, MAX_INFERENCE_PLANS).map((entry, i) => {
    const path = `${at}.plans[${i}]`;
    const plan = parsePlan(c, entry, path, files, weights, computed);
    const unit = parts.get(plan.part);
    if (plan.part && !unit) c.fail(`${path}.part`, `is '${plan.part}', which is missing`);
    for (const name of plan.inputs.keys())
      if (!(unit ? unit.inputs.includes(name) : declared.has(name)))
        c.fail(
          `${path}.inputs`,
          `has '${name}', which is not an input of ${unit ? "its part" : "the model"}`,
        );
    for (const name of unit?.inputs ?? [])
      if (!plan.inputs.has(name)) c.fail(`${path}.inputs`, `lacks '${name}'`);
    for (const name of unit?.outputs ?? [])
      if (!plan.outputs.has(name) && !plan.passed.has(name) && !plan.numbers.has(name))
        c.fail(`${path}.outputs`, `lacks '${name}'`);
    return plan;
  });
  return { inputs, outputs, overridable, metadata, plans, programs };
}

const FIELDS = {
  producerName: "producer_name",
  graphName: "graph_name",
  domain: "domain",
  description: "description",
  graphDescription: "graph_description",
  version: "version",
} as const;

/** Parses and checks the metadata of a model, of which nothing has to be there. */
function parseMetadata(c: Checker, json: Json | undefined, at: string): ModelMetadata {
  const root = c.object(json === undefined ? {} : json, at);
  const texts = (entries: Iterable<[string, Json]>) =>
    new Map(Array.from(entries, ([name, v]) => [name, metadataText(c, v, `${at}['${name}']`)]));
  const custom = root.get("custom_metadata_map");
  root.delete("custom_metadata_map");
  const fields = texts(root);
  const map = texts(c.object(custom === undefined ? {} : custom, `${at}.custom_metadata_map`));
  const named = Object.entries(FIELDS).map(([name, key]) => [name, fields.get(key) ?? ""]);
  return {
    ...(Object.fromEntries(named) as Omit<ModelMetadata, "customMetadataMap">),
    customMetadataMap: Object.fromEntries(map),
  };
}

function metadataText(c: Checker, value: Json, at: string): string {
  if (typeof value !== "string" || value.length > MAX_METADATA_TEXT)
    c.fail(at, "is not a text of a model's metadata");
  return value;
}

/** Serializes what `parseInference` reads of a model: the inverse for a page's own storage. */
export function modelJson({ inputs, outputs, overridable, metadata }: ModelInfo): object {
  const fields = Object.entries(FIELDS).flatMap(([name, key]) => {
    const text = metadata[name as keyof typeof FIELDS];
    return text ? [[key, text]] : [];
  });
  return {
    inputs,
    outputs,
    overridable,
    metadata: { ...Object.fromEntries(fields), custom_metadata_map: metadata.customMetadataMap },
  };
}

/** The description of a model, without its plans. */
export function modelInfo({ inputs, outputs, overridable, metadata }: ModelInfo): ModelInfo {
  return { inputs, outputs, overridable, metadata };
}

function refuseOwn(c: Checker, root: Map<string, Json>, at: string): void {
  const there = (x: Json | undefined) =>
    x !== undefined &&
    x !== null &&
    x !== "" &&
    x !== 0 &&
    x !== false &&
    !(typeof x === "object" && !Object.keys(x).length);
  if (there(root.get("programs")))
    c.fail(`${at}.programs`, "are only valid in a page's own storage");
  const plans = root.get("plans");
  if (Array.isArray(plans))
    plans.forEach((plan, i) => {
      if (typeof plan !== "object" || plan === null) return;
      for (const field of ["part", "known", "beyond", "numbers"])
        if (there((plan as Record<string, Json>)[field]))
          c.fail(`${at}.plans[${i}].${field}`, "is only valid in a page's own storage");
    });
}

function parseValue(c: Checker, json: Json, at: string, depth = 0): ValueInfo {
  if (depth > 8) c.fail(at, "is nested too deeply");
  const root = c.object(json, at);
  const shape = root.get("shape") ?? null;
  const [elem, key] = [root.get("elem"), root.get("key")];
  return {
    name: c.text(root.get("name"), `${at}.name`),
    type: c.text(root.get("type"), `${at}.type`),
    dtype: c.text(root.get("dtype"), `${at}.dtype`),
    shape:
      shape === null
        ? null
        : c
            .list(shape, `${at}.shape`, MAX_DECLARED_RANK)
            .map((d, i) =>
              d === null || typeof d === "string" ? d : c.integer(d, `${at}.shape[${i}]`, -1),
            ),
    ...(elem === undefined ? {} : { elem: parseValue(c, elem, `${at}.elem`, depth + 1) }),
    ...(key === undefined ? {} : { key: c.text(key, `${at}.key`) }),
  };
}

/**
 * Parses and checks a plan of a package, or one that was just compiled.
 * @param files names of the parts that can contain plans
 * @throws PackageError
 */
export function parsePlan(
  c: Checker,
  json: Json | undefined,
  at: string,
  files: { has(name: string): boolean },
  weights: ReadonlyMap<string, Pick<Weight, "bytes">>,
  computed: Map<string, number>,
): InferencePlan {
  const root = c.object(json, at);
  const part = root.get("part") === undefined ? "" : c.text(root.get("part"), `${at}.part`);
  const file = part && root.get("file") === undefined ? "" : c.text(root.get("file"), `${at}.file`);
  if (file && (!files.has(file) || WEIGHT_FILES.includes(file)))
    c.fail(`${at}.file`, `is '${file}', which is not a plan in the package`);
  const slots = parseSlots(c, root.get("slots"), `${at}.slots`, weights, computed);
  for (const [s, { kind }] of slots.entries())
    if (kind === "cache" || kind === "state")
      c.fail(`${at}.slots[${s}]`, `is a ${kind}, which such a plan cannot have`);
  const register = root.has("register")
    ? parseRange(c, root.get("register"), `${at}.register`)
    : undefined;
  const { registers, ranges } = parseRegisters(c, root.get("registers"), at, register);
  const inputs = parseInputs(c, root.get("inputs"), at, registers, ranges);
  const high = ranges.map((r) => r[1]);
  const seed = root.has("seed") ? c.text(root.get("seed"), `${at}.seed`) : undefined;
  checkInputSlots(c, at, slots, inputs, seed, high);
  const outputs = parseOutputs(c, root.get("outputs"), at, slots, ranges);
  const passed = parsePassed(c, root.has("passed") ? root.get("passed") : {}, at, inputs, outputs);
  const known = parseKnown(c, root.has("known") ? root.get("known") : {}, at, inputs);
  const numbers = parseNumbers(
    c,
    root.get("numbers") ?? {},
    at,
    (name) => outputs.has(name) || passed.has(name),
  );
  if (!file && (slots.length || outputs.size)) c.fail(`${at}.file`, "is missing");
  const beyond = parseBeyond(c, root.get("beyond") ?? [], `${at}.beyond`, inputs.size);
  const rest = { inputs, outputs, passed, slots, seed, known, beyond, numbers };
  return { file, part, register, registers, ...rest };
}

function bytesByName(
  slots: readonly ManifestSlot[],
  kind: ManifestSlot["kind"],
): Map<string, number> {
  return new Map(slots.filter((s) => s.kind === kind).map((s) => [s.name, s.bytes]));
}

function parseInputs(
  c: Checker,
  json: Json | undefined,
  at: string,
  registers: readonly Register[],
  ranges: readonly Range[],
): InferencePlan["inputs"] {
  const inputs: InferencePlan["inputs"] = new Map();
  for (const [name, entry] of c.object(json, `${at}.inputs`)) {
    const [dtype, shape] = c.tuple(entry, `${at}.inputs['${name}']`, 2);
    inputs.set(c.text(name, `the name in ${at}.inputs`), {
      dtype: c.text(dtype, `${at}.inputs['${name}'][0]`),
      shape: parseDims(c, shape, `${at}.inputs['${name}'][1]`, ranges),
    });
  }
  const sizes = [...inputs.values()].flatMap(({ shape }) => shape);
  for (let k = 0; k < ranges.length; k++)
    if (registers[k - 1]?.length !== 7 && !sizes.some((d) => isLength(d, k)))
      c.fail(
        k ? `${at}.registers[${k - 1}]` : `${at}.register`,
        "is not the size of a dimension of an input",
      );
  return inputs;
}

/** Checks that each input slot is the seed or an input of the same size. */
function checkInputSlots(
  c: Checker,
  at: string,
  slots: readonly ManifestSlot[],
  inputs: InferencePlan["inputs"],
  seed: string | undefined,
  high: readonly number[],
): void {
  const given = bytesByName(slots, "input");
  if (seed !== undefined && (inputs.has(seed) || given.get(seed) !== 8))
    c.fail(`${at}.seed`, `is '${seed}', which is not an input slot of 8 bytes of its own`);
  for (const [name, size] of given) {
    if (name === seed) continue;
    const input = inputs.get(name);
    if (!input) c.fail(at, `has a slot for an input '${name}', which its inputs lack`);
    if (size !== largestBytes(input, high, size))
      c.fail(at, `has a slot of ${size} bytes for its input '${name}', which has another size`);
  }
}

function parseOutputs(
  c: Checker,
  json: Json | undefined,
  at: string,
  slots: readonly ManifestSlot[],
  ranges: readonly Range[],
): InferencePlan["outputs"] {
  const high = ranges.map((r) => r[1]);
  const places = bytesByName(slots, "output");
  const outputs: InferencePlan["outputs"] = new Map();
  for (const [name, entry] of c.object(json, `${at}.outputs`)) {
    const path = `${at}.outputs['${name}']`;
    const [slot, dtype, shape, size] = c.tuple(entry, path, 4);
    c.text(name, `the name in ${at}.outputs`);
    const found = {
      slot: c.text(slot, `${path}[0]`),
      dtype: c.text(dtype, `${path}[1]`),
      shape: parseDims(c, shape, `${path}[2]`, ranges),
      bytes: c.integer(size, `${path}[3]`),
    };
    if ((places.get(found.slot) ?? -1) < found.bytes)
      c.fail(path, `lies in the slot '${found.slot}', which is missing or too short`);
    if (found.bytes !== largestBytes(found, high, found.bytes))
      c.fail(
        path,
        `has ${found.bytes} bytes, which do not match ${found.dtype.slice(0, 40)} ` +
          `[${dimsAt(found.shape, high).join(", ")}]`,
      );
    outputs.set(name, found);
  }
  return outputs;
}

function parsePassed(
  c: Checker,
  json: Json | undefined,
  at: string,
  inputs: InferencePlan["inputs"],
  outputs: InferencePlan["outputs"],
): InferencePlan["passed"] {
  const passed: InferencePlan["passed"] = new Map();
  for (const [name, entry] of c.object(json, `${at}.passed`)) {
    c.text(name, `the name in ${at}.passed`);
    const input = c.text(entry, `${at}.passed['${name}']`);
    if (!inputs.has(input))
      c.fail(`${at}.passed['${name}']`, `is '${input}', which is not an input`);
    if (outputs.has(name)) c.fail(`${at}.passed['${name}']`, "is computed as well");
    passed.set(name, input);
  }
  return passed;
}

function parseKnown(
  c: Checker,
  json: Json | undefined,
  at: string,
  inputs: InferencePlan["inputs"],
): InferencePlan["known"] {
  const known: InferencePlan["known"] = new Map();
  for (const [name, entry] of c.object(json, `${at}.known`)) {
    if (!inputs.has(name)) c.fail(`${at}.known`, `has values for '${name}', which is not an input`);
    const text = entry === "" ? "" : c.text(entry, `${at}.known['${name}']`, 1 << 22);
    const { dtype, shape } = inputs.get(name)!;
    const fixed = shape.every((d) => typeof d === "number");
    const size = fixed ? largestBytes({ dtype, shape }, [], -1) : -1;
    if (!/^([0-9a-f]{2})*$/.test(text) || text.length !== 2 * size)
      c.fail(`${at}.known['${name}']`, "is not the bytes of this input");
    known.set(name, fromHex(text));
  }
  return known;
}

function parseNumbers(
  c: Checker,
  json: Json | undefined,
  at: string,
  taken: (name: string) => boolean,
): InferencePlan["numbers"] {
  const numbers: InferencePlan["numbers"] = new Map();
  for (const [name, entry] of c.object(json, `${at}.numbers`)) {
    const [dtype, shape, data] = c.list(entry, `${at}.numbers['${name}']`, 3);
    const tensor = parseConstant(
      c,
      { dtype: dtype ?? null, shape: shape ?? null, data: data ?? null },
      `${at}.numbers['${name}']`,
    );
    if (!(tensor instanceof NumberTensor) || taken(name))
      c.fail(`${at}.numbers['${name}']`, "is computed as well");
    numbers.set(name, tensor);
  }
  return numbers;
}

/** Size of a tensor at the register's maximum; `unknown` for unknown element types. */
function largestBytes(
  { dtype, shape }: { dtype: string; shape: Dim[] },
  high: readonly number[],
  unknown: number,
): number {
  return Object.hasOwn(ELEMENT_BITS, dtype) ? byteSize(dtype, dimsAt(shape, high)) : unknown;
}
