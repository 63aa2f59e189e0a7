// Helpers that logic of pipelines uses, and that of language models does not: they are in
// worker-inference.js, not in worker.js (web/worker-parts.json).

import { ValueError } from "./errors.ts";
import { evenHalf, fixed, floatText, repr, str } from "./formats.ts";
import { length, ljust, rjust, substring, zfill } from "./texts.ts";
import type { Sequence } from "./types.ts";

/** format(x, spec), for numbers and texts: [0][width][,][.digits][f|g|e|%|d|x|s], and [<>^]. */
export function format(value: unknown, spec: string): string {
  const parts = /^([<>^])?([+])?(0)?(\d+)?(,)?(?:\.(\d+))?([fge%dxsb])?$/.exec(spec);
  if (!parts) throw new ValueError(`Invalid format specifier ${repr(spec)}`);
  const [, align, plus, zero, width, comma, digits, type] = parts;
  let text = formatted(value, type, digits === undefined ? undefined : Number(digits), spec);
  if (plus && Number(value) >= 0) text = `+${text}`;
  if (comma) text = text.replace(/\d+/, (d) => d.replace(/\B(?=(\d{3})+$)/g, ","));
  const size = Number(width ?? 0);
  if (zero) return zfill(text, size);
  const left = align === "<" || (align === undefined && typeof value === "string");
  if (align === "^") {
    const space = Math.max(size - length(text), 0);
    return " ".repeat(Math.floor(space / 2)) + text + " ".repeat(Math.ceil(space / 2));
  }
  return left ? ljust(text, size) : rjust(text, size);
}

function formatted(
  value: unknown,
  type: string | undefined,
  digits: number | undefined,
  spec: string,
): string {
  if (typeof value === "string") return digits === undefined ? value : substring(value, 0, digits);
  const x = Number(value);
  if (!Number.isFinite(x)) return floatText(x);
  if (type === "f") return fixed(x, digits ?? 6);
  if (type === "%") return `${fixed(x * 100, digits ?? 6)}%`;
  if (type === "d" || (type === undefined && digits === undefined)) return str(value);
  if (type === "x" || type === "b") return x.toString(type === "x" ? 16 : 2);
  if (type === "e") return exponent(exponential(x, digits ?? 6));
  if (type === "g" || type === undefined) return general(x, digits ?? 6);
  throw new ValueError(`Invalid format specifier ${repr(spec)}`);
}

/** As toExponential, as `decimals`. */
function exponential(value: number, digits: number): string {
  const [mantissa = "", power = ""] = value.toExponential(100).split("e");
  const kept = mantissa.slice(0, digits ? mantissa.length - 100 + digits : mantissa.length - 101);
  const rest = mantissa.slice(mantissa.length - 100 + digits);
  return evenHalf(kept, rest) ? `${kept}e${power}` : value.toExponential(digits);
}

function exponent(text: string): string {
  return text.replace(/e([+-])(\d)$/, "e$10$2");
}

function general(value: number, digits: number): string {
  const most = Math.max(digits, 1);
  const text = exponential(value, most - 1);
  const power = Number(text.slice(text.indexOf("e") + 1));
  if (power < -4 || power >= most) return exponent(text.replace(/\.?0+e/, "e"));
  const plain = fixed(value, Math.max(most - 1 - power, 0));
  return plain.includes(".") ? plain.replace(/\.?0+$/, "") : plain;
}

/** The sum of floats, rounded once: math.fsum (Shewchuk 1997). */
export function exactSum(values: Iterable<number>): number {
  const parts: number[] = [];
  for (let x of values) {
    let kept = 0;
    for (let y of parts) {
      if (Math.abs(x) < Math.abs(y)) [x, y] = [y, x];
      const high = x + y;
      const low = y - (high - x);
      if (low) parts[kept++] = low;
      x = high;
    }
    parts.length = kept;
    parts.push(x);
  }
  let at = parts.length;
  if (!at) return 0;
  let high = parts[--at] as number;
  let low = 0;
  while (at > 0) {
    const x = high;
    const y = parts[--at] as number;
    high = x + y;
    low = y - (high - x);
    if (low) break;
  }
  const next = parts[at - 1];
  if (at > 0 && next !== undefined && ((low < 0 && next < 0) || (low > 0 && next > 0))) {
    const twice = low * 2;
    const x = high + twice;
    if (twice === x - high) high = x;
  }
  return high;
}

/** type(a) is type(b), of values of JSON. */
export function sameType(a: unknown, b: unknown): boolean {
  const kind = (x: unknown) => (x === null ? "null" : Array.isArray(x) ? "list" : typeof x);
  if (typeof a === "number" && typeof b === "number")
    return Number.isInteger(a) === Number.isInteger(b);
  return kind(a) === kind(b);
}

/** values[start:end:step] */
export function slice<T>(
  values: Sequence<T>,
  start: number | null,
  end: number | null,
  step: number,
): T[] {
  const made: T[] = [];
  const n = values.length;
  const clip = (x: number, low: number, high: number) =>
    Math.min(Math.max(x < 0 ? x + n : x, low), high);
  if (step > 0) {
    const last = end === null ? n : clip(end, 0, n);
    for (let i = start === null ? 0 : clip(start, 0, n); i < last; i += step)
      made.push(values[i] as T);
  } else {
    const last = end === null ? -1 : clip(end, -1, n - 1);
    for (let i = start === null ? n - 1 : clip(start, -1, n - 1); i > last; i += step)
      made.push(values[i] as T);
  }
  return made;
}

type Writable = { length: number; [index: number]: unknown };

/** values[start:end:step] = given */
export function setSlice(
  values: Writable,
  given: Iterable<unknown>,
  start: number | null,
  end: number | null,
  step = 1,
): void {
  const n = values.length;
  const from = Math.min(start === null ? 0 : start < 0 ? Math.max(start + n, 0) : start, n);
  const to = Math.min(end === null ? n : end < 0 ? Math.max(end + n, 0) : end, n);
  if (Array.isArray(values) && step === 1) {
    values.splice(from, Math.max(to - from, 0), ...given);
    return;
  }
  let at = from;
  for (const x of given) {
    if (at >= to) throw new ValueError("the slice is shorter than what is assigned");
    values[at] = x;
    at += step;
  }
  if (at < to) throw new ValueError("the slice is longer than what is assigned");
}
