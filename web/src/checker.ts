// Reads the JSON of manifests: every value is checked, and an error says where in the manifest it is wrong.

import { PackageError } from "./errors.ts";

/** Most that a page's memory holds. */
export const MAX_MEMORY = 0xffff_0000;

/** A weight's place: a part of the package or a file beside it, and bytes in it. */
export interface Weight { name: string; file: string; offset: number; bytes: number }
/** What a plan wants bound: python/edgewise/plan/plan.py has the kinds. */
export interface Slot {
  name: string;
  kind: "weight" | "computed" | "cache" | "state" | "input" | "output";
  dtype: string;
  shape: number[];
  bytes: number;
}

/** A parsed JSON value. */
export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

/** Reads JSON values and says where in the manifest something is wrong. */
export class Checker {
  constructor(private readonly where: string) {}

  fail(path: string, what: string): never {
    throw new PackageError(`${path} ${what}`, this.where, "The package is damaged or was made by another version: fetch it again, or build it again with `edgewise build`.");
  }
  object(value: Json | undefined, path: string): Map<string, Json> {
    if (typeof value !== "object" || value === null || Array.isArray(value)) this.fail(path, "is not an object");
    return new Map(Object.entries(value));
  }
  list(value: Json | undefined, path: string, max = 1_000_000): Json[] {
    if (!Array.isArray(value)) this.fail(path, "is not a list");
    if (value.length > max) this.fail(path, `has ${value.length} entries`);
    return value;
  }
  text(value: Json | undefined, path: string): string {
    if (typeof value !== "string" || !value.length || value.length > 4096) this.fail(path, "is not a name");
    return value;
  }
  integer(value: Json | undefined, path: string, min: number, max: number): number {
    if (typeof value !== "number" || !Number.isSafeInteger(value)) this.fail(path, "is not a whole number");
    if (value < min || value > max) this.fail(path, `is ${value}, not between ${min} and ${max}`);
    return value;
  }
  number(value: Json | undefined, path: string): number {
    if (typeof value !== "number" || !Number.isFinite(value)) this.fail(path, "is not a number");
    return value;
  }
  shape(value: Json | undefined, path: string): number[] {
    return this.list(value, path, 16).map((d, i) => this.integer(d, `${path}[${i}]`, 0, Number.MAX_SAFE_INTEGER));
  }
}

const KINDS = new Set(["weight", "computed", "cache", "state", "input", "output"]);

/** The fields that all slots have. */
export function parseSlot(c: Checker, entry: Json, path: string, weights: Map<string, Weight>): Slot {
  const slot = c.object(entry, path);
  const name = c.text(slot.get("name"), `${path}.name`);
  const kind = c.text(slot.get("kind"), `${path}.kind`);
  if (!KINDS.has(kind)) c.fail(`${path}.kind`, `is '${kind.slice(0, 40)}'`);
  const dtype = c.text(slot.get("dtype"), `${path}.dtype`);
  const shape = c.shape(slot.get("shape"), `${path}.shape`);
  const bytes = c.integer(slot.get("bytes"), `${path}.bytes`, 0, MAX_MEMORY);
  if (kind === "weight") {
    const weight = weights.get(name);
    if (!weight) c.fail(path, `is the weight '${name}', which is not in the package`);
    if (weight.bytes < bytes) c.fail(path, `needs ${bytes} bytes of the weight '${name}', which has ${weight.bytes}`);
  }
  return { name, kind: kind as Slot["kind"], dtype, shape, bytes };
}
