// What the logic of both hosts takes from its host: the counterpart of
// python/edgewise/logic/native.py.

import { seedOfRun } from "./seeds.ts";

/** A seed of 63 bits. Logic passes it on and does not compute with it. */
export type Seed = bigint;

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

const WORDS = 624; // size of MT19937's state
const SHIFT = 397;

/**
 * A function that returns the next 32 random bits: those of MT19937 (Matsumoto and Nishimura 1998),
 * seeded with the low 32 bits of seed + more, as PyTorch's generator is.
 */
export function random_words(seed: Seed, more: number): () => number {
  const state = new Uint32Array(WORDS);
  state[0] = Number(BigInt.asUintN(32, seed + BigInt(more)));
  for (let i = 1; i < WORDS; i++)
    state[i] = Math.imul(1812433253, state[i - 1]! ^ (state[i - 1]! >>> 30)) + i;
  let at = WORDS;
  return () => {
    if (at === WORDS) {
      for (let i = 0; i < WORDS; i++) {
        const y = (state[i]! & 0x80000000) | (state[(i + 1) % WORDS]! & 0x7fffffff);
        state[i] = state[(i + SHIFT) % WORDS]! ^ (y >>> 1) ^ (y & 1 ? 0x9908b0df : 0);
      }
      at = 0;
    }
    let y = state[at++]!;
    y ^= y >>> 11;
    y ^= (y << 7) & 0x9d2c5680;
    y ^= (y << 15) & 0xefc60000;
    return (y ^ (y >>> 18)) >>> 0;
  };
}
