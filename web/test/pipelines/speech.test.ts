// Words and times of tokens, and joined transcripts: the vectors that Python shares, which
// transformers computes.

import assert from "node:assert/strict";
import { test } from "node:test";
import {
  dynamicTimeWarping,
  tokenTimes,
} from "../../src/worker/pipelines/seq2seq/speech/alignment.ts";
import {
  Joiner,
  mergeSequences,
  type Window,
} from "../../src/worker/pipelines/seq2seq/speech/join.ts";
import { SpeechStream } from "../../src/worker/pipelines/seq2seq/speech/stream.ts";
import { wordsOf } from "../../src/worker/pipelines/seq2seq/speech/words.ts";
import { vectors } from "../common/vectors.ts";

interface Speech {
  warping: { cost: number[][]; rows: number[]; columns: number[] }[];
  words: { ids: number[]; language: string | null; words: string[]; indices: number[][] }[];
  joined: {
    words: boolean;
    times: boolean;
    windows: Window[];
    text: string;
    chunks: { text: string; timestamp?: number[] }[];
  }[];
}

const VECTORS = vectors<Speech>("speech");
const [BEGIN, EOS] = [300, 260];
/** Text of bytes: an id is a byte of UTF-8. */
const decode = (ids: number[]) => new TextDecoder("utf-8").decode(Uint8Array.from(ids));

test("the path of least cost is that of the reference", () => {
  for (const { cost, rows, columns } of VECTORS.warping)
    assert.deepEqual(dynamicTimeWarping(cost), [rows, columns]);
  const weights = [
    [9, 1, 0, 0],
    [0, 8, 1, 0],
    [0, 0, 3, 9],
  ];
  assert.deepEqual(tokenTimes(weights), [0, 0.02, 0.04]);
});

test("tokens are grouped into the reference's words", () => {
  for (const { ids, language, words, indices } of VECTORS.words)
    assert.deepEqual(wordsOf(ids, decode, EOS, language), [words, indices]);
});

test("windows are joined as by the reference", () => {
  for (const { words, times, windows, text, chunks } of VECTORS.joined) {
    const joiner = new Joiner({ decode, eos: EOS, begin: BEGIN, words, times });
    for (const window of windows) joiner.add(window);
    const [found, parts] = joiner.end();
    assert.equal(found, text);
    assert.deepEqual(
      parts.map((part) => part.text),
      chunks.map((part) => part.text),
    );
    if (times)
      assert.deepEqual(
        parts.map((part) => part.timestamp),
        chunks.map((part) => part.timestamp),
      );
  }
  assert.deepEqual(
    mergeSequences([
      [1, 2, 3, 4],
      [3, 4, 5],
    ])[0],
    [1, 2, 3, 4, 5],
  );
  assert.deepEqual(
    mergeSequences([
      [1, 2],
      [7, 8],
    ])[0],
    [1, 2, 7, 8],
  );
});

test("a stream forgets silence", async () => {
  let longest = 0;
  const stream = new SpeechStream(async (samples) => {
    longest = Math.max(longest, samples.length);
    return [];
  }, 1);
  const never = new AbortController().signal;
  for (let i = 0; i < 60; i++)
    assert.deepEqual(await stream.feed(new Float32Array(16000), never), []);
  assert.ok(longest <= 29 * 16000, `${longest}`);
});
