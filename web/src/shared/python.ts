// What Python's built-in types do and JavaScript's do not: the helpers of the files that
// core/generate/logic prints from python/edgewise/logic. Texts count code points here, and numbers
// are written as Python writes them. Only what Python's annotations leave open comes here;
// everything else is printed as plain TypeScript.

/** Numbers or other elements that can be counted: arrays and typed arrays. */
export interface Sequence<T> extends Iterable<T> {
  readonly length: number;
  readonly [index: number]: T;
  slice(start?: number, end?: number): Sequence<T>;
  at(index: number): T | undefined;
  includes(value: T): boolean;
}

/** An object of JSON: `dict[str, Any]`. */
// biome-ignore lint/suspicious/noExplicitAny: its values are checked where they are read
export type Json = Record<string, any>;

type Loose<T> = Iterable<T> | ArrayLike<T>;

export class ValueError extends Error {}
/** Never thrown: 1 / 0 is infinite and the root of -1 not a number here. */
export class ArithmeticError extends Error {}
export class KeyError extends Error {}
export class IndexError extends Error {}
export class NotImplementedError extends Error {}
export class AssertionError extends Error {}

// Numbers

/** a % b, with the sign of b. */
export function mod(a: number, b: number): number {
  const rest = a % b;
  return rest !== 0 && rest < 0 !== b < 0 ? rest + b : rest;
}

export function divmod(a: number, b: number): [number, number] {
  return [Math.floor(a / b), mod(a, b)];
}

