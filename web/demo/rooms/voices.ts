// Voices as unit vectors, and how well their recordings are told apart.

/** A vector of length 1. */
export function unit(vector: readonly number[]): number[] {
  const length = Math.hypot(...vector) || 1;
  return vector.map((x) => x / length);
}

/** The mean of unit vectors, as a unit vector. */
export function meanOf(vectors: readonly (readonly number[])[]): number[] {
  const sum = vectors[0]!.map((_, i) => vectors.reduce((total, v) => total + v[i]!, 0));
  return unit(sum);
}

/** Of unit vectors. */
export function cosine(a: readonly number[], b: readonly number[]): number {
  return a.reduce((sum, x, i) => sum + x * b[i]!, 0);
}

/**
 * Compares each recording with the voices, its own without this recording.
 * @param voices the vectors of each voice's recordings
 * @returns cosines with the own voice, and with others
 */
export function heldOut(voices: readonly (readonly number[][])[]): {
  same: number[];
  others: number[];
} {
  const means = voices.map((clips) => (clips.length ? meanOf(clips) : undefined));
  const same: number[] = [];
  const others: number[] = [];
  voices.forEach((clips, v) => {
    for (const clip of clips) {
      const rest = clips.filter((other) => other !== clip);
      if (rest.length) same.push(cosine(clip, meanOf(rest)));
      means.forEach((mean, w) => {
        if (mean && w !== v) others.push(cosine(clip, mean));
      });
    }
  });
  return { same, others };
}

/**
 * The equal error rate: where as many of `same` are below a threshold as of `others` are at or
 * above it, or the mean of both rates where they differ least. The threshold is the middle of those
 * that do as well.
 */
export function equalErrorRate(
  same: readonly number[],
  others: readonly number[],
): { rate: number; threshold: number } | undefined {
  if (!same.length || !others.length) return undefined;
  const all = [...new Set([...same, ...others])].sort((a, b) => a - b);
  const edges = [...all, all.at(-1)! + 1e-6];
  let best = { difference: 2, rate: 1, low: 0, high: 0 };
  edges.forEach((edge, i) => {
    const refused = same.filter((s) => s < edge).length / same.length;
    const accepted = others.filter((s) => s >= edge).length / others.length;
    const difference = Math.abs(refused - accepted);
    const rate = (refused + accepted) / 2;
    const low = i ? edges[i - 1]! : edge; // every threshold above this one does the same
    if (difference < best.difference || (difference === best.difference && rate < best.rate))
      best = { difference, rate, low, high: edge };
  });
  return { rate: best.rate, threshold: (best.low + best.high) / 2 };
}
