// Post-processing of text tasks: tests/conformance/text_tasks.json, which
// tests/pipelines/test_post.py reads as well.
import assert from "node:assert/strict";
import { test } from "node:test";
import { best, functionFor, scoresOf, softmax } from "../../src/worker/pipelines/classification.ts";
import {
  checkPooling,
  normalized,
  packed,
  pool,
  poolingsOf,
  shortened,
} from "../../src/worker/pipelines/texts/embeddings.ts";
import { answerChars, mergeAnswers, spansOf } from "../../src/worker/pipelines/texts/questions.ts";
import { readRecipe } from "../../src/worker/pipelines/texts/recipe.ts";
import { entailmentOf, fillMask, zeroShot } from "../../src/worker/pipelines/texts/scores.ts";
import { entitiesOf, isSubword, type Strategy } from "../../src/worker/pipelines/texts/tokens.ts";
import { vectors } from "../common/vectors.ts";

interface Cases {
  embeddings: {
    states: number[];
    size: number;
    mask: number[];
    pooling: string;
    dimensions: number;
    pooled: number[];
    normalized: number[];
    binary: number[];
    ubinary: number[];
  }[];
  classification: {
    logits: number[];
    problem_type: string | null;
    function: string | null;
    top_k: number | null;
    result: unknown;
  }[];
  zero_shot: {
    logits: number[][];
    labels: string[];
    label2id: Record<string, number>;
    multi_label: boolean;
    result: unknown;
  }[];
  fill_mask: { logits: number[]; top_k: number; targets: number[] | null; result: unknown }[];
  entities: {
    text: string;
    prefix: boolean;
    strategy: Strategy;
    ignored: string[];
    labels: string[];
    tokens: { token: string; start: number; end: number; unknown: boolean }[];
    logits: number[][];
    result: unknown;
  }[];
  answers: {
    context: string;
    parts: {
      start: number[];
      end: number[];
      allowed: boolean[];
      offsets: [number, number][];
      words: (number | null)[];
      sequences: (number | null)[];
    }[];
    top_k: number;
    max_answer_len: number;
    impossible: boolean;
    align: boolean;
    result: unknown;
  }[];
  poolings: { config: Record<string, unknown>; poolings: string[] }[];
}

interface Recipes {
  cases: { files: Record<string, unknown>; recipe?: Record<string, unknown>; error?: string }[];
}

const cases = vectors<Cases>("text_tasks");

/** Compares numbers to float32's precision, all else exactly. */
function close(ours: unknown, theirs: unknown): void {
  if (typeof theirs === "number" && typeof ours === "number") {
    assert.ok(Math.abs(ours - theirs) <= 1e-7 + 1e-5 * Math.abs(theirs), `${ours}, not ${theirs}`);
  } else if (typeof theirs === "object" && theirs !== null) {
    assert.deepEqual(Object.keys(ours as object).sort(), Object.keys(theirs).sort());
    for (const [name, value] of Object.entries(theirs))
      close((ours as Record<string, unknown>)[name], value);
  } else assert.deepEqual(ours, theirs);
}

const named = (labels: string[]): Record<string, string> =>
  Object.fromEntries(labels.map((label, i) => [String(i), label]));
const present = (list: (number | null)[]) => list.map((x) => x ?? undefined);

test("embeddings", () => {
  for (const c of cases.embeddings) {
    const vector = pool(c.states, c.size, c.mask, checkPooling(c.pooling));
    close(vector, c.pooled);
    close(normalized(shortened(vector, c.dimensions)), c.normalized);
    assert.deepEqual(packed(vector, "binary"), c.binary);
    assert.deepEqual(packed(vector, "ubinary"), c.ubinary);
  }
  assert.equal(checkPooling("first_token"), "cls");
  assert.throws(() => checkPooling("median"), /not a way of pooling/);
  assert.throws(() => shortened([1], 2), /between 1 and 1/);
  assert.throws(() => packed([1], "binary"), /multiple of 8/);
});

test("how a model's own vectors are made", () => {
  for (const { files, recipe, error } of vectors<Recipes>("personal/recipes").cases) {
    const text = JSON.stringify(files["modules.json"]); // undefined where there is none
    const read = () => readRecipe(text, (name) => (files[name] ?? {}) as Record<string, unknown>);
    if (error !== undefined) assert.throws(read, new RegExp(error));
    else {
      const { include_prompt: _, prompts: __, default_prompt: ___, ...without } = recipe!;
      const { max_length = null, dimensions = null, ...rest } = read();
      assert.deepEqual({ ...rest, max_length, dimensions }, without);
    }
  }
});

test("ways of pooling of a model", () => {
  for (const c of cases.poolings) assert.deepEqual(poolingsOf(c.config), c.poolings);
  assert.deepEqual(poolingsOf({}), []);
  assert.throws(() => poolingsOf({ pooling_mode: "median" }), /not a way of pooling/);
});

test("classification", () => {
  for (const c of cases.classification) {
    const name = c.function ?? functionFor(c.problem_type ?? undefined, c.logits.length);
    const labels = named(c.logits.map((_, i) => `label ${i}`));
    close(best(scoresOf(c.logits, name), labels, c.top_k), c.result);
  }
});

test("zero-shot classification", () => {
  for (const c of cases.zero_shot)
    close(zeroShot(c.logits, c.labels, entailmentOf(c.label2id), c.multi_label), c.result);
});

test("fill-mask", () => {
  for (const c of cases.fill_mask)
    close(fillMask(c.logits, c.top_k, c.targets ?? undefined), c.result);
});

test("entities", () => {
  for (const c of cases.entities) {
    const scored = c.tokens.map(({ token, start, end, unknown }, index) => {
      const word = unknown ? c.text.slice(start, end) : token;
      const inside = !unknown && isSubword(c.text, word, start, end, c.prefix);
      return { word, scores: softmax(c.logits[index]!), start, end, index, isSubword: inside };
    });
    const join = (tokens: string[]) => tokens.join(" ").replaceAll(" ##", "");
    close(entitiesOf(scored, named(c.labels), c.strategy, c.ignored, join), c.result);
  }
});

test("answers", () => {
  for (const c of cases.answers) {
    const candidates: [number, number, number][] = [];
    let none = Infinity;
    for (const part of c.parts) {
      const most = c.align ? c.top_k * 2 + 10 : c.top_k;
      const [spans, score] = spansOf(part.start, part.end, part.allowed, most, c.max_answer_len);
      none = Math.min(none, score);
      const [words, sequences] = [present(part.words), present(part.sequences)];
      for (const [first, last, s] of spans) {
        const span: [number, number] = [first, last];
        candidates.push([...answerChars(part.offsets, words, sequences, span, c.align), s]);
      }
    }
    close(mergeAnswers(candidates, c.context, c.top_k, c.impossible ? none : undefined), c.result);
  }
});
