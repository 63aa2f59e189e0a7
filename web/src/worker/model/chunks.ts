// How a prompt is divided into runs of a decoder's plans, each of which takes a fixed number of
// tokens. Mirrors python/edgewise/logic/generation/chunks.py;
// tests/conformance/chunks.json compares them.

/**
 * Relative cost of a run of `tokens` tokens. The unit is half the cost of each additional token in
 * a long run.
 */
export const runCost = (tokens: number): number => (tokens === 1 ? 9 : 20 + 2 * tokens);

/**
 * Number of tokens of the next run of a prompt: the first of the runs that process `count` tokens
 * at the lowest total cost, longest first. The last run may be padded, and then costs as much as a
 * full one.
 * @param sizes - tokens per run of the plans, in ascending order
 * @param count - remaining tokens of the prompt, at least one
 * @param past - tokens in the caches
 * @param maxLength - capacity of the caches
 * @returns one of `sizes`, or undefined if none of them fits behind `past`
 */
export function chooseRun(
  sizes: number[],
  count: number,
  past: number,
  maxLength: number,
): number | undefined {
  const fitting = sizes.filter((size) => past + size <= maxLength).reverse();
  let best = fitting[0];
  if (best === undefined || count >= best) return best;
  const costs = [0];
  for (let n = 1; n <= count; n++) {
    costs[n] = Infinity;
    for (const size of fitting) {
      const cost = runCost(size) + costs[Math.max(n - size, 0)]!;
      if (cost < costs[n]!) [costs[n], best] = [cost, size];
    }
  }
  return best;
}
