// Classification by the nearest examples. Mirrors
// python/edgewise/host/pipelines/personal/scorers.py.

import type { Examples } from "./examples.ts";

/** The share of each label among the examples with the greatest cosines, weighted by them. */
export function nearest(
  { rows, classes, labels }: Pick<Examples, "rows" | "classes" | "labels">,
  features: Float32Array,
  neighbors: number,
): number[] {
  const own = length(features);
  const near = rows
    .map((row, i): [number, number] => {
      let sum = 0;
      for (let k = 0; k < row.length; k++) sum += row[k]! * features[k]!;
      return [sum / (own * length(row) || 1), classes[i]!];
    })
    .sort(([a], [b]) => b - a)
    .slice(0, neighbors);
  const scores = labels.map(() => 0);
  for (const [cosine, c] of near) scores[c]! += Math.max(cosine, 0);
  const total = scores.reduce((a, b) => a + b, 0);
  return total ? scores.map((s) => s / total) : scores;
}

function length(vector: Float32Array): number {
  let sum = 0;
  for (const x of vector) sum += x * x;
  return Math.sqrt(sum);
}
