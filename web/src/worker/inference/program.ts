// Programs, as described by Python (python/edgewise/host/session/described.py): a model, or the
// body of a loop, branch or function, as a list of units in execution order: parts, which are
// compiled as a whole, and single nodes. Descriptions come from Python, from storage or from a
// package, and are validated here.

import { MAX_RANK } from "../../gen/manifest.ts";
import { ELEMENT_BITS } from "../../gen/session.ts";
import type { Checker } from "../../logic/manifest/checker.ts";
import type { Json } from "../package/container.ts";
import { byteSize, fromHex, NumberTensor, StringTensor } from "./values.ts";

/** Attribute of a node: a number, bigint, string, tensor, subgraph, or a homogeneous list. */
export type Attribute =
  | number
  | bigint
  | string
  | NumberTensor
  | StringTensor
  | Subgraph
  | undefined
  | Attribute[];

/** Properties of a subgraph that are known without its program. */
export class Subgraph {
  constructor(
    readonly inputs: number,
    readonly outputs: readonly { dtype: string; shape: readonly number[] | undefined }[],
  ) {}
}

/** A constant: a value, or the name of a weight of the model. */
export type Constant =
  | NumberTensor
  | StringTensor
  | { weight: string; dtype: string; shape: number[] };

/**
 * Of an input that is a number, it is enough to know by how much it exceeds a dimension of another
 * input (at least 0): a cache that grows has the same growth in every run.
 */
export type Beyond = readonly [input: number, other: number, axis: number];

/** Nodes that are compiled together. */
export interface PartUnit {
  readonly kind: "part";
  /** Name of the part. */
  readonly part: string;
  readonly inputs: readonly string[];
  readonly outputs: readonly string[];
  /** Indices of inputs whose values determine shapes; grows as more become known. */
  needs: number[];
  /** Those of which only the growth beyond a dimension matters; see {@link Beyond}. */
  beyond: Beyond[];
  /** Nodes of the part that require these values. */
  askers: number[];
  /** A node of the part, for errors. */
  readonly where: string;
  readonly nodes: readonly number[];
  /** Names that are not used after this unit. */
  readonly dead: readonly string[];
}

/** A node that the driver executes. */
export interface NodeUnit {
  readonly kind: "node";
  readonly op: string;
  readonly domain: string;
  readonly name: string;
  readonly where: string;
  /** Names; "" for absent ones. */
  readonly inputs: readonly string[];
  readonly outputs: readonly string[];
  /** All values that it reads, including those read by its subgraphs. */
  readonly reads: readonly string[];
  readonly opset: number;
  /** Whether the operator exists; whether Python implements it; whether the model defines it. */
  readonly known: boolean;
  readonly host: boolean;
  readonly function: boolean;
  readonly attrs: ReadonlyMap<string, Attribute>;
  readonly nodes: readonly number[];
  readonly dead: readonly string[];
}

export type Unit = PartUnit | NodeUnit;

/** A graph split into units, which the host runs in order. */
export interface GraphProgram {
  /** Its name, determined by the model alone. */
  readonly name: string;
  readonly inputs: readonly string[];
  readonly outputs: readonly string[];
  readonly where: string;
  units: readonly Unit[];
  constants: ReadonlyMap<string, Constant>;
  /** The description, for storage. */
  json: Record<string, Json>;
}

const MAX = 100_000;

/** The members of a JSON object. */
export function membersOf(c: Checker, value: unknown, at: string): Map<string, Json> {
  return new Map(Object.entries(c.read_object(value, at)) as [string, Json][]);
}

/**
 * Parses and validates a program.
 * @throws PackageError
 */
export function parseProgram(c: Checker, json: Json | undefined, at: string): GraphProgram {
  const root = membersOf(c, json, at);
  const names = (of: string) =>
    c
      .read_list(root.get(of), `${at}.${of}`, MAX)
      .map((n, i) => c.read_name(n, `${at}.${of}[${i}]`));
  const constants = new Map<string, Constant>();
  for (const [name, entry] of membersOf(c, root.get("constants"), `${at}.constants`))
    constants.set(name, parseConstant(c, entry, `${at}.constants['${name}']`));
  const state = membersOf(c, root.get("state"), `${at}.state`);
  for (const of of ["hosts", "alone"]) indices(c, state.get(of), `${at}.state.${of}`);
  c.read_list(state.get("cuts"), `${at}.state.cuts`, MAX).forEach((n, i) =>
    c.read_name(n, `${at}.state.cuts[${i}]`),
  );
  membersOf(c, root.get("origin"), `${at}.origin`);
  return {
    name: c.read_name(root.get("program"), `${at}.program`),
    inputs: names("inputs"),
    outputs: names("outputs"),
    where: c.read_name(root.get("where"), `${at}.where`),
    units: parseUnits(c, root.get("units"), `${at}.units`),
    constants,
    json: json as Record<string, Json>,
  };
}

/**
 * Parses and validates a list of units.
 * @throws PackageError
 */
