// Heads and adapters of personal pipelines: files, steps and options.

import assert from "node:assert/strict";
import { test } from "node:test";
import { batch_of } from "../../src/logic/personal/lora_training.ts";
import { isLayout } from "../../src/worker/pipelines/adapters/layout.ts";
import { fittingLength, loraOptions } from "../../src/worker/pipelines/adapters/lora.ts";
import { Examples } from "../../src/worker/pipelines/heads/examples.ts";
import {
  isOptions,
  readHead,
  type Saved,
  writeHead,
} from "../../src/worker/pipelines/heads/files.ts";
import { vectors } from "../common/vectors.ts";

interface Shared {
  batches: { known: number[]; size: number; steps: number; seed: number; batches: number[][] }[];
  lengths: { plans: number[]; given: number[]; found: number[] }[];
}

test("steps of adapters have the examples and lengths of Python", () => {
  const { batches, lengths } = vectors<Shared>("personal/lora");
  for (const { known, size, steps, seed, batches: wanted } of batches)
    assert.deepEqual(
      Array.from({ length: steps }, (_, step) => batch_of(known, size, step, seed)),
      wanted,
    );
  for (const { plans, given, found } of lengths) {
    const made = plans.map((n) => ({
      inputs: new Map([["x", { dtype: "int64", shape: [1, n] }]]),
    }));
    assert.deepEqual(
      given.map((n) => fittingLength(made, "x", n)),
      found,
    );
  }
});

test("adapters of a file are described", () => {
  const layer = ["dense", "dense.weight", true, "x", "y", 3, 2];
  const layout = { rank: 2, alpha: 4, numbers: 10, layers: [layer] };
  assert.ok(isLayout(layout));
  for (const wrong of [
    { rank: 0 },
    { alpha: -1 },
    { numbers: 11 },
    { layers: [] },
    { layers: [layer.slice(1)] },
    { layers: [[...layer.slice(0, 6), 2.5]] },
  ])
    assert.ok(!isLayout({ ...layout, ...wrong }), JSON.stringify(wrong));
  assert.ok(!isLayout(null));
});

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

test("the options of a training of adapters are of their types", () => {
  const layer = ["dense", "dense.weight", true, "x", "y", 3, 2];
  const lora = { rank: 2, alpha: 4, numbers: 10, layers: [layer] };
  const host = { processor: { features: { lora } }, has: () => true } as never;
  assert.equal(loraOptions(true, host, "logistic").steps, 40);
  assert.equal(loraOptions({ steps: 3, rank: 2 }, host, "logistic").steps, 3);
  for (const wrong of [
    [],
    { steps: "3" },
    { learning_rate: "0.1" },
    { learning_rate: true },
    { rank: 3 },
  ])
    assert.throws(() => loraOptions(wrong, host, "logistic"), /lora/, JSON.stringify(wrong));
});

test("options of a file are those that personalize takes", () => {
  const { method, ...options } = FIELDS;
  assert.ok(method && isOptions(options) && isOptions({ ...options, class_weight: { cup: 2 } }));
  for (const wrong of [
    { steps: 2 ** 40 },
    { steps: 0.5 },
    { c: Infinity },
    { learning_rate: 0 },
    { neighbors: 1e300 },
    { class_weight: { cup: -1 } },
    { class_weight: { cup: "2" } },
    { class_weight: [1] },
    { class_weight: "x" },
  ])
    assert.ok(!isOptions({ ...options, ...wrong } as never), JSON.stringify(wrong));
});
