// What the logic of both hosts takes from its host: the counterpart of
// python/edgewise/logic/native.py.

import { checkSeed, randomSeed, seedOfRun } from "./seeds.ts";

export { random_words } from "./mersenne.ts";
export { sha256 } from "./sha256.ts";
export { meant } from "./words.ts";

/** A seed of 63 bits. Logic passes it on and does not compute with it. */
export type Seed = bigint;

/** The nearest float32. */
export const f32 = Math.fround;

/** The bytes of a float64, the highest first. */
export function fixed(value: number, digits: number): string {
  const exact = value.toFixed(60);
  const end = exact.length - 60 + digits;
  const even = Number(exact[end - 1]) % 2 === 0;
  return even && /^50*$/.test(exact.slice(end)) ? exact.slice(0, end) : value.toFixed(digits);
}

export function float64(value: number): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(8);
  new DataView(bytes.buffer).setFloat64(0, value);
  return bytes;
}

/** Positions of texts that come from the host, such as those of tokens, are in units of UTF-16. */
/** The first place of a byte from `start` on, before `stop`; -1 if there is none. */
export function next_one(data: Uint8Array, value: number, start: number, stop: number): number {
  const at = data.indexOf(value, start);
  return at < stop ? at : -1;
}

export function part(text: string, start: number, end: number): string {
  return text.slice(start, end);
}

/** The length of a text in the same units. */
export const size = (text: string): number => text.length;

/** The number of UTF-16 units of a text. */
export const units = size;

/** Whether a text has a lone surrogate. */
export const is_broken = (text: string): boolean => /\p{Surrogate}/u.test(text);

/** A text in Unicode's normalization form D. */
export const nfd = (text: string): string => text.normalize("NFD");

/** The bytes of base64; null if it is not valid. */
export function utf8_bytes(text: string): number[] {
  return [...new TextEncoder().encode(text)];
}

export function from_base64(text: string): Uint8Array<ArrayBuffer> | null {
  try {
    return Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  } catch {
    return null;
  }
}

/** The text of bytes in UTF-8; U+FFFD for what is not. */
export const utf8 = (data: ArrayLike<number>): string =>
  new TextDecoder("utf-8", { ignoreBOM: true }).decode(Uint8Array.from(data));

/** Parses JSON in UTF-8: [the value, ""] or [null, what is wrong], which completes a sentence. */
export function read_json(
  text: Uint8Array,
  _tooDeep: string, // this parser has room for any depth
): [unknown, string] {
  let decoded: string;
  try {
    decoded = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(text);
  } catch {
    return [null, "is not UTF-8"];
  }
  try {
    return [JSON.parse(decoded), ""];
  } catch {
    return [null, "is not JSON"];
  }
}

/** Bytes in base64url without padding. */
export const base64url = (data: Uint8Array): string =>
  btoa(String.fromCharCode(...data)).replace(/[+/=]/g, (c) => ({ "+": "-", "/": "_" })[c] ?? "");

/** The least float64 above a finite one. */
export function next_up(value: number): number {
  if (value === 0) return Number.MIN_VALUE;
  const bits = new BigInt64Array(Float64Array.of(value).buffer);
  bits[0] = (bits[0] as bigint) + (value > 0 ? 1n : -1n);
  return new Float64Array(bits.buffer)[0] as number;
}

/** The shortest decimal number that is read as a number of 0 or more, without an exponent. */
export function digits_of(value: number): string {
  const [digits = "", exponent = "0"] = String(value).split("e");
  if (exponent === "0") return digits;
  const [whole = "", fraction = ""] = digits.split(".");
  const point = whole.length + Number(exponent);
  const text = "0".repeat(Math.max(1 - point, 0)) + (whole + fraction).padEnd(point, "0");
  const at = Math.max(point, 1);
  return text.length > at ? `${text.slice(0, at)}.${text.slice(at)}` : text;
}

/** A value as JSON. */
export const written_json = (value: unknown): string => JSON.stringify(value);

/** (the number that JSON is, whether it is one) */
export function number_of(text: string): [unknown, boolean] {
  try {
    return [JSON.parse(text), true];
  } catch {
    return [null, false];
  }
}

/** The numbers below count in the order of the random numbers that follow from a seed. */
export function order(count: number, seed: Seed): number[] {
  return Array.from({ length: count }, (_, k): [bigint, number] => [seedOfRun(seed, k), k])
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([, k]) => k);
}

/** The seed of the random numbers of a run. */
export const seed_of_run: (seed: Seed, run: number) => Seed = seedOfRun;

