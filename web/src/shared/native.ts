// What the logic of both hosts takes from its host: the counterpart of
// python/edgewise/logic/native.py.

import { seedOfRun } from "./seeds.ts";

/** The nearest float32. */
export const f32 = Math.fround;

/** Positions of texts that come from the host, such as those of tokens, are in units of UTF-16. */
export function part(text: string, start: number, end: number): string {
  return text.slice(start, end);
}

/** The length of a text in the same units. */
export const size = (text: string): number => text.length;

/** The bytes of base64; null if it is not valid. */
export function from_base64(text: string): Uint8Array<ArrayBuffer> | null {
  try {
    return Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  } catch {
    return null;
  }
}

/** The least float64 above a finite one. */
export function next_up(value: number): number {
  if (value === 0) return Number.MIN_VALUE;
  const bits = new BigInt64Array(Float64Array.of(value).buffer);
  bits[0] = (bits[0] as bigint) + (value > 0 ? 1n : -1n);
  return new Float64Array(bits.buffer)[0] as number;
}

/** The numbers below count in the order of the random numbers that follow from a run of a seed. */
export function order(count: number, seed: number, run: number): number[] {
  const ofRun = seedOfRun(BigInt(seed), run);
  return Array.from({ length: count }, (_, k): [bigint, number] => [seedOfRun(ofRun, k), k])
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([, k]) => k);
}
