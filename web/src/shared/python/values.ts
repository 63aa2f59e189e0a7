// Truth, comparison, lists, dicts and sets, as Python has them.

import { KeyError, ValueError } from "./errors.ts";
import { repr } from "./formats.ts";
import { find, isPlain, ord } from "./texts.ts";
import type { Json, Loose, Sequence } from "./types.ts";

/** The position of a part in a text or of an element in a list. Throws a ValueError. */
export function index<T>(all: string | Sequence<T>, part: T | string, start = 0): number {
  let at = -1;
  if (typeof all === "string") at = find(all, part as string, start);
  else for (let i = start; i < all.length && at < 0; i++) if (equal(all[i], part)) at = i;
  if (at < 0) throw new ValueError("not found");
  return at;
}

export function countOf<T>(all: Iterable<T>, one: T): number {
  let found = 0;
  for (const x of all) if (equal(x, one)) found++;
  return found;
}

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
  if (isPlain(a) && isPlain(b)) return a < b ? -1 : 1;
  const [left, right] = [Array.from(a, ord), Array.from(b, ord)];
  return compare(left, right);
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
  const numeric = keyed.every(([x]) => typeof x === "number");
  const order = (numeric ? (a: number, b: number) => a - b : compare) as typeof compare;
  keyed.sort(([a], [b]) => (reverse ? order(b, a) : order(a, b)));
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