export function parseUnits(c: Checker, json: Json | undefined, at: string): Unit[] {
  return c.read_list(json, at, MAX).map((entry, i): Unit => {
    const path = `${at}[${i}]`;
    const unit = membersOf(c, entry, path);
    const list = (of: string, empty = false) =>
      c
        .read_list(unit.get(of), `${path}.${of}`, MAX)
        .map((n, j) => (empty && n === "" ? "" : c.read_name(n, `${path}.${of}[${j}]`)));
    const common = { nodes: indices(c, unit.get("nodes"), `${path}.nodes`), dead: list("dead") };
    const where = unit.get("where") === "" ? "" : c.read_name(unit.get("where"), `${path}.where`);
    if (unit.has("part")) {
      const inputs = list("inputs");
      const needs = indices(c, unit.get("needs"), `${path}.needs`);
      if (needs.some((n) => n >= inputs.length)) c.fail(`${path}.needs`, `names a missing input`);
      return {
        kind: "part",
        part: c.read_name(unit.get("part"), `${path}.part`),
        inputs,
        outputs: list("outputs"),
        needs,
        beyond: parseBeyond(c, unit.get("beyond") ?? [], `${path}.beyond`, inputs.length),
        askers: indices(c, unit.get("askers"), `${path}.askers`),
        where,
        ...common,
      };
    }
    const text = (of: string) =>
      unit.get(of) === "" ? "" : c.read_name(unit.get(of), `${path}.${of}`);
    const flag = (of: string) => unit.get(of) === true;
    const attrs = new Map<string, Attribute>();
    for (const [name, value] of membersOf(c, unit.get("attrs"), `${path}.attrs`))
      attrs.set(name, parseAttribute(c, value, `${path}.attrs['${name}']`));
    return {
      kind: "node",
      op: text("op"),
      domain: text("domain"),
      name: text("name"),
      where,
      inputs: list("inputs", true),
      outputs: list("outputs", true),
      reads: list("reads"),
      opset: c.read_integer(unit.get("opset"), `${path}.opset`, 0, Number.MAX_SAFE_INTEGER),
      known: flag("known"),
      host: flag("host"),
      function: flag("function"),
      attrs,
      ...common,
    };
  });
}

/** @param inputs how many inputs the part has */
export function parseBeyond(c: Checker, json: Json, at: string, inputs: number): Beyond[] {
  return c.read_list(json, at, MAX).map((entry, i): Beyond => {
    const [input = -1, other = -1, axis = -1, ...more] = indices(c, entry, `${at}[${i}]`);
    if (more.length || axis < 0 || input >= inputs || other >= inputs)
      c.fail(`${at}[${i}]`, "is not two inputs and an axis");
    return [input, other, axis];
  });
}

function indices(c: Checker, json: Json | undefined, at: string): number[] {
  return c
    .read_list(json, at, MAX * 100)
    .map((n, i) => c.read_integer(n, `${at}[${i}]`, 0, MAX * 100));
}

function parseAttribute(c: Checker, json: Json, at: string): Attribute {
  if (typeof json === "number" || typeof json === "string") return json;
  if (typeof json === "boolean") return json ? 1 : 0;
  if (json === null) return undefined;
  if (Array.isArray(json)) return json.map((x, i) => parseAttribute(c, x, `${at}[${i}]`));
  const value = membersOf(c, json, at);
  const [key, inner] = [...value][0] ?? ["", null];
  switch (key) {
    case "int": {
      const text = c.read_name(inner, at);
      if (!/^-?\d{1,20}$/.test(text)) c.fail(at, "is not an integer");
      return BigInt(text);
    }
    case "float":
      return inner === "nan"
        ? NaN
        : inner === "inf"
          ? Infinity
          : inner === "-inf"
            ? -Infinity
            : c.fail(at, "is not a number");
    case "tensor": {
      const tensor = parseConstant(c, inner, at);
      return "weight" in tensor ? c.fail(at, "is a weight") : tensor;
    }
    case "graph": {
      const graph = membersOf(c, inner, at);
      const outputs = c.read_list(graph.get("outputs"), `${at}.outputs`, MAX).map((o, i) => {
        const output = membersOf(c, o, `${at}.outputs[${i}]`);
        const shape = output.get("shape");
        const dtype = output.get("dtype");
        return {
          dtype: dtype === "" ? "" : c.read_name(dtype, `${at}.outputs[${i}].dtype`),
          shape:
            shape === null || shape === undefined
              ? undefined
              : c
                  .read_list(shape, `${at}.outputs[${i}].shape`, 64)
                  .map((d) =>
                    c.read_integer(d, `${at}.outputs[${i}].shape`, -1, Number.MAX_SAFE_INTEGER),
                  ),
        };
      });
      return new Subgraph(c.read_integer(graph.get("inputs"), `${at}.inputs`, 0, MAX), outputs);
    }
    case "other":
      return undefined;
    default:
      return c.fail(at, "is not an attribute");
  }
}

/**
 * Parses a tensor.
 * @throws PackageError
 */
export function parseConstant(c: Checker, json: Json, at: string): Constant {
  const value = membersOf(c, json, at);
  const dtype = c.read_name(value.get("dtype"), `${at}.dtype`);
  const shape = c
    .read_list(value.get("shape"), `${at}.shape`, MAX_RANK)
    .map((d, i) => c.read_integer(d, `${at}.shape[${i}]`));
  if (value.has("strings")) {
    const strings = c
      .read_list(value.get("strings"), `${at}.strings`, 1 << 24)
      .map((s) =>
        typeof s === "string" ? s : c.fail(`${at}.strings`, "has an element that is not a string"),
      );
    if (strings.length !== shape.reduce((a, b) => a * b, 1))
      c.fail(at, `has ${strings.length} strings, which do not match [${shape.join(", ")}]`);
    return new StringTensor(shape, strings);
  }
  if (!Object.hasOwn(ELEMENT_BITS, dtype)) c.fail(`${at}.dtype`, `is '${dtype.slice(0, 40)}'`);
  if (value.has("weight"))
    return { weight: c.read_name(value.get("weight"), `${at}.weight`), dtype, shape };
  const data = value.get("data");
  if (
    typeof data !== "string" ||
    !/^([0-9a-f]{2})*$/.test(data) ||
    data.length !== 2 * byteSize(dtype, shape)
  )
    c.fail(`${at}.data`, `is not the bytes of ${dtype} [${shape.join(", ")}]`);
  return new NumberTensor(dtype, shape, fromHex(data));
}
