import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { asDeclared, fits } from "../../src/worker/inference/feeds.ts";

const { cases } = JSON.parse(readFileSync("../tests/conformance/feed_shapes.json", "utf8")) as {
  cases: { declared: (number | string)[] | null; fed: number[]; taken: boolean }[];
};

test("dims are accepted as in Python", () => {
  for (const { declared, fed, taken } of cases)
    assert.equal(
      fits(declared, fed),
      taken,
      `${JSON.stringify(fed)} for ${JSON.stringify(declared)}`,
    );
  assert.ok(fits([-1, null], [3, 4]) && !fits([-1, null], [3]));
});

test("a tensor of one element is accepted as a scalar", () => {
  assert.deepEqual(
    [
      asDeclared([], [1, 1]),
      asDeclared([], []),
      asDeclared([1], [1]),
      asDeclared(null, [1]),
      asDeclared(["n"], [2]),
    ],
    [[], [], [1], [1], [2]],
  );
});
