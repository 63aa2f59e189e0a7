// Words and times of tokens, and joined transcripts: the vectors that Python shares, which
// transformers computes.

import assert from "node:assert/strict";
import { test } from "node:test";
import { dynamic_time_warping, token_times } from "../../src/logic/speech/alignment.ts";
import { Joiner, merge_sequences, type Window } from "../../src/logic/speech/join.ts";
import { words_of } from "../../src/logic/speech/words.ts";
import type { VoiceEvent } from "../../src/worker/pipelines/runner.ts";
import { SpeechStream, type Spoken } from "../../src/worker/pipelines/seq2seq/speech/stream.ts";
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
    assert.deepEqual(dynamic_time_warping(cost), [rows, columns]);
  const weights = [
    [9, 1, 0, 0],
    [0, 8, 1, 0],
    [0, 0, 3, 9],
  ];
  assert.deepEqual(token_times(weights), [0, 0.02, 0.04]);
});

test("tokens are grouped into the reference's words", () => {
  for (const { ids, language, words, indices } of VECTORS.words)
    assert.deepEqual(words_of(ids, decode, EOS, language), [words, indices]);
});

test("windows are joined as by the reference", () => {
  for (const { words, times, windows, text, chunks } of VECTORS.joined) {
    const joiner = new Joiner(decode, EOS, BEGIN, words, times);
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
    merge_sequences([
      [1, 2, 3, 4],
      [3, 4, 5],
    ])[0],
    [1, 2, 3, 4, 5],
  );
  assert.deepEqual(
    merge_sequences([
      [1, 2],
      [7, 8],
    ])[0],
    [1, 2, 7, 8],
  );
});

interface Stream {
  interval: number;
  live: boolean;
  voice: [number, VoiceEvent][] | null;
  speech: [number, number][];
  feeds: number[];
  windows: [first: number, count: number, before: string][];
  events: unknown[];
}

/** The words of samples: the rule of tests/pipelines/sounds/make_streams.py. */
function wordsAt(first: number, count: number, speech: Stream["speech"]): Spoken[] {
  const [begin, end] = [first / 16000, (first + count) / 16000];
  const tenths = (x: number) => Math.round(10 * x) / 10;
  const found: Spoken[] = [];
  for (let k = 0; k <= Math.trunc(end / 0.4); k++) {
    const start = tenths(0.4 * k);
    const stop = tenths(start + 0.3);
    const spoken = speech.some(([a, b]) => a <= start && stop <= b);
    if (start < begin || stop > end || !spoken) continue;
    const text = ` w${k}${stop > end - 0.4 ? "?" : k % 12 === 11 ? "." : ""}`;
    found.push({ text, timestamp: [start - begin, stop - begin] });
  }
  return found;
}

test("streams have Python's windows and events, also live ones that fall behind", async () => {
  const never = new AbortController().signal;
  for (const { interval, live, voice, speech, feeds, ...wanted } of vectors<Stream[]>(
    "audio/streams",
  )) {
    const windows: unknown[] = [];
    const script = [...(voice ?? [])];
    let heard = 0;
    const finds = {
      speaking: false,
      async feed({ length }: Float32Array) {
        heard += length;
        const found: VoiceEvent[] = [];
        while (script[0] && script[0][0] <= heard) found.push(script.shift()![1]);
        if (found.length) finds.speaking = "start" in found.at(-1)!;
        return found;
      },
    };
    const hears = async (samples: Float32Array, before: string) => {
      windows.push([samples[0], samples.length, before]);
      return wordsAt(samples[0]!, samples.length, speech);
    };
    const stream = new SpeechStream(hears, { interval, live, voice: voice ? finds : undefined });
    const events: unknown[] = [];
    let at = 0;
    for (const count of feeds) {
      const samples = new Float32Array(count).map((_, i) => at + i);
      events.push(...(await stream.feed(samples, never)));
      at += count;
    }
    events.push(...(await stream.end(never)));
    assert.deepEqual({ windows, events }, wanted);
  }
});

test("a stream forgets silence", async () => {
  let longest = 0;
  const stream = new SpeechStream(
    async (samples) => {
      longest = Math.max(longest, samples.length);
      return [];
    },
    { interval: 1 },
  );
  const never = new AbortController().signal;
  for (let i = 0; i < 60; i++)
    assert.deepEqual(await stream.feed(new Float32Array(16000), never), []);
  assert.ok(longest <= 29 * 16000, `${longest}`);
});