/** Rounds half to even, as Python does: to an integer, or to a number of decimals. */
export function round(value: number, digits?: number | null): number {
  if (digits == null) {
    const floor = Math.floor(value);
    const half = value - floor;
    if (half !== 0.5) return half < 0.5 ? floor : floor + 1;
    return floor % 2 === 0 ? floor : floor + 1;
  }
  if (!Number.isFinite(value)) return value;
  // toFixed rounds the exact decimal expansion, halves (which are exact) away from zero.
  const text = Math.abs(value).toFixed(digits);
  const scaled = Math.abs(value) * 10 ** digits;
  const tie = scaled % 1 === 0.5 && Number.isInteger(Math.abs(value) * 2 ** (digits + 1));
  const made = tie ? round(scaled) / 10 ** digits : Number(text);
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

// Texts. Positions are those of code points.

const PLAIN = /^[\0-\ud7ff\ue000-\uffff]*$/;

/** Code points of a text, elements of anything else. */
export function length(value: unknown): number {
  if (typeof value === "string") return PLAIN.test(value) ? value.length : Array.from(value).length;
  if (value instanceof Map || value instanceof Set) return value.size;
  if (Array.isArray(value) || ArrayBuffer.isView(value))
    return (value as ArrayLike<unknown> & object).length;
  return Object.keys(value as object).length;
}

/** text[at] */
export function character(text: string, at: number): string {
  const all = PLAIN.test(text) ? text : Array.from(text);
  const found = all.at(at);
  if (found === undefined) throw new IndexError("string index out of range");
  return found;
}

/** text[start:end] */
export function substring(text: string, start: number | null, end?: number | null): string {
  if (PLAIN.test(text)) return text.slice(start ?? 0, end ?? undefined);
  return Array.from(text)
    .slice(start ?? 0, end ?? undefined)
    .join("");
}

/** The position of code points at a position of UTF-16, and back. */
function toPoints(text: string, at: number): number {
  return at < 0 || PLAIN.test(text) ? at : Array.from(text.slice(0, at)).length;
}

export function find(text: string, part: string, start = 0, end?: number): number {
  const offset = substring(text, 0, start).length;
  const within = end === undefined ? text : substring(text, 0, end);
  return toPoints(text, within.indexOf(part, offset));
}

export function rfind(text: string, part: string, start = 0): number {
  const offset = substring(text, 0, start).length;
  const at = text.lastIndexOf(part);
  return at < offset ? -1 : toPoints(text, at);
}

/** The position of a part in a text or of an element in a list. Throws a ValueError. */
export function index<T>(all: string | Sequence<T>, part: T | string, start = 0): number {
  let at = -1;
  if (typeof all === "string") at = find(all, part as string, start);
  else for (let i = start; i < all.length && at < 0; i++) if (equal(all[i], part)) at = i;
  if (at < 0) throw new ValueError("not found");
  return at;
}

export function count(text: string, part: string): number {
  return part ? text.split(part).length - 1 : length(text) + 1;
}

export function countOf<T>(all: Iterable<T>, one: T): number {
  let found = 0;
  for (const x of all) if (equal(x, one)) found++;
  return found;
}

export function startswith(text: string, part: string | readonly string[], start = 0): boolean {
  const at = start ? substring(text, 0, start).length : 0;
  return typeof part === "string"
    ? text.startsWith(part, at)
    : part.some((x) => text.startsWith(x, at));
}

export function endswith(text: string, part: string | readonly string[]): boolean {
  return typeof part === "string" ? text.endsWith(part) : part.some((x) => text.endsWith(x));
}

export function removeprefix(text: string, part: string): string {
  return text.startsWith(part) ? text.slice(part.length) : text;
}

export function removesuffix(text: string, part: string): string {
  return part && text.endsWith(part) ? text.slice(0, -part.length) : text;
}

// White space of Python's str: Unicode's White_Space and the four separators of information.
const SPACES =
  "\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000";
const LEADING = new RegExp(`^[${SPACES}]+`);
const TRAILING = new RegExp(`[${SPACES}]+$`);
const BETWEEN = new RegExp(`[${SPACES}]+`);
const ONLY = new RegExp(`^[${SPACES}]+$`);

function trimmed(
  text: string,
  characters: string | undefined,
  left: boolean,
  right: boolean,
): string {
  if (characters === undefined) {
    const cut = left ? text.replace(LEADING, "") : text;
    return right ? cut.replace(TRAILING, "") : cut;
  }
  const all = Array.from(text);
  const taken = new Set(characters);
  let [from, to] = [0, all.length];
  while (left && from < to && taken.has(all[from] as string)) from++;
  while (right && to > from && taken.has(all[to - 1] as string)) to--;
  return all.slice(from, to).join("");
}

export function strip(text: string, characters?: string): string {
  return trimmed(text, characters, true, true);
}

export function lstrip(text: string, characters?: string): string {
  return trimmed(text, characters, true, false);
}

export function rstrip(text: string, characters?: string): string {
  return trimmed(text, characters, false, true);
}

export function split(text: string, at?: string | null, most = -1): string[] {
  if (at == null) {
    const all = strip(text);
    if (!all) return [];
    if (most < 0) return all.split(BETWEEN);
    const parts: string[] = [];
    let rest = all;
    while (parts.length < most) {
      const found = BETWEEN.exec(rest);
      if (!found) break;
      parts.push(rest.slice(0, found.index));
      rest = rest.slice(found.index + found[0].length);
    }
    return [...parts, rstrip(rest)];
  }
  const parts = text.split(at);
  return most < 0 || parts.length <= most + 1
    ? parts
    : [...parts.slice(0, most), parts.slice(most).join(at)];
}

export function rsplit(text: string, at: string, most = -1): string[] {
  const parts = text.split(at);
  const first = parts.length - most;
  return most < 0 || first <= 1 ? parts : [parts.slice(0, first).join(at), ...parts.slice(first)];
}

// biome-ignore lint/suspicious/noControlCharactersInRegex: they end lines in Python
const LINE_ENDS = /\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]/;

export function splitlines(text: string): string[] {
  const parts = text.split(LINE_ENDS);
  if (parts.at(-1) === "") parts.pop();
  return parts;
}

export function partition(text: string, at: string): [string, string, string] {
  const i = text.indexOf(at);
  return i < 0 ? [text, "", ""] : [text.slice(0, i), at, text.slice(i + at.length)];
}

export function rpartition(text: string, at: string): [string, string, string] {
  const i = text.lastIndexOf(at);
  return i < 0 ? ["", "", text] : [text.slice(0, i), at, text.slice(i + at.length)];
}

export function isspace(text: string): boolean {
  return ONLY.test(text);
}

export function isdigit(text: string): boolean {
  return /^[\p{Nd}\u00b2\u00b3\u00b9\u2070\u2074-\u2079\u2080-\u2089]+$/u.test(text);
}

export function isdecimal(text: string): boolean {
  return /^\p{Nd}+$/u.test(text);
}

export function isalpha(text: string): boolean {
  return /^\p{L}+$/u.test(text);
}

export function isalnum(text: string): boolean {
  return /^[\p{L}\p{N}]+$/u.test(text);
}

export function isupper(text: string): boolean {
  return text !== text.toLowerCase() && text === text.toUpperCase();
}

export function islower(text: string): boolean {
  return text !== text.toUpperCase() && text === text.toLowerCase();
}

