// Streams of speech: the windows and events that Python has.

import assert from "node:assert/strict";
import { test } from "node:test";
import type { VoiceEvent } from "../../src/worker/pipelines/runner.ts";
import { SpeechStream, type Spoken } from "../../src/worker/pipelines/seq2seq/speech/stream.ts";
import { vectors } from "../common/vectors.ts";

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
