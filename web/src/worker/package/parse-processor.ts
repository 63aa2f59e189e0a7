// Validation of what a package says of its processor: python/edgewise/compiler/schema/processor.py.

import { MOST, PROCESSOR, RULES, type Type } from "../../gen/processor.ts";
import type { Checker, Json } from "./checker.ts";

/**
 * Checks `processor` of a manifest.
 * @throws PackageError
 */
export function parseProcessor(c: Checker, value: Json): { readonly [field: string]: Json } {
  check(c, value, PROCESSOR, "processor");
  return value as { [field: string]: Json };
}

function check(c: Checker, value: Json | undefined, type: Type, path: string): void {
  if (Array.isArray(type)) {
    const free = type.at(-1) === "*";
    const list = free || !type[1] ? c.list(value, path) : c.tuple(value, path, type.length);
    if (!list.length && !free) c.fail(path, "has 0 entries");
    list.forEach((entry, i) => check(c, entry, type[0], `${path}[${i}]`));
  } else if (typeof type === "object") {
    const of = type as { readonly [field: string]: Type };
    if (of["?"]) {
      if (value !== undefined && value !== null) check(c, value, of["?"], path);
      return;
    }
    const fields = c.object(value, path);
    for (const name of Object.keys(of)) check(c, fields.get(name), of[name]!, `${path}.${name}`);
  } else if (type === "number") c.number(value, path);
  else if (type === "count" || type === "size") c.integer(value, path, +(type === "count"), MOST);
  else if (type === "rule" || type === "resize") {
    const fields = c.object(value, path);
    const names = [fields.get("op"), fields.get("rule")];
    const name = names.filter((n) => typeof n === "string").join(" ");
    if (!Object.hasOwn(RULES, name) || (type === "resize" && !name.startsWith(type)))
      c.fail(path, `is the rule '${name.slice(0, 40)}'`);
    check(c, value, RULES[name]!, path);
  } else if (typeof value !== { text: "string", flag: "boolean" }[type as string])
    c.fail(path, `is not a ${type}`);
}
