// Texts before they are spoken: sentences, and parts of long ones, are Python's.

import assert from "node:assert/strict";
import { test } from "node:test";
import { sentences } from "../../src/page/pipelines/sentences.ts";
import { partsOf } from "../../src/worker/pipelines/synthesis/speak.ts";
import { vectors } from "../common/vectors.ts";

interface Vectors {
  sentences: [text: string, expected: string[]][];
  parts: [text: string, most: number, expected: string[]][];
}

const { sentences: texts, parts } = vectors<Vectors>("audio/spoken_texts");

test("sentences of texts", () => {
  for (const [text, expected] of texts) assert.deepEqual([...sentences(text)], expected);
});

test("parts of long sentences", () => {
  for (const [text, most, expected] of parts)
    assert.deepEqual(
      partsOf([...text], most).map((part) => part.join("")),
      expected,
    );
});
