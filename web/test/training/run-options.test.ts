// The options of a run that must not be passed on.

import assert from "node:assert/strict";
import { test } from "node:test";
import type { TrainingFields } from "../../src/protocol/training.ts";
import type { ProgramInfo } from "../../src/worker/package/manifest.ts";
import { resolveSettings } from "../../src/worker/training/run-options.ts";

const settings = (fields: object) =>
  resolveSettings(
    { lora: null, optimizer: { lr: 0.1 } } as unknown as ProgramInfo,
    fields as TrainingFields,
  );

test("what keeps values near their first ones is checked", () => {
  assert.equal(settings({}).proximal_mu, 0);
  assert.equal(settings({ proximal_mu: 0.5 }).proximal_mu, 0.5);
  for (const wrong of [-1, Number.NaN, Infinity, "x"])
    assert.throws(() => settings({ proximal_mu: wrong }), /options.proximal_mu: it is/);
  assert.throws(() => settings({ freeze_A: true }), /options.freeze_A: all parameters/);
  assert.throws(() => settings({ learning_rate: -1 }), /options.learning_rate: it is -1/);
});
