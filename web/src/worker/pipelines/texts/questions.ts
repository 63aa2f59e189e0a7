// Answers from the scores of their ends. Mirrors python/edgewise/logic/post/questions.py.

import { softmax } from "../classification.ts";

const MASKED = -10000;

/**
 * The likeliest spans of tokens.
 * @param allowed whether an answer may begin and end at a token
 * @returns spans (first token, last token, score), the highest first, and the score of no answer
 */
export function spansOf(
  start: ArrayLike<number>,
  end: ArrayLike<number>,
  allowed: readonly boolean[],
  topK: number,
  maxAnswerLength: number,
): [spans: [number, number, number][], none: number] {
  const scores = (logits: ArrayLike<number>) =>
    softmax(Array.from(logits, (x, i) => (allowed[i] ? x : MASKED)));
  const [begins, ends] = [scores(start), scores(end)];
  const none = begins[0]! * ends[0]!;
  begins[0] = ends[0] = 0;
  const spans: [number, number, number][] = [];
  begins.forEach((begin, i) => {
    if (!allowed[i] || !(begin > 0)) return;
    for (let j = i; j < Math.min(i + maxAnswerLength, ends.length); j++)
      if (allowed[j] && ends[j]! > 0) spans.push([i, j, begin * ends[j]!]);
  });
  spans.sort((a, b) => b[2] - a[2]);
  return [spans.slice(0, topK), none];
}

/** [start, end) of a span of tokens in the context. */
export function answerChars(
  offsets: readonly (readonly [number, number])[],
  words: readonly (number | undefined)[],
  sequences: readonly (number | undefined)[],
  [first, last]: readonly [number, number],
  alignToWords: boolean,
  context = 1,
): [number, number] {
  if (alignToWords && words[first] !== undefined && words[last] !== undefined) {
    const of = (word: number) =>
      offsets.filter((_, i) => words[i] === word && sequences[i] === context);
    const [begin, end] = [of(words[first]), of(words[last])];
    if (begin.length && end.length) return [begin[0]![0], end.at(-1)![1]];
  }
  return [offsets[first]![0], offsets[last]![1]];
}

/** An answer. */
export interface Answer {
  score: number;
  start: number;
  end: number;
  answer: string;
}

/**
 * Answers, the highest score first; the scores of equal texts are added.
 * @param candidates (start, end, score), in the order of the parts of the context
 * @param none the least score of no answer; undefined: there is always an answer
 */
export function mergeAnswers(
  candidates: readonly (readonly [number, number, number])[],
  context: string,
  topK: number,
  none?: number,
): Answer[] {
  const answers = new Map<string, Answer>();
  for (const [start, end, score] of candidates) {
    const answer = context.slice(start, end);
    const known = answers.get(answer.toLowerCase());
    if (known) known.score += score;
    else answers.set(answer.toLowerCase(), { score, start, end, answer });
  }
  const found = [...answers.values()];
  if (none !== undefined) found.push({ score: none, start: 0, end: 0, answer: "" });
  return found.sort((a, b) => b.score - a.score).slice(0, topK);
}
