// Seeds of random numbers: one int64 per plan run determines what the engine draws. Mirrors
// python/edgewise/seeds.py.

import { InputError } from "./errors.ts";

const MASK64 = (1n << 64n) - 1n;
const MASK63 = (1n << 63n) - 1n;

/**
 * The seed of the random numbers of run number `run`: the finalizer of SplitMix64 (Steele, Lea,
 * Flood 2014).
 */
export function seedOfRun(seed: bigint, run: number): bigint {
  let z = (seed * 0x9e3779b97f4a7c15n + BigInt(run) + 1n) & MASK64;
  z = ((z ^ (z >> 30n)) * 0xbf58476d1ce4e5b9n) & MASK64;
  z = ((z ^ (z >> 27n)) * 0x94d049bb133111ebn) & MASK64;
  return (z ^ (z >> 31n)) & MASK63;
}

/** An unpredictable seed. */
export function randomSeed(): bigint {
  return crypto.getRandomValues(new BigUint64Array(1))[0]! & MASK63;
}

/**
 * Converts a caller's seed; undefined if there is none.
 * @throws InputError if it is not an integer from 0 to 2^63 - 1
 */
export function checkSeed(seed: unknown, where: string): bigint | undefined {
  if (seed === undefined || seed === null) return undefined;
  if (
    (typeof seed === "bigint" || Number.isSafeInteger(seed)) &&
    (seed as number) >= 0 &&
    BigInt(seed as number) <= MASK63
  )
    return BigInt(seed as number);
  throw new InputError(
    `${String(seed).slice(0, 40)} is not a valid seed`,
    where,
    "Give an integer from 0 to 2^63 - 1 (above 2^53 as a bigint), or leave it out for other " +
      "random numbers in each run.",
  );
}

/** The seeds of a run: each execution of a plan that draws random numbers takes the next one. */
export class RunSeeds {
  constructor(
    private seed: bigint | undefined,
    private taken = 0,
  ) {}

  /** The next seed of this run. */
  next(): bigint {
    this.seed ??= randomSeed();
    return seedOfRun(this.seed, this.taken++);
  }
}