export function zfill(text: string, width: number): string {
  const sign = /^[+-]/.test(text) ? text.slice(0, 1) : "";
  return sign + text.slice(sign.length).padStart(width - sign.length, "0");
}

export function ljust(text: string, width: number): string {
  return text + " ".repeat(Math.max(width - length(text), 0));
}

export function rjust(text: string, width: number): string {
  return " ".repeat(Math.max(width - length(text), 0)) + text;
}

export function ord(text: string): number {
  return text.codePointAt(0) as number;
}

// Texts of values

/** A float as Python writes it. */
function floatText(value: number): string {
  if (Number.isNaN(value)) return "nan";
  if (!Number.isFinite(value)) return value < 0 ? "-inf" : "inf";
  if (Object.is(value, -0)) return "-0.0";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-4 || size >= 1e16)) {
    return value.toExponential().replace(/e([+-])(\d)$/, "e$10$2");
  }
  const text = String(value);
  return Number.isInteger(value) ? `${text}.0` : text;
}

/** str(x); `isFloat`: whether a number is a float, which is written with a point. */
export function str(value: unknown, isFloat = false): string {
  if (value instanceof Error) return value.message;
  return typeof value === "string" ? value : repr(value, isFloat);
}

/** repr(x) */
export function repr(value: unknown, isFloat = false): string {
  if (value == null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value === "number") {
    return isFloat || !Number.isInteger(value) || Object.is(value, -0)
      ? floatText(value)
      : String(value);
  }
  if (typeof value === "string") return quoted(value);
  if (Array.isArray(value)) return `[${value.map((x) => repr(x)).join(", ")}]`;
  if (value instanceof Set)
    return value.size ? `{${[...value].map((x) => repr(x)).join(", ")}}` : "set()";
  const entries = value instanceof Map ? [...value] : Object.entries(value as object);
  if (value instanceof Map || Object.getPrototypeOf(value) === Object.prototype) {
    return `{${entries.map(([k, v]) => `${repr(k)}: ${repr(v)}`).join(", ")}}`;
  }
  return String(value);
}

const ESCAPES: Readonly<Record<string, string>> = {
  "\\": "\\\\",
  "\n": "\\n",
  "\r": "\\r",
  "\t": "\\t",
};

function quoted(text: string): string {
  const mark = text.includes("'") && !text.includes('"') ? '"' : "'";
  let out = "";
  for (const c of text) {
    const code = c.codePointAt(0) as number;
    if (c === mark) out += `\\${c}`;
    else if (ESCAPES[c]) out += ESCAPES[c];
    else if (/^[\p{L}\p{M}\p{N}\p{P}\p{S} ]$/u.test(c)) out += c;
    else if (code < 256) out += `\\x${code.toString(16).padStart(2, "0")}`;
    else if (code < 65536) out += `\\u${code.toString(16).padStart(4, "0")}`;
    else out += `\\U${code.toString(16).padStart(8, "0")}`;
  }
  return mark + out + mark;
}

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
  if (type === "f") return round(x, digits ?? 6).toFixed(digits ?? 6);
  if (type === "%") return `${round(x * 100, digits ?? 6).toFixed(digits ?? 6)}%`;
  if (type === "d" || (type === undefined && digits === undefined)) return str(value);
  if (type === "x" || type === "b") return x.toString(type === "x" ? 16 : 2);
  if (type === "e") return exponent(x.toExponential(digits ?? 6));
  if (type === "g" || type === undefined) return general(x, digits ?? 6);
  throw new ValueError(`Invalid format specifier ${repr(spec)}`);
}

function exponent(text: string): string {
  return text.replace(/e([+-])(\d)$/, "e$10$2");
}

function general(value: number, digits: number): string {
  const most = Math.max(digits, 1);
  const text = value.toExponential(most - 1);
  const power = Number(text.slice(text.indexOf("e") + 1));
  if (power < -4 || power >= most) return exponent(text.replace(/\.?0+e/, "e"));
  const fixed = value.toFixed(Math.max(most - 1 - power, 0));
  return fixed.includes(".") ? fixed.replace(/\.?0+$/, "") : fixed;
}

// Truth and comparison

/** Whether Python takes a value for true. */
export function truth(value: unknown): boolean {
  if (value === null || value === undefined) return false;
  if (typeof value === "number") return value !== 0;
  if (typeof value !== "object") return Boolean(value);
  if (value instanceof Map || value instanceof Set) return value.size > 0;
  if (Array.isArray(value) || ArrayBuffer.isView(value))
    return (value as ArrayLike<unknown> & object).length > 0;
  return Object.getPrototypeOf(value) === Object.prototype ? Object.keys(value).length > 0 : true;
}

