// Measures of heads: labels are any text, also names of members of objects.

import assert from "node:assert/strict";
import { test } from "node:test";
import { measured } from "../../src/worker/pipelines/heads/measures.ts";

test("labels may be names of members of objects", () => {
  const labels = ["constructor", "__proto__"];
  const score = (first: number) =>
    Object.fromEntries([
      ["constructor", first],
      ["__proto__", 1 - first],
    ]);
  const found = measured(labels, [...labels, "constructor"], [score(0.9), score(0.2), score(0.4)]);
  assert.equal(found.accuracy, 2 / 3);
  assert.deepEqual(Object.entries(found.confusion), [
    ["constructor", { constructor: 1, ["__proto__"]: 1 }],
    ["__proto__", { ["__proto__"]: 1 }],
  ]);
  assert.deepEqual(Object.keys(found.equal_error_rates).sort(), ["__proto__", "constructor"]);
  assert.equal(Object.keys(Object.prototype).length, 0);
});
