// How good a head is. Mirrors python/edgewise/logic/personal/measures.py.

import type { Measures } from "../../../protocol/heads.ts";

/** Measures of the scores (by label) of examples whose labels are `truth`. */
export function measured(
  labels: readonly string[],
  truth: readonly string[],
  scores: readonly Readonly<Record<string, number>>[],
): Measures {
  const confusion = new Map<string, Map<string, number>>();
  let right = 0;
  truth.forEach((label, i) => {
    const row = scores[i]!;
    const guess = labels.reduce((best, name) => (row[name]! > row[best]! ? name : best));
    if (guess === label) right++;
    const of = confusion.get(label) ?? new Map<string, number>();
    confusion.set(label, of.set(guess, (of.get(guess) ?? 0) + 1));
  });
  const rates = new Map<string, { rate: number; threshold: number }>();
  for (const label of labels) {
    const same = scores.filter((_, i) => truth[i] === label).map((row) => row[label]!);
    const others = scores.filter((_, i) => truth[i] !== label).map((row) => row[label]!);
    if (same.length && others.length) rates.set(label, equalErrorRate(same, others));
  }
  const count = truth.length;
  return {
    accuracy: count ? right / count : null,
    count,
    confusion: Object.fromEntries([...confusion].map(([l, of]) => [l, Object.fromEntries(of)])),
    equal_error_rates: Object.fromEntries(rates),
  };
}

/**
 * Where as many of `same` are below a threshold as of `others` are at or above it, or the mean of
 * both rates where they differ least; the lowest such threshold.
 */
export function equalErrorRate(
  same: readonly number[],
  others: readonly number[],
): { rate: number; threshold: number } {
  const all = [...same, ...others];
  const above = nextUp(Math.max(...all));
  let best = { difference: 2, rate: 0, threshold: 0 };
  for (const threshold of [...new Set([...all, above])].sort((a, b) => a - b)) {
    const refused = same.filter((s) => s < threshold).length / same.length;
    const accepted = others.filter((s) => s >= threshold).length / others.length;
    const difference = Math.abs(refused - accepted);
    const rate = (refused + accepted) / 2;
    if (difference < best.difference || (difference === best.difference && rate < best.rate))
      best = { difference, rate, threshold };
  }
  return { rate: best.rate, threshold: best.threshold };
}

/** The next number above a positive one. */
function nextUp(x: number): number {
  const view = new DataView(new ArrayBuffer(8));
  view.setFloat64(0, x);
  view.setBigInt64(0, view.getBigInt64(0) + 1n);
  return x > 0 ? view.getFloat64(0) : Number.MIN_VALUE;
}