export function any(values: Iterable<unknown>): boolean {
  for (const x of values) if (truth(x)) return true;
  return false;
}

export function all(values: Iterable<unknown>): boolean {
  for (const x of values) if (!truth(x)) return false;
  return true;
}

/** a == b of lists, sets, dicts and what they hold. */
export function equal(a: unknown, b: unknown): boolean {
  if (a === b || (a == null && b == null)) return true;
  if (typeof a !== "object" || typeof b !== "object" || !a || !b) return false;
  if (isList(a) || isList(b)) {
    if (!isList(a) || !isList(b) || a.length !== b.length) return false;
    for (let i = 0; i < a.length; i++) if (!equal(a[i], b[i])) return false;
    return true;
  }
  if (a instanceof Set) return b instanceof Set && a.size === b.size && isSubset(a, b);
  if (a instanceof Map || b instanceof Map) {
    if (!(a instanceof Map && b instanceof Map) || a.size !== b.size) return false;
    for (const [k, v] of a) if (!b.has(k) || !equal(v, b.get(k))) return false;
    return true;
  }
  const [left, right] = [a as Json, b as Json];
  const names = Object.keys(left);
  if (names.length !== Object.keys(right).length) return false;
  return names.every((n) => Object.hasOwn(right, n) && equal(left[n], right[n]));
}

function isList(value: unknown): value is ArrayLike<unknown> & object {
  return Array.isArray(value) || (ArrayBuffer.isView(value) && !(value instanceof DataView));
}

/** Less than 0, 0 or more than 0: the order of numbers, texts and tuples of them. */
export function compare(a: unknown, b: unknown): number {
  if (typeof a === "number" || typeof a === "boolean") return Number(a) - Number(b);
  if (typeof a === "string") return compareTexts(a, b as string);
  const [left, right] = [a as ArrayLike<unknown>, b as ArrayLike<unknown>];
  for (let i = 0; i < Math.min(left.length, right.length); i++) {
    if (!equal(left[i], right[i])) return compare(left[i], right[i]);
  }
  return left.length - right.length;
}

function compareTexts(a: string, b: string): number {
  if (a === b) return 0;
  if (PLAIN.test(a) && PLAIN.test(b)) return a < b ? -1 : 1;
  const [left, right] = [Array.from(a, ord), Array.from(b, ord)];
  return compare(left, right);
}

/** type(a) is type(b), of values of JSON. */
export function sameType(a: unknown, b: unknown): boolean {
  const kind = (x: unknown) => (x === null ? "null" : Array.isArray(x) ? "list" : typeof x);
  if (typeof a === "number" && typeof b === "number")
    return Number.isInteger(a) === Number.isInteger(b);
  return kind(a) === kind(b);
}

/** Whether a value of JSON is an integer. 1.0 is one here: JSON does not tell them apart. */
export function isInt(value: unknown): value is number {
  return Number.isInteger(value);
}

/** Whether a value of JSON is an object. */
export function isObject(value: unknown): value is Json {
  return (
    typeof value === "object" &&
    value !== null &&
    !Array.isArray(value) &&
    !ArrayBuffer.isView(value)
  );
}

// Lists

export function list<T>(values: Loose<T>): T[] {
  return Array.from(values as ArrayLike<T>);
}

