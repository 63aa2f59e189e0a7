// How fast the sides were: moving averages that are kept for the next visit.

import type { Where } from "./side.ts";

/** What was measured of a side. */
export interface SideRates {
  /** Calls that were measured. */
  readonly measured: number;
  /**
   * Milliseconds to the first token: of the cloud as they are, of the device per token of the
   * prompt (plus {@link OVERHEAD} for what does not depend on it).
   */
  readonly first: number;
  /** Mean distance of single calls from `first`. */
  readonly spread: number;
  /** Tokens per second after the first one; 0: not measured. */
  readonly rate: number;
  /** Share of the calls that failed, the last ones counting most: 0 to 1. */
  readonly failures: number;
}

/** Measurements of one call. */
export interface Measured {
  /** Milliseconds to the first token, without loading. */ first: number;
  /** Tokens of the prompt, as estimated. */ prompt: number;
  /** Tokens after the first one. */ tokens: number;
  /** Milliseconds that they took. */ rest: number;
}

/** Where measurements are kept: `localStorage`, or what has these of its methods. */
export type Keeper = Pick<Storage, "getItem" | "setItem">;

/** Tokens of a prompt that take as long as what a device does for any prompt. */
export const OVERHEAD = 16;
/** A call that takes longer than `first` and so many times `spread` is given up. */
export const SPREADS = 4;
const WEIGHT = 0.2; // of a new measurement
const FAILURE_WEIGHT = 0.05;
const FORGIVENESS = 0.02; // with each call of the other side
const NONE: SideRates = { measured: 0, first: 0, spread: 0, rate: 0, failures: 0 };

/** The rates of both sides. */
export class Rates {
  private sides: Record<Where, SideRates> = { device: NONE, cloud: NONE };

  /** @param key under which they are kept */
  constructor(
    private readonly keeper: Keeper | undefined,
    private readonly key: string,
  ) {
    try {
      const kept: unknown = JSON.parse(keeper?.getItem(key) ?? "{}");
      for (const where of ["device", "cloud"] as const) {
        const side = (kept as Record<Where, SideRates | undefined>)[where];
        if (valid(side)) this.sides[where] = side;
      }
    } catch {
      // storage that is not permitted or damaged: measured again
    }
  }

  /** What is known of a side. */
  of(where: Where): SideRates {
    return this.sides[where];
  }

  /** Takes a call that succeeded. */
  observe(where: Where, { first, prompt, tokens, rest }: Measured): void {
    const old = this.sides[where];
    const rate = tokens > 0 && rest > 0 ? (tokens / rest) * 1000 : 0;
    const other = where === "device" ? "cloud" : "device";
    const { failures, ...rates } = this.sides[other];
    this.sides = { ...this.sides, [other]: { ...rates, failures: failures * (1 - FORGIVENESS) } };
    this.set(where, {
      ...this.withFirst(where, first / units(where, prompt)),
      rate: !rate ? old.rate : old.rate ? old.rate + WEIGHT * (rate - old.rate) : rate,
      failures: old.failures * (1 - FAILURE_WEIGHT),
    });
  }

  /**
   * Takes a call that was ended before its first token: it would have taken longer. Much longer
   * than usual counts as a failure: a side that hangs is no slow side.
   */
  atLeast(where: Where, ms: number, prompt: number): void {
    const old = this.sides[where];
    const first = ms / units(where, prompt);
    if (old.measured && first > old.first + SPREADS * old.spread) this.failed(where);
    else if (!old.measured || first > old.first) this.set(where, this.withFirst(where, first));
  }

  /** Takes a call that failed. */
  failed(where: Where): void {
    const old = this.sides[where];
    this.set(where, { ...old, failures: old.failures + FAILURE_WEIGHT * (1 - old.failures) });
  }

  private withFirst(where: Where, first: number): SideRates {
    const old = this.sides[where];
    if (!old.measured) return { ...old, measured: 1, first, spread: first / 2 };
    return {
      ...old,
      measured: old.measured + 1,
      first: old.first + WEIGHT * (first - old.first),
      spread: old.spread + WEIGHT * (Math.abs(first - old.first) - old.spread),
    };
  }

  private set(where: Where, side: SideRates): void {
    this.sides = { ...this.sides, [where]: side };
    try {
      this.keeper?.setItem(this.key, JSON.stringify(this.sides));
    } catch {
      // full or not permitted: known for this visit only
    }
  }
}

/** By what the time to the first token is divided. */
export function units(where: Where, prompt: number): number {
  return where === "device" ? prompt + OVERHEAD : 1;
}

function valid(side: SideRates | undefined): side is SideRates {
  if (typeof side !== "object" || side === null) return false;
  const good = (x: unknown) => typeof x === "number" && x >= 0 && x < 1e9;
  return Object.keys(NONE).every((name) => good(side[name as keyof SideRates]));
}
