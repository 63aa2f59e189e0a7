// Segments of speech: what silero-vad finds for the same probabilities.

import assert from "node:assert/strict";
import { test } from "node:test";
import { segmentsOf, VOICE_RULES, VoiceEvents } from "../../src/worker/pipelines/audio.ts";
import { vectors } from "../common/vectors.ts";

interface VoiceCase {
  probabilities: number[];
  length: number;
  rules: Record<string, number>;
  segments: { start: number; end: number }[];
  events: ({ start: number } | { end: number })[];
}

test("segments and events of speech are silero-vad's", () => {
  for (const { probabilities, length, rules, segments, events } of vectors<VoiceCase[]>(
    "voice_activity",
  )) {
    const all = { ...VOICE_RULES, ...rules };
    assert.deepEqual(segmentsOf(probabilities, all, length), segments);
    const stream = new VoiceEvents(all);
    const found = probabilities.map((p) => stream.next(p)).filter((e) => e !== undefined);
    assert.deepEqual(found, events);
  }
});
