// Scores of candidate labels and of masked tokens. Mirrors
// python/edgewise/logic/post/classification.py.

import { softmax } from "../classification.ts";

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
