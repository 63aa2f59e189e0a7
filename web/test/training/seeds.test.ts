import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { checkSeed, randomSeed, seedOfRun } from "../../src/shared/seeds.ts";

const vectors = JSON.parse(readFileSync("../tests/conformance/seeds.json", "utf8")) as {
  seed_of_run: [string, number, string][];
  refused: unknown[];
};

test("seeds of runs equal Python's test vectors", () => {
  for (const [seed, run, want] of vectors.seed_of_run)
    assert.equal(String(seedOfRun(BigInt(seed), run)), want);
});

test("invalid seeds are rejected with a message", () => {
  for (const seed of vectors.refused)
    assert.throws(
      () =>
        checkSeed(
          typeof seed === "string" && /^\d+$/.test(seed) ? BigInt(seed) : seed,
          "options.seed",
        ),
      /is not a valid seed.*2\^63/,
    );
  assert.deepEqual(
    [checkSeed(undefined, ""), checkSeed(3, ""), checkSeed((1n << 63n) - 1n, "")],
    [undefined, 3n, (1n << 63n) - 1n],
  );
  assert.notEqual(randomSeed(), randomSeed());
});