/** x in values */
export function contains(values: unknown, one: unknown): boolean {
  if (typeof values === "string") return values.includes(one as string);
  if (values instanceof Map || values instanceof Set) return values.has(one);
  if (isObject(values)) return Object.hasOwn(values, one as string);
  for (const x of values as Iterable<unknown>) if (equal(x, one)) return true;
  return false;
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

/** del values[start:end] */
export function removeSlice(values: unknown[], start: number, end: number): void {
  const from = start < 0 ? Math.max(start + values.length, 0) : start;
  const to = end < 0 ? end + values.length : end;
  values.splice(from, Math.max(to - from, 0));
}

export function extend<T>(values: T[], more: Iterable<T>): void {
  for (const x of [...more]) values.push(x);
}

export function remove<T>(values: T[], one: T): void {
  values.splice(index(values, one), 1);
}

export function repeated<T>(values: Sequence<T>, times: number): T[] {
  const made: T[] = [];
  for (let i = 0; i < times; i++) for (const x of values) made.push(x);
  return made;
}

export function range(start: number, end?: number, step = 1): number[] {
  const [from, to] = end === undefined ? [0, start] : [start, end];
  return Array.from(
    { length: Math.max(Math.ceil((to - from) / step), 0) },
    (_, i) => from + i * step,
  );
}

export function enumerate<T>(values: Iterable<T>, start = 0): [number, T][] {
  return Array.from(values, (x, i): [number, T] => [start + i, x]);
}

export function zip<A>(a: Iterable<A>): [A][];
export function zip<A, B>(a: Iterable<A>, b: Iterable<B>): [A, B][];
export function zip<A, B, C>(a: Iterable<A>, b: Iterable<B>, c: Iterable<C>): [A, B, C][];
export function zip<A, B, C, D>(
  a: Iterable<A>,
  b: Iterable<B>,
  c: Iterable<C>,
  d: Iterable<D>,
): [A, B, C, D][];
// biome-ignore lint/suspicious/noExplicitAny: as Python's zip of any number of iterables
export function zip(...all: Iterable<any>[]): any[][];
export function zip(...all: Iterable<unknown>[]): unknown[][] {
  const lists = all.map((x) => list(x));
  const n = lists.length ? Math.min(...lists.map((x) => x.length)) : 0;
  return Array.from({ length: n }, (_, i) => lists.map((x) => x[i]));
}

export function reversed<T>(values: Loose<T>): T[] {
  return list(values).reverse();
}

export function filter<T>(test: ((x: T) => unknown) | null, values: Iterable<T>): T[] {
  return [...values].filter((x) => truth(test ? test(x) : x));
}

interface Order<T> {
  key?: ((x: T) => unknown) | null;
  reverse?: boolean;
}

export function sorted<T>(
  values: Iterable<T>,
  { key = null, reverse = false }: Order<T> = {},
): T[] {
  const keyed = Array.from(values, (x): [unknown, T] => [key ? key(x) : x, x]);
  keyed.sort(([a], [b]) => (reverse ? compare(b, a) : compare(a, b)));
  return keyed.map(([, x]) => x);
}

export function sort<T>(values: T[], order: Order<T> = {}): void {
  const made = sorted(values, order);
  for (let i = 0; i < made.length; i++) values[i] = made[i] as T;
}

interface Extreme<T, D> {
  key?: ((x: T) => unknown) | null;
  default?: D;
}

function extreme<T, D>(values: Iterable<T>, sign: number, options: Extreme<T, D>): T | D {
  const { key } = options;
  let best: T | undefined;
  let rank: unknown;
  let some = false;
  for (const x of values) {
    const own = key ? key(x) : x;
    if (!some || sign * compare(own, rank) > 0) [best, rank, some] = [x, own, true];
  }
  if (some) return best as T;
  if (!("default" in options)) throw new ValueError("the values of max or min are empty");
  return options.default as D;
}

/** The first of the largest. */
export function max<T, D = never>(values: Iterable<T>, options: Extreme<T, D> = {}): T | D {
  return extreme(values, 1, options);
}

/** The first of the smallest. */
export function min<T, D = never>(values: Iterable<T>, options: Extreme<T, D> = {}): T | D {
  return extreme(values, -1, options);
}

export function product(values: Iterable<number>): number {
  let made = 1;
  for (const x of values) made *= x;
  return made;
}

export function iterator<T>(values: Iterable<T>): Iterator<T> {
  return values[Symbol.iterator]();
}

/** The first of what a generator gives. */
export function first<T, D = never>(values: Iterable<T>, ...other: D[]): T | D {
  return next(iterator(values), ...other);
}

export function next<T, D = never>(values: Iterator<T>, ...other: D[]): T | D {
  const { value, done } = values.next();
  if (!done) return value;
  if (!other.length) throw new ValueError("the iterator has ended");
  return other[0] as D;
}

// Dicts and sets

/** d.get(key, other) of an object of JSON or a Map. */
// biome-ignore lint/suspicious/noExplicitAny: as Python's dict[str, Any].get
export function get(values: Json | Map<any, any>, key: any, other: any = null): any {
  if (values instanceof Map) return values.has(key) ? values.get(key) : other;
  return Object.hasOwn(values, key) ? values[key] : other;
}

export function setDefault<K, V>(values: Map<K, V> | Json, key: K, other: V): V {
  if (values instanceof Map) {
    if (!values.has(key)) values.set(key, other);
    return values.get(key) as V;
  }
  if (!Object.hasOwn(values, key as string)) values[key as string] = other;
  return values[key as string];
}

export function pop<K, V, D = never>(values: Map<K, V> | Json, key: K, ...other: D[]): V | D {
  const has = values instanceof Map ? values.has(key) : Object.hasOwn(values, key as string);
  if (!has) {
    if (!other.length) throw new KeyError(repr(key));
    return other[0] as D;
  }
  const value = values instanceof Map ? (values.get(key) as V) : values[key as string];
  if (values instanceof Map) values.delete(key);
  else delete values[key as string];
  return value;
}

export function update<T>(values: Set<T>, more: Iterable<T>): void;
export function update<K, V>(values: Map<K, V>, more: Iterable<[K, V]>): void;
export function update(
  values: Set<unknown> | Map<unknown, unknown>,
  more: Iterable<unknown>,
): void {
  if (values instanceof Set) for (const x of more) values.add(x);
  else for (const [k, v] of more as Iterable<[unknown, unknown]>) values.set(k, v);
}

/** An object of JSON from pairs; "__proto__" is a key like others. */
export function record(pairs: Iterable<readonly [string, unknown]>): Json {
  const made: Json = {};
  for (const [k, v] of pairs) {
    Object.defineProperty(made, k, {
      value: v,
      writable: true,
      enumerable: true,
      configurable: true,
    });
  }
  return made;
}

export function set<T>(values: Iterable<T> = []): Set<T> {
  return new Set(values);
}

export function union<T>(a: ReadonlySet<T>, b: Iterable<T>): Set<T> {
  return new Set([...a, ...b]);
}

export function intersection<T>(a: ReadonlySet<T>, b: Iterable<T>): Set<T> {
  const other = new Set(b);
  return new Set([...a].filter((x) => other.has(x)));
}

export function difference<T>(a: ReadonlySet<T>, b: Iterable<T>): Set<T> {
  const other = new Set(b);
  return new Set([...a].filter((x) => !other.has(x)));
}

export function exclusive<T>(a: ReadonlySet<T>, b: ReadonlySet<T>): Set<T> {
  return union(difference(a, b), difference(b, a));
}

export function isSubset<T>(a: Iterable<T>, b: Iterable<T>): boolean {
  const other = new Set(b);
  return [...a].every((x) => other.has(x));
}

export function isDisjoint<T>(a: Iterable<T>, b: Iterable<T>): boolean {
  const other = new Set(b);
  return ![...a].some((x) => other.has(x));
}

// Bytes

export function joined(...parts: Uint8Array[]): Uint8Array {
  const made = new Uint8Array(parts.reduce((n, x) => n + x.length, 0));
  let at = 0;
  for (const x of parts) {
    made.set(x, at);
    at += x.length;
  }
  return made;
}

export function encode(text: string, encoding = "utf-8"): Uint8Array {
  if (encoding.startsWith("utf")) return new TextEncoder().encode(text);
  return Uint8Array.from(Array.from(text, ord));
}

/** Throws a ValueError where the bytes are no text, unless errors are replaced. */
export function decode(bytes: Uint8Array, encoding = "utf-8", errors = "strict"): string {
  if (encoding.startsWith("utf")) {
    try {
      return new TextDecoder("utf-8", { fatal: errors === "strict", ignoreBOM: true }).decode(
        bytes,
      );
    } catch {
      throw new ValueError("the bytes are not UTF-8");
    }
  }
  return Array.from(bytes, (x) => String.fromCharCode(x)).join("");
}

export function hex(bytes: Uint8Array): string {
  return Array.from(bytes, (x) => x.toString(16).padStart(2, "0")).join("");
}

export function bytesOf(values: ArrayBufferView): Uint8Array {
  return new Uint8Array(values.buffer, values.byteOffset, values.byteLength).slice();
}

export function startsWith(bytes: Uint8Array, part: Uint8Array): boolean {
  return part.every((x, i) => bytes[i] === x);
}

/** int.from_bytes; at most 6 bytes. */
export function intFromBytes(bytes: Sequence<number>, order: string): number {
  let made = 0;
  const all = order === "little" ? [...bytes].reverse() : bytes;
  for (const x of all) made = made * 256 + x;
  return made;
}

// Regular expressions, which the printer writes with the flag u

export function fullMatch(pattern: RegExp, text: string): RegExpExecArray | null {
  return new RegExp(`^(?:${pattern.source})$`, pattern.flags).exec(text);
}

export function match(pattern: RegExp, text: string): RegExpExecArray | null {
  return new RegExp(`^(?:${pattern.source})`, pattern.flags).exec(text);
}
