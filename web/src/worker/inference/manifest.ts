// Manifest of a package of any model: inputs, outputs, and plans for certain shapes.

import { MAX_VALUES } from "../../gen/manifest.ts";
import type {
  DeclaredValue,
  Inference,
  ManifestSlot,
  InferencePlan as PlanJson,
} from "../../gen/schema.ts";
import { ELEMENT_BITS } from "../../gen/session.ts";
import type { Checker } from "../../logic/manifest/checker.ts";
import type { ModelInfo, ModelMetadata, ValueInfo } from "../../protocol/inference.ts";
import type { Json } from "../package/container.ts";
import {
  type Beyond,
  type GraphProgram,
  membersOf,
  parseBeyond,
  parseConstant,
  parseProgram,
} from "./program.ts";
import type { Dim, Register } from "./registers.ts";
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

/** Serializes a plan for a manifest: the inverse of `planOf`. */
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
 * Reads a checked graph of a package, with what only packages in the page's own storage have:
 * programs, of whose parts plans may be.
 * @param at position in the manifest
 * @throws PackageError
 */
export function graphOf(c: Checker, graph: Inference, at: string): InferenceInfo {
  const programs = c
    .read_list(graph.programs ?? [], `${at}.programs`, MAX_VALUES)
    .map((entry, i) => parseProgram(c, entry, `${at}.programs[${i}]`));
  const units = programs.flatMap((p) => p.units);
  const parts = new Map(units.flatMap((u) => (u.kind === "part" ? [[u.part, u] as const] : [])));
  const plans = graph.plans.map((entry, i) => {
    const path = `${at}.plans[${i}]`;
    const plan = planOf(c, entry, path);
    const unit = parts.get(plan.part);
    if (plan.part && !unit) c.fail(`${path}.part`, `is '${plan.part}', which is missing`);
    for (const name of unit ? plan.inputs.keys() : [])
      if (!unit!.inputs.includes(name))
        c.fail(`${path}.inputs`, `has '${name}', which is not an input of its part`);
    for (const name of unit?.inputs ?? [])
      if (!plan.inputs.has(name)) c.fail(`${path}.inputs`, `lacks '${name}'`);
    for (const name of unit?.outputs ?? [])
      if (!plan.outputs.has(name) && !plan.passed.has(name) && !plan.numbers.has(name))
        c.fail(`${path}.outputs`, `lacks '${name}'`);
    return plan;
  });
  return { ...modelOf(graph), plans, programs };
}

/** The model that a checked graph describes. */
export function modelOf(graph: Inference): ModelInfo {
  const values = (of: readonly DeclaredValue[]) => of.map(declaredOf);
  const metadata = graph.metadata ?? {};
  const named = Object.entries(FIELDS).map(([name, key]) => [name, metadata[key] ?? ""]);
  return {
    inputs: values(graph.inputs),
    outputs: values(graph.outputs),
    overridable: values(graph.overridable ?? []),
    metadata: {
      ...(Object.fromEntries(named) as Omit<ModelMetadata, "customMetadataMap">),
      customMetadataMap: { ...metadata.custom_metadata_map },
    },
  };
}

function declaredOf({ name, type, dtype, shape, elem, key }: DeclaredValue): ValueInfo {
  return {
    ...{ name, type, dtype, shape: shape ?? null },
    ...(elem === undefined ? {} : { elem: declaredOf(elem) }),
    ...(key === undefined ? {} : { key }),
  };
}

const FIELDS = {
  producerName: "producer_name",
  graphName: "graph_name",
  domain: "domain",
  description: "description",
  graphDescription: "graph_description",
  version: "version",
} as const;

/** Serializes a model's description: the inverse for a page's own storage. */
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

/**
 * Reads a checked plan, of a package or one that was just compiled.
 * @throws PackageError
 */
export function planOf(c: Checker, plan: PlanJson, at: string): InferencePlan {
  const map = <V, T>(fields: Record<string, V> | undefined, of: (value: V) => T) =>
    new Map(Object.entries(fields ?? {}).map(([name, value]) => [name, of(value)]));
  const inputs = map(plan.inputs, ([dtype, shape]) => ({ dtype, shape: shape as Dim[] }));
  const outputs = map(plan.outputs, ([slot, dtype, shape, bytes]) => {
    return { slot, dtype, shape: shape as Dim[], bytes };
  });
  const passed = map(plan.passed, (name) => name);
  return {
    file: plan.file ?? "",
    part: plan.part ?? "",
    register: plan.register,
    registers: (plan.registers ?? []) as unknown as Register[],
    ...{ inputs, outputs, passed },
    slots: plan.slots,
    seed: plan.seed,
    known: parseKnown(c, plan.known ?? {}, at, inputs),
    beyond: parseBeyond(c, (plan.beyond ?? []) as Json, `${at}.beyond`, inputs.size),
    numbers: parseNumbers(
      c,
      plan.numbers ?? {},
      at,
      (name) => outputs.has(name) || passed.has(name),
    ),
  };
}

function parseKnown(
  c: Checker,
  json: unknown,
  at: string,
  inputs: InferencePlan["inputs"],
): InferencePlan["known"] {
  const known: InferencePlan["known"] = new Map();
  for (const [name, entry] of membersOf(c, json, `${at}.known`)) {
    if (!inputs.has(name)) c.fail(`${at}.known`, `has values for '${name}', which is not an input`);
    const text = entry === "" ? "" : c.read_name(entry, `${at}.known['${name}']`, 1 << 22);
    const { dtype, shape } = inputs.get(name)!;
    const fixed = shape.every((d): d is number => typeof d === "number");
    const size = fixed && Object.hasOwn(ELEMENT_BITS, dtype) ? byteSize(dtype, shape) : -1;
    if (!/^([0-9a-f]{2})*$/.test(text) || text.length !== 2 * size)
      c.fail(`${at}.known['${name}']`, "is not the bytes of this input");
    known.set(name, fromHex(text));
  }
  return known;
}

function parseNumbers(
  c: Checker,
  json: unknown,
  at: string,
  taken: (name: string) => boolean,
): InferencePlan["numbers"] {
  const numbers: InferencePlan["numbers"] = new Map();
  for (const [name, entry] of membersOf(c, json, `${at}.numbers`)) {
    const [dtype, shape, data] = c.read_list(entry, `${at}.numbers['${name}']`, 3);
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
