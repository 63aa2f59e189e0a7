// CTC models: text and times of the tokens of frames are transformers', chunks and frames as by its
// pipeline.

import assert from "node:assert/strict";
import { test } from "node:test";
import {
  type CTC,
  characters,
  chunks,
  framesOf,
  type Span,
  textOf,
  wordsOf,
} from "../../src/worker/pipelines/sounds/ctc.ts";
import { vectors } from "../common/vectors.ts";

interface Case {
  ids: number[];
  text: string;
  chars: [string, number, number][];
  words: [string, number, number][];
}

const plain = (spans: Span[]) => spans.map(({ text, start, end }) => [text, start, end]);

test("text, characters and words of tokens", () => {
  for (const { tokenizer, cases } of vectors<{ tokenizer: CTC; cases: Case[] }[]>("audio/ctc"))
    for (const { ids, text, chars, words } of cases) {
      const found = characters(tokenizer, ids);
      assert.deepEqual(plain(found), chars);
      assert.deepEqual(plain(wordsOf(tokenizer, found)), words);
      assert.equal(textOf(tokenizer, found), text);
    }
});

test("chunks overlap, and their frames join", () => {
  const ctc = {
    samples: 320,
    windows: [[10, 5], ...Array(4).fill([3, 2]), [2, 2], [2, 2]],
  } as unknown as CTC;
  const samples = Float32Array.from({ length: 16000 * 5 + 333 }, (_, i) => i);
  const found = [...chunks(samples, 32000, 5120, 5120)];
  assert.deepEqual(
    found.map(([part, ...rest]) => [part[0], ...rest]),
    [
      [0, 32000, 0, 5120],
      [21760, 32000, 5120, 5120],
      [43520, 32000, 5120, 5120],
      [65280, 15053, 5120, 0],
    ],
  );
  // a whole recording has all frames of the convolutions; 1 s has 49, and not 50
  assert.deepEqual(framesOf(ctc, [samples, 16000, 0, 0], true), [0, 49]);
  assert.deepEqual(
    found.map((piece) => framesOf(ctc, piece, false)),
    [
      [0, 84],
      [16, 84],
      [16, 84],
      [16, 46],
    ],
  );
});
