// Samples before graphs: what Python makes of them.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";
import type { AudioFields } from "../../src/gen/schema.ts";
import { round } from "../../src/shared/python.ts";
import { audioInput } from "../../src/worker/pipelines/sounds/features.ts";
import { vectors } from "../common/vectors.ts";

interface InputCase {
  description: AudioFields;
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
    assert.equal(found.valid, valid ?? null);
    assert.deepEqual(found.mask, mask ?? null);
  }
  const { description } = vectors<InputCase[]>("audio/inputs")[3]!;
  assert.throws(() => audioInput(description, new Float32Array(399)), /AST needs 400/);
});

test("times are rounded as by Python", () => {
  const cases: [number, number, number][] = [
    [0.25, 1, 0.2],
    [0.75, 1, 0.8],
    [1.15, 1, 1.1],
    [1.45, 1, 1.4],
    [2.675, 2, 2.67],
    [0.5, 0, 0],
    [1.5, 0, 2],
    [2.5, 0, 2],
    [3.3333, 3, 3.333],
    [7, 2, 7],
  ];
  for (const [x, digits, wanted] of cases) assert.equal(round(x, digits), wanted);
});
