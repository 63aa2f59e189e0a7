// Entities from the scores of tokens. Mirrors python/edgewise/logic/post/tokens.py.

import { labelOf } from "../classification.ts";

/** How tokens become entities. */
export const STRATEGIES = ["none", "simple", "first", "average", "max"] as const;
/** One of them. */
export type Strategy = (typeof STRATEGIES)[number];

/** A token with the probabilities of its labels. */
export interface Scored {
  /** The token, or the text if the token is unknown. */
  word: string;
  scores: readonly number[];
  start: number;
  end: number;
  /** Of the token in its encoding. */
  index: number;
  /** Whether it continues the word of the token before. */
  isSubword: boolean;
}

/** An entity; with a strategy other than "none" it has `entity_group` and no `index`. */
export interface Entity {
  entity?: string;
  entity_group?: string;
  score: number;
  index?: number;
  word: string;
  start: number;
  end: number;
}

/** Whether a token continues a word; `hasPrefix`: the tokenizer marks such tokens ("##"). */
export function isSubword(
  text: string,
  token: string,
  start: number,
  end: number,
  hasPrefix: boolean,
): boolean {
  if (hasPrefix) return token.length !== end - start;
  return start > 0 && !text.slice(start - 1, start + 1).includes(" ");
}

/** The entities of an encoding. */
export function entitiesOf(
  tokens: readonly Scored[],
  id2label: Readonly<Record<string, string>>,
  strategy: Strategy,
  ignored: readonly string[],
  join: (tokens: string[]) => string,
): Entity[] {
  const entities =
    strategy === "none" || strategy === "simple"
      ? tokens.map((t) => entityOf(t, id2label))
      : wordsOf(tokens).map((w) => wordEntity(w, id2label, strategy, join));
  const found = strategy === "none" ? entities : grouped(entities, join);
  return found.filter(
    (e) => !ignored.includes(e.entity ?? "") && !ignored.includes(e.entity_group ?? ""),
  );
}

const argmax = (scores: readonly number[]): number => scores.indexOf(Math.max(...scores));

function entityOf(
  { scores, index, word, start, end }: Scored,
  id2label: Readonly<Record<string, string>>,
): Entity {
  const at = argmax(scores);
  return { entity: labelOf(id2label, at), score: scores[at]!, index, word, start, end };
}

function wordsOf(tokens: readonly Scored[]): Scored[][] {
  const words: Scored[][] = [];
  for (const token of tokens) {
    if (words.length && token.isSubword) words.at(-1)!.push(token);
    else words.push([token]);
  }
  return words;
}

function wordEntity(
  word: Scored[],
  id2label: Readonly<Record<string, string>>,
  strategy: Strategy,
  join: (tokens: string[]) => string,
): Entity {
  let { scores } = word[0]!;
  const most = (t: Scored) => Math.max(...t.scores);
  if (strategy === "max") scores = word.reduce((a, b) => (most(b) > most(a) ? b : a)).scores;
  if (strategy === "average")
    scores = scores.map((_, i) => word.reduce((sum, t) => sum + t.scores[i]!, 0) / word.length);
  const at = argmax(scores);
  return {
    entity: labelOf(id2label, at),
    score: scores[at]!,
    word: join(word.map((t) => t.word)),
    start: word[0]!.start,
    end: word.at(-1)!.end,
  };
}

const tagOf = (label: string): string => label.replace(/^[BI]-/, "");

/** Neighbors of one type become one entity, unless the second begins another. */
function grouped(entities: readonly Entity[], join: (tokens: string[]) => string): Entity[] {
  const groups: Entity[][] = [];
  for (const entity of entities) {
    const label = entity.entity!;
    const last = groups.at(-1)?.at(-1)?.entity;
    if (last !== undefined && !label.startsWith("B-") && tagOf(label) === tagOf(last))
      groups.at(-1)!.push(entity);
    else groups.push([entity]);
  }
  return groups.map((group) => ({
    entity_group: group[0]!.entity!.replace(/^[^-]*-/, ""),
    score: group.reduce((sum, e) => sum + e.score, 0) / group.length,
    word: join(group.map((e) => e.word)),
    start: group[0]!.start,
    end: group.at(-1)!.end,
  }));
}