/**
 * A seed of a caller; null: there is none.
 * @throws InputError if it is not one of 63 bits
 */
export function check_seed(value: unknown, where: string): Seed | null {
  return checkSeed(value, where) ?? null;
}

/** An unpredictable seed. */
export const random_seed: () => Seed = randomSeed;

/** The seed that is larger by `more`; 0 follows the largest one. */
export function seed_after(seed: Seed, more: number): Seed {
  return BigInt.asUintN(63, seed + BigInt(more));
}

/** The bits of the nearest float32, as an int32. */
export function float_bits(value: number): number {
  return new Int32Array(Float32Array.of(value).buffer)[0] as number;
}

/** The fields that a caller gave: undefined is none, unlike null. */
export function given(fields: Readonly<Record<string, unknown>>): [string, unknown][] {
  return Object.entries(fields).filter(([, value]) => value !== undefined);
}

/** The elements of a list, a typed array or a Set; null of other values. */
// biome-ignore lint/suspicious/noExplicitAny: as Python's list[Any]
export function listed(value: unknown): any[] | null {
  if (Array.isArray(value)) return value;
  const some = value instanceof Set || (ArrayBuffer.isView(value) && !(value instanceof DataView));
  return some ? Array.from(value as Iterable<unknown>) : null;
}

/** The frames of a video. */
// biome-ignore lint/suspicious/noExplicitAny: values of any type
export function frames(value: unknown): any[] | null {
  return Array.isArray(value) ? value : null;
}

/** A value in the host's language, for errors. */
export function written(value: unknown): string {
  try {
    const plain = typeof value === "bigint" || typeof value === "number"; // NaN is not null
    return plain ? String(value) : (JSON.stringify(value)?.slice(0, 200) ?? String(value));
  } catch {
    try {
      return String(value);
    } catch {
      return `a ${typeof value} that is too large to write`; // such as lists that nest too deeply
    }
  }
}

/** Where an option of a call is, for errors. */
export const option = (name: string): string => `options.${name}`;

/** How an option is set in the host's language. */
export function setting(name: string, value: unknown): string {
  return `${name}: ${written(value)}`;
}

/** The form that a seed has to have, if this one is none; else "". */
export function seed_fault(value: unknown): string {
  const fits =
    typeof value === "bigint"
      ? value >= -(2n ** 63n) && value < 2n ** 64n
      : Number.isSafeInteger(value);
  return fits ? "" : "an integer of 64 bits (above 2^53 as a BigInt)";
}

/** The low and the high 32 bits of a seed; of a random one if there is none. */
export function seed_words(seed: number | bigint | null): [number, number] {
  const bits = BigInt.asUintN(
    64,
    seed === null ? crypto.getRandomValues(new BigUint64Array(1))[0]! : BigInt(seed),
  );
  return [Number(bits & 0xffffffffn), Number(bits >> 32n)];
}

const METHODS = { u: "Uint32", i: "Int32", f: "Float32" } as const;

/** Numbers of four bytes each. kinds: a letter for each: u32, i32 or f32. */
export function packed(kinds: string, values: readonly number[]): Uint8Array<ArrayBuffer> {
  const view = new DataView(new ArrayBuffer(4 * values.length));
  values.forEach((value, i) => {
    view[`set${METHODS[kinds[i] as "u"]}`](4 * i, value, true);
  });
  return new Uint8Array(view.buffer);
}

/** The numbers that `packed` wrote, by names. */
export function unpacked(
  names: readonly string[],
  kinds: string,
  data: Uint8Array,
): Record<string, number> {
  const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
  const made: Record<string, number> = {};
  names.forEach((name, i) => {
    made[name] = view[`get${METHODS[kinds[i] as "u"]}`](4 * i, true);
  });
  return made;
}

/** The bytes of int32. */
export function int32_bytes(values: ArrayLike<number>): Uint8Array<ArrayBuffer> {
  return new Uint8Array(Int32Array.from(values).buffer);
}

/** The int32 in bytes. */
export function int32s(data: Uint8Array): number[] {
  return Array.from(new Int32Array(data.slice().buffer));
}

/** The bytes of float32. */
export function float32_bytes(values: Float32Array<ArrayBuffer>): Uint8Array<ArrayBuffer> {
  return new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
}

/** The float32 in bytes, as a copy. */
export function float32s(data: Uint8Array): Float32Array<ArrayBuffer> {
  return new Float32Array(data.slice().buffer);
}
