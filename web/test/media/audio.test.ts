// Segments of speech: what silero-vad finds for the same probabilities. Samples before graphs: what
// Python makes of them.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";
import { segmentsOf, VOICE_RULES, VoiceEvents } from "../../src/worker/pipelines/audio.ts";
import { type AudioDescription, audioInput } from "../../src/worker/pipelines/audio-input.ts";
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
    "audio/voice_activity",
  )) {
    const all = { ...VOICE_RULES, ...rules };
    assert.deepEqual(segmentsOf(probabilities, all, length), segments);
    const stream = new VoiceEvents(all);
    const found = probabilities.map((p) => stream.next(p)).filter((e) => e !== undefined);
    assert.deepEqual(found, events);
  }
});

interface InputCase {
  description: AudioDescription;
  count: number;
  total: number;
  digest: string;
  mask?: [ones: number, size: number];
  valid?: number;
}

test("samples are cut, repeated and filled as in Python", () => {
  for (const { description, count, total, digest, mask, valid } of vectors<InputCase[]>(
    "audio/inputs",
  )) {
    const samples = Float32Array.from({ length: count }, (_, i) => i + 1);
    const found = audioInput(description, samples);
    assert.equal(found.audio.length, total);
    const bytes = new Uint8Array(found.audio.buffer);
    assert.equal(createHash("sha256").update(bytes).digest("hex").slice(0, 32), digest);
    assert.equal(found.valid, valid === undefined ? undefined : BigInt(valid));
    const [ones, size] = mask ?? [0, 0];
    assert.equal(found.mask?.length, mask && size);
    assert.equal(found.mask?.lastIndexOf(1n), mask && ones - 1);
  }
  const { description } = vectors<InputCase[]>("audio/inputs")[3]!;
  assert.throws(() => audioInput(description, new Float32Array(399)), /AST needs 400/);
});
