// Sentences of texts are Python's.

import assert from "node:assert/strict";
import { test } from "node:test";
import { sentences } from "../../src/page/pipelines/sentences.ts";
import { vectors } from "../common/vectors.ts";

interface Vectors {
  sentences: [text: string, expected: string[]][];
}

const { sentences: texts } = vectors<Vectors>("audio/spoken_texts");

test("sentences of texts", () => {
  for (const [text, expected] of texts) assert.deepEqual([...sentences(text)], expected);
});
