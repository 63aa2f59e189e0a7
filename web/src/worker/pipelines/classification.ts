// Scores of labels from logits. Mirrors python/edgewise/pipelines/post/classification.py.

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

/** The index of the label "entailment"; -1 if there is none. */
export function entailmentOf(label2id: Readonly<Record<string, number>>): number {
  const found = Object.entries(label2id).find(([label]) => /^entail/i.test(label));
  return found ? Number(found[1]) : -1;
}

/**
 * Scores of candidate labels from those of "the text entails the label".
 * @param logits of each label's pair of texts
 * @param entailment index of the class "entailment"; negative: from the end
 * @returns labels and scores, the highest first; of equal ones the later first, as in transformers
 */
export function zeroShot(
  logits: readonly (readonly number[])[],
  labels: readonly string[],
  entailment: number,
  multiLabel: boolean,
): [labels: string[], scores: number[]] {
  const entails = (row: readonly number[]) => row.at(entailment)!;
  const other = entailment === 0 ? -1 : 0;
  const scores =
    multiLabel || labels.length === 1
      ? logits.map((row) => softmax([row.at(other)!, entails(row)])[1]!)
      : softmax(logits.map(entails));
  const order = labels.map((_, i) => i).sort((a, b) => scores[b]! - scores[a]! || b - a);
  return [order.map((i) => labels[i]!), order.map((i) => scores[i]!)];
}

/**
 * The likeliest tokens of a masked position.
 * @param targets ids to choose from. Default: all
 * @returns ids with their probabilities among all tokens, the highest first
 */
export function fillMask(
  logits: ArrayLike<number>,
  topK: number,
  targets?: readonly number[],
): [id: number, score: number][] {
  const scores = softmax(logits);
  return (targets ?? scores.map((_, i) => i))
    .map((id): [number, number] => [id, scores[id]!])
    .sort((a, b) => b[1] - a[1])
    .slice(0, topK);
}
