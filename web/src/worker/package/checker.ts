// Checks JSON by the schema of manifests (python/edgewise/compiler/manifest/schema.py), as
// checker.py there does. Errors contain the path of the invalid value.

import { MAX_DEPTH, MAX_LIST, MAX_RANK, MAX_SIZE, MAX_TEXT } from "../../gen/manifest.ts";
import { type Node, RECORDS } from "../../gen/schema.ts";
import { PackageError } from "../../shared/errors.ts";

/** A parsed JSON value. */
export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

/** Checks JSON values. All methods throw PackageError. */
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

  /** Checks a value by a schema. */
  check(value: unknown, node: Node, path: string): void {
    if (node.kind === "any" || (value === null && node.null)) return;
    if (node.kind === "record") this.record(value, node.record!, path);
    else if (node.kind === "list") this.entries(value, node, path);
    else if (node.kind === "tuple")
      this.tuple(value, path, node.of!.length).forEach((entry, i) => {
        this.check(entry, node.of![i]!, `${path}[${i}]`);
      });
    else if (node.kind === "map") this.map(value, node, path);
    else if (node.kind === "variant") this.variant(value, node, path);
    else this.scalar(value, node, path);
  }

  /** Checks an object that has the fields of a record. `path`: "" for the manifest itself. */
  record(value: unknown, name: string, path: string): void {
    const fields = this.object(value, path);
    for (const [field, node] of Object.entries(RECORDS[name]!))
      if (fields.has(field) || !node.optional)
        this.check(fields.get(field) ?? null, node, path ? `${path}.${field}` : field);
  }

  private entries(value: unknown, node: Node, path: string): void {
    const list = this.list(value, path, node.high);
    if (list.length < node.low!) this.fail(path, `has ${list.length} entries`);
    list.forEach((entry, i) => {
      this.check(entry, node.of![0]!, `${path}[${i}]`);
    });
  }

  private map(value: unknown, node: Node, path: string): void {
    for (const [key, entry] of this.object(value, path)) {
      if (node.names!.length) this.text(key, `the name in ${path}`);
      this.check(entry, node.of![0]!, `${path}['${key}']`);
    }
  }

  /** The record whose `op` and `rule` the value has. */
  private variant(value: unknown, node: Node, path: string): void {
    const fields = this.object(value, path);
    const given = [fields.get("op"), fields.get("rule")].filter((x) => typeof x === "string");
    const name = node.names!.find((record) => {
      const tags = [RECORDS[record]!.op, RECORDS[record]!.rule].filter((tag) => tag !== undefined);
      return tags.map((tag) => tag.names![0]).join("\0") === given.join("\0");
    });
    if (!name) this.fail(path, `is the rule '${given.join(" ").slice(0, 40)}'`);
    this.record(value, name, path);
  }

  private scalar(value: unknown, node: Node, path: string): void {
    const { kind } = node;
    if (kind === "integer") this.integer(value, path, node.low, node.high);
    else if (kind === "number") this.number(value, path);
    else if (kind === "flag") {
      if (typeof value !== "boolean") this.fail(path, "is neither true nor false");
    } else if (kind === "text") {
      if (typeof value !== "string" || value.length > node.high!) this.fail(path, "is not a text");
    } else if (kind === "size or name") {
      if (typeof value !== "string") this.integer(value, path, node.low, node.high);
    } else if (kind === "choice") this.oneOf(value, path, node.names!);
    else if (kind === "digits") {
      const text = this.text(value, path);
      if (text.length !== node.high || !/^[0-9a-f]*$/.test(text))
        this.fail(path, `is not ${node.names![0]}`);
    } else this.text(value, path);
  }

  object(value: unknown, path: string): Map<string, Json> {
    if (typeof value !== "object" || value === null || Array.isArray(value))
      this.fail(path || "the manifest", "is not an object");
    return new Map(Object.entries(value as { [key: string]: Json }));
  }
  list(value: unknown, path: string, max = MAX_LIST): Json[] {
    if (!Array.isArray(value)) this.fail(path, "is not a list");
    if (value.length > max) this.fail(path, `has ${value.length} entries`);
    return value as Json[];
  }
  /** A list with exactly `count` entries. */
  tuple(value: unknown, path: string, count: number): Json[] {
    const list = this.list(value, path);
    if (list.length !== count) this.fail(path, `has ${list.length} entries, not ${count}`);
    return list;
  }
  text(value: unknown, path: string, max = MAX_TEXT): string {
    if (
      typeof value !== "string" ||
      !value.length ||
      value.length > max ||
      /\p{Surrogate}/u.test(value)
    )
      this.fail(path, "is not a name");
    return value;
  }
  /** One of the given names. */
  oneOf(value: unknown, path: string, among: readonly string[]): string {
    if (among.length === 1 && value !== among[0]) this.fail(path, `is not '${among[0]}'`);
    const text = this.text(value, path);
    if (!among.includes(text)) this.fail(path, `is '${text.slice(0, 40)}'`);
    return text;
  }
  integer(value: unknown, path: string, min = 0, max = MAX_SIZE): number {
    if (typeof value !== "number" || !Number.isSafeInteger(value))
      this.fail(path, "is not an integer");
    if (value < min || value > max) this.fail(path, `is ${value}, not between ${min} and ${max}`);
    return value;
  }
  number(value: unknown, path: string): number {
    if (typeof value !== "number" || !Number.isFinite(value)) this.fail(path, "is not a number");
    return value;
  }
  shape(value: unknown, path: string, max = MAX_RANK): number[] {
    return this.list(value, path, max).map((d, i) => this.integer(d, `${path}[${i}]`));
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
