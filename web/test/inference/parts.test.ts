// The plans of a part: which one a new plan replaces.

import assert from "node:assert/strict";
import { test } from "node:test";
import { type LoadedPlan, Part } from "../../src/worker/inference/part.ts";
import type { Beyond } from "../../src/worker/inference/program.ts";
import type { Range, Register } from "../../src/worker/inference/registers.ts";

const plan = (
  register: Range,
  registers: readonly Register[],
  beyond: readonly Beyond[] = [],
): LoadedPlan =>
  ({
    info: {
      register,
      registers,
      known: new Map(),
      beyond,
      inputs: new Map([
        [
          "x",
          {
            dtype: "float32",
            shape: [
              [1, 0],
              [1, 0, 1],
            ],
          },
        ],
      ]),
    },
  }) as unknown as LoadedPlan;

test("a plan replaces that of a part of its range", () => {
  const [part, first] = [new Part(), plan([2, 9], [[3, 5]])];
  part.add(["x"], first);
  assert.deepEqual(part.add(["x"], plan([2, 20], [[3, 5]])), [first]);
});

test("a plan for another range of a further length stays", () => {
  const part = new Part();
  for (const further of [
    [3, 5],
    [6, 9],
    [0, 0, 2, 0, 0, 0, 1],
  ] as const)
    assert.deepEqual(part.add(["x"], plan([2, 9], [further])), []);
  assert.equal(part.plans.length, 3);
});

test("a plan whose number is a growth stays beside one of the number itself", () => {
  const part = new Part();
  part.add(["x"], plan([2, 9], [[3, 5]], [[0, 0, 0]]));
  assert.deepEqual(part.add(["x"], plan([2, 20], [[3, 5]])), []);
  assert.equal(part.plans.length, 2);
});
