// Scores of labels from logits. Mirrors python/edgewise/logic/post/classification.py.

import type { TaskHost } from "./host.ts";
import type { Options } from "./options.ts";
import { labelsOf } from "./outputs.ts";

/** Probabilities that add up to 1. */
export function softmax(logits: ArrayLike<number>): number[] {
  let most = -Infinity;
  for (let i = 0; i < logits.length; i++) most = Math.max(most, logits[i]!);
  const powers = Array.from(logits, (x) => Math.exp(x - most));
  const total = powers.reduce((a, b) => a + b, 0);
  return powers.map((p) => p / total);
}

/** Independent probabilities. */
export function sigmoid(logits: ArrayLike<number>): number[] {
  return Array.from(logits, (x) =>
    x >= 0 ? 1 / (1 + Math.exp(-x)) : Math.exp(x) / (1 + Math.exp(x)),
  );
}

/** The function from logits to scores that a model's configuration implies. */
export function functionFor(problemType: string | undefined, labels: number): string {
  if (problemType === "regression") return "none";
  return problemType === "multi_label_classification" || labels === 1 ? "sigmoid" : "softmax";
}

/** Scores of logits. `name`: "softmax", "sigmoid" or "none". */
export function scoresOf(logits: ArrayLike<number>, name: string): number[] {
  if (name === "softmax") return softmax(logits);
  return name === "sigmoid" ? sigmoid(logits) : Array.from(logits);
}

/** The labels with the highest scores, the highest first; `topK` null: all. */
export function best(
  scores: readonly number[],
  id2label: Readonly<Record<string, string>>,
  topK: number | null,
): { label: string; score: number }[] {
  return scores
    .map((score, i) => ({ label: labelOf(id2label, i), score }))
    .sort((a, b) => b.score - a.score)
    .slice(0, topK ?? undefined);
}

/** The name of a label. */
export function labelOf(id2label: Readonly<Record<string, string>>, index: number): string {
  return id2label[index] ?? `LABEL_${index}`;
}

/**
 * From logits to labels, as options and config say.
 * @param top default of `top_k`
 */
export function labeler(
  host: TaskHost,
  options: Options,
  top: number,
): (logits: Float32Array) => { label: string; score: number }[] {
  const topK = options.count("top_k", top, null);
  const choices = ["default", "softmax", "sigmoid", "none"] as const;
  const wanted = options.choice("function_to_apply", "default", choices);
  const kind = host.config().problem_type;
  return (logits) => {
    const own = functionFor(typeof kind === "string" ? kind : undefined, logits.length);
    const scores = scoresOf(logits, wanted === "default" ? own : wanted);
    return best(scores, labelsOf(host, logits.length), topK);
  };
}
