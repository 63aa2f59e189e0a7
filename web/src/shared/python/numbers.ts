// Arithmetic that Python and JavaScript do differently.

import { ValueError } from "./errors.ts";
import { decimals, repr } from "./formats.ts";
import { strip } from "./texts.ts";

/** a % b, with the sign of b. */
export function mod(a: number, b: number): number {
  const rest = a % b;
  return rest !== 0 && rest < 0 !== b < 0 ? rest + b : rest;
}

// 0 has no sign in Python's integers.
export const trunc = (value: number): number => Math.trunc(value) + 0;
export const ceil = (value: number): number => Math.ceil(value) + 0;

export function divmod(a: number, b: number): [number, number] {
  return [Math.floor(a / b), mod(a, b)];
}

/** The nearest integer, of two the even one. */
export function nearest(value: number): number {
  const floor = Math.floor(value);
  const half = value - floor;
  if (half !== 0.5) return half < 0.5 ? floor : floor + 1;
  return floor % 2 === 0 ? floor : floor + 1;
}

/** Rounds half to even, as Python does: to an integer, or to a number of decimals. */
export function round(value: number, digits?: number | null): number {
  if (digits == null) return nearest(value);
  if (!Number.isFinite(value) || Math.abs(value) >= 1e21) return value;
  if (digits < 0) return round(value / 10 ** -digits) * 10 ** -digits;
  const made = Number(decimals(Math.abs(value), digits));
  return value < 0 ? -made : made;
}

export function isInfinite(value: number): boolean {
  return value === Number.POSITIVE_INFINITY || value === Number.NEGATIVE_INFINITY;
}

export function log(value: number, base?: number): number {
  return base === undefined ? Math.log(value) : Math.log(value) / Math.log(base);
}

export function gcd(a: number, b: number): number {
  let [x, y] = [Math.abs(a), Math.abs(b)];
  while (y) [x, y] = [y, x % y];
  return x;
}

export function copySign(value: number, sign: number): number {
  const negative = sign < 0 || Object.is(sign, -0);
  return negative ? -Math.abs(value) : Math.abs(value);
}

export function sum(values: Iterable<number | boolean>, start = 0): number {
  let total = start;
  for (const x of values) total += Number(x);
  return total;
}

/** int(x) of a number or a text. Throws a ValueError for a text that is none. */
export function int(value: unknown, base = 10): number {
  if (typeof value !== "string") return Math.trunc(Number(value));
  const text = strip(value).replaceAll("_", "");
  const digits = "0123456789abcdefghijklmnopqrstuvwxyz".slice(0, base);
  if (!new RegExp(`^[+-]?[${digits}]+$`, "i").test(text)) {
    throw new ValueError(`invalid literal for int() with base ${base}: ${repr(value)}`);
  }
  return Number.parseInt(text, base);
}

export function product(values: Iterable<number>): number {
  let made = 1;
  for (const x of values) made *= x;
  return made;
}

/** float(x) of a number or a text. Throws a ValueError for a text that is none. */
export function float(value: unknown): number {
  if (typeof value !== "string") return Number(value);
  const text = strip(value).toLowerCase();
  const named = /^([+-]?)(inf|infinity|nan)$/.exec(text);
  if (named) return named[2] === "nan" ? Number.NaN : Number(`${named[1]}Infinity`);
  if (!/^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/.test(text)) {
    throw new ValueError(`could not convert string to float: ${repr(value)}`);
  }
  return Number(text);
}
