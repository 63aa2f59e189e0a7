// Validation of JSON in manifests. Errors contain the path of the invalid value.

import {
  KINDS,
  MAX_DEPTH,
  MAX_LIST,
  MAX_RANK,
  MAX_SIZE,
  MAX_TEMPS,
  MAX_TEXT,
  STATE_SIZES,
} from "../../gen/manifest.ts";
import { PackageError } from "../../shared/errors.ts";

/**
 * Location of a weight: a part of the package or a file beside it, and the range in it. `sums`:
 * checksums of its pieces (sums.ts), if it has any. `power`: if given, the file has float32 numbers
 * w, twice as many bytes, and the weight is float16 numbers of w * 2^power.
 */
export interface Weight {
  name: string;
  file: string;
  offset: number;
  bytes: number;
  sums?: string[] | undefined;
  power?: number | undefined;
}
/** A slot of a plan; python/edgewise/compiler/plan/plan.py describes the kinds. */
export interface ManifestSlot {
  name: string;
  kind: "weight" | "computed" | "cache" | "state" | "input" | "output" | "temp";
  dtype: string;
  shape: number[];
  bytes: number;
}

/** A parsed JSON value. */
export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

/** Validates JSON values. All methods throw PackageError. */
export class Checker {
  constructor(private readonly where: string) {}

  fail(
    path: string,
    what: string,
    remedy = "The package is damaged or was made by another version: fetch it again, or build it " +
      "again with `edgewise build`.",
  ): never {
    throw new PackageError(`${path.slice(0, 300)} ${what}`, this.where, remedy);
  }
  object(value: Json | undefined, path: string): Map<string, Json> {
    if (typeof value !== "object" || value === null || Array.isArray(value))
      this.fail(path, "is not an object");
    return new Map(Object.entries(value));
  }
  list(value: Json | undefined, path: string, max = MAX_LIST): Json[] {
    if (!Array.isArray(value)) this.fail(path, "is not a list");
    if (value.length > max) this.fail(path, `has ${value.length} entries`);
    return value;
  }
  text(value: Json | undefined, path: string, max = MAX_TEXT): string {
    if (
      typeof value !== "string" ||
      !value.length ||
      value.length > max ||
      /\p{Surrogate}/u.test(value)
    )
      this.fail(path, "is not a name");
    return value;
  }
  /** A list with exactly `count` entries. */
  tuple(value: Json | undefined, path: string, count: number): Json[] {
    const list = this.list(value, path);
    if (list.length !== count) this.fail(path, `has ${list.length} entries, not ${count}`);
    return list;
  }
  /** One of the given names. */
  oneOf(value: Json | undefined, path: string, among: readonly string[]): string {
    const text = this.text(value, path);
    if (!among.includes(text)) this.fail(path, `is '${text.slice(0, 40)}'`);
    return text;
  }
  integer(value: Json | undefined, path: string, min = 0, max = MAX_SIZE): number {
    if (typeof value !== "number" || !Number.isSafeInteger(value))
      this.fail(path, "is not an integer");
    if (value < min || value > max) this.fail(path, `is ${value}, not between ${min} and ${max}`);
    return value;
  }
  number(value: Json | undefined, path: string): number {
    if (typeof value !== "number" || !Number.isFinite(value)) this.fail(path, "is not a number");
    return value;
  }
  shape(value: Json | undefined, path: string): number[] {
    return this.list(value, path, MAX_RANK).map((d, i) => this.integer(d, `${path}[${i}]`));
  }
}

/** Whether JSON is nested more deeply than allowed in a manifest. */
export function tooDeep(json: Json): boolean {
  let level = [json];
  for (let depth = 0; depth < MAX_DEPTH; depth++) {
    const next: Json[] = [];
    for (const one of level)
      if (typeof one === "object" && one !== null)
        for (const x of Array.isArray(one) ? one : Object.values(one)) next.push(x);
    if (!next.length) return false;
    level = next;
  }
  return true;
}

/**
 * Parses and checks the slots of a plan.
 * @param computed sizes of the package's computed slots so far, which plans share; extended
 * @throws PackageError
 */
export function parseSlots(
  c: Checker,
  json: Json | undefined,
  at: string,
  weights: ReadonlyMap<string, Pick<Weight, "bytes">>,
  computed: Map<string, number>,
): ManifestSlot[] {
  const names = new Set<string>();
  const slots = c.list(json, at).map((entry, s) => {
    const path = `${at}[${s}]`;
    const slot = parseSlot(c, entry, path, weights);
    const { name, kind, bytes } = slot;
    if (names.has(`${kind} ${name}`)) c.fail(path, `has the duplicate name '${name}'`);
    names.add(`${kind} ${name}`);
    if (kind === "computed") {
      if (weights.has(name)) c.fail(path, `has the same name as the weight '${name}'`);
      const other = computed.get(name) ?? bytes;
      if (other !== bytes) c.fail(path, `has ${bytes} bytes, but ${other} in another plan`);
      computed.set(name, bytes);
    }
    return slot;
  });
  const temps = slots.filter(({ kind }) => kind === "temp").length;
  if (temps > MAX_TEMPS) c.fail(at, `has ${temps} slots of kind 'temp'`);
  return slots;
}

function parseSlot(
  c: Checker,
  entry: Json,
  path: string,
  weights: ReadonlyMap<string, Pick<Weight, "bytes">>,
): ManifestSlot {
  const slot = c.object(entry, path);
  const name = c.text(slot.get("name"), `${path}.name`);
  const kind = c.oneOf(slot.get("kind"), `${path}.kind`, KINDS);
  const dtype = c.text(slot.get("dtype"), `${path}.dtype`);
  const shape = c.shape(slot.get("shape"), `${path}.shape`);
  const bytes = c.integer(slot.get("bytes"), `${path}.bytes`);
  if (kind === "weight") {
    const weight = weights.get(name);
    if (!weight) c.fail(path, `is the weight '${name}', which is not in the package`);
    if (weight.bytes !== bytes)
      c.fail(path, `has ${bytes} bytes, the weight '${name}' has ${weight.bytes}`);
  }
  if (
    kind === "state" &&
    (Object.hasOwn(STATE_SIZES, dtype) ? product(shape) * STATE_SIZES[dtype]! : -1) !== bytes
  )
    c.fail(
      path,
      `has ${bytes} bytes, which do not match ${dtype.slice(0, 40)} [${shape.join(", ")}]`,
    );
  return { name, kind: kind as ManifestSlot["kind"], dtype, shape, bytes };
}

/** Product of dimensions. */
export function product(shape: readonly number[]): number {
  return shape.reduce((n, d) => n * d, 1);
}
