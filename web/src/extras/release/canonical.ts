// Canonical JSON, over which TUF's signatures are: no spaces, names in ascending order, integers,
// and in texts only quotes and backslashes escaped (http://wiki.laptop.org/go/Canonical_JSON).

import { ReleaseError } from "./errors.ts";

const DEEPEST = 64;

function encode(value: unknown, where: string, depth = 0): string {
  if (depth > DEEPEST) throw new ReleaseError("format", "it is nested too deeply", where);
  if (typeof value === "string" && /\p{Surrogate}/u.test(value))
    throw new ReleaseError("format", "it has a text that is not Unicode", where);
  if (typeof value === "string") return `"${value.replace(/["\\]/g, "\\$&")}"`;
  if (value === null || typeof value === "boolean") return String(value);
  if (Number.isSafeInteger(value)) return String(value);
  if (Array.isArray(value)) return `[${value.map((x) => encode(x, where, depth + 1)).join(",")}]`;
  if (typeof value !== "object")
    throw new ReleaseError("format", `it has the number ${String(value)}`, where);
  const fields = Object.entries(value as object).sort(([a], [b]) => compare(a, b));
  const texts = fields.map(([k, v]) => `${encode(k, where)}:${encode(v, where, depth + 1)}`);
  return `{${texts.join(",")}}`;
}

/** By code points, as Python compares texts. */
function compare(a: string, b: string): number {
  const [x, y] = [[...a], [...b]];
  for (let i = 0; i < Math.min(x.length, y.length); i++)
    if (x[i] !== y[i]) return x[i]!.codePointAt(0)! - y[i]!.codePointAt(0)!;
  return x.length - y.length;
}

/**
 * The bytes that are signed for a value.
 * @throws ReleaseError if it has numbers that are no integers, or halves of characters, or is deep
 */
export function canonical(value: unknown, where: string): Uint8Array<ArrayBuffer> {
  return new TextEncoder().encode(encode(value, where));
}
