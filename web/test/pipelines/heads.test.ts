// Heads of personal pipelines in files.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Examples } from "../../src/worker/pipelines/heads/examples.ts";
import { readHead, type Saved, writeHead } from "../../src/worker/pipelines/heads/files.ts";

const FIELDS: Saved["fields"] = {
  method: "logistic",
  neighbors: 5,
  c: 1,
  class_weight: "balanced",
  steps: 300,
  learning_rate: 0.05,
};

test("a head with one label so far is saved and read", async () => {
  const examples = new Examples();
  examples.add("cup", [Float32Array.of(1, 2), Float32Array.of(3, 4)]);
  const saved = { name: "desk", task: "image-classification", model: "m", fields: FIELDS };
  const file = await writeHead({ ...saved, examples, head: undefined, adapters: undefined });
  const found = await readHead(file, "desk");
  assert.deepEqual(found.examples, examples);
  assert.equal(found.head, undefined);
  examples.add("keys", [Float32Array.of(5, 6)]);
  const weights = await writeHead({ ...saved, examples, head: undefined, adapters: undefined });
  // with two labels it has been trained
  await assert.rejects(readHead(weights, "desk"), /it has no weight/);
});

test("numbers of a file are finite", async () => {
  const saved = { name: "", task: "image-classification", model: "m", fields: FIELDS };
  for (const at of ["examples", "weight", "bias"]) {
    const number = (name: string) => (name === at ? Number.NaN : 1);
    const examples = new Examples();
    examples.add("cup", [Float32Array.of(number("examples"))]);
    examples.add("keys", [Float32Array.of(2)]);
    const weight = Float32Array.of(number("weight"), 2);
    const bias = Float32Array.of(number("bias"), 2);
    const head = { labels: ["cup", "keys"], weight, bias, losses: [] };
    const file = await writeHead({ ...saved, examples, head, adapters: undefined });
    await assert.rejects(readHead(file, "desk"), /not finite/, at);
  }
});
