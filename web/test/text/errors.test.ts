// Errors that both languages raise have one text: tests/conformance/errors.json, which
// tests/generation/test_error_texts.py reads as well. tests/logic/test_generation.py has those of
// generation in both forms.
import assert from "node:assert/strict";
import { test } from "node:test";
import { readSafetensors } from "../../src/shared/checkpoints/safetensors.ts";
import { EdgewiseError } from "../../src/shared/errors.ts";
import { checkSeed } from "../../src/shared/seeds.ts";
import { meant } from "../../src/shared/words.ts";
import { vectors } from "../common/vectors.ts";

type Raised = [name: string, what: string];
const { seeds, safetensors } = vectors<{
  seeds: [unknown, Raised][];
  safetensors: [unknown, number, Raised][];
}>("errors");

const raised = async (call: () => unknown): Promise<unknown> => {
  try {
    await call();
  } catch (e) {
    return e instanceof EdgewiseError ? [e.name, e.what] : e;
  }
  return "no error";
};

test("seeds", async () => {
  for (const [seed, error] of seeds)
    assert.deepEqual(await raised(() => checkSeed(seed, "seed")), error);
});

test("headers of safetensors", async () => {
  for (const [header, bytes, error] of safetensors) {
    const text = new TextEncoder().encode(JSON.stringify(header));
    const length = new BigUint64Array([BigInt(text.length)]);
    const file = new Blob([length, text, new Uint8Array(bytes)]);
    assert.deepEqual(await raised(() => readSafetensors(file, "x")), error);
  }
});

test("names that are not known: the one that was meant", () => {
  const known = ["temperature", "max_new_tokens", "top_k", "dtype"];
  const cases: [string, string][] = [
    ["temprature", "temperature"],
    ["maxNewTokens", "max_new_tokens"],
    ["max_tokens", "max_new_tokens"],
    ["topk", "top_k"],
    ["dtpye", ""], // two letters of five
    ["colour", ""],
  ];
  for (const [name, want] of cases)
    assert.equal(
      meant(name, known, "Check it."),
      want ? `Did you mean '${want}'? Check it.` : "Check it.",
      name,
    );
});

test("long lists are cut between entries", () => {
  const names = Array.from({ length: 200 }, (_, i) => `option_${String(i).padStart(3, "0")}`);
  const { what, where } = new EdgewiseError(`are: ${names.join(", ")}`, "x".repeat(900));
  const parts = what.slice("are: ".length).split(", ... ");
  assert.equal(parts.length, 2);
  for (const name of parts.join(", ").split(", ")) assert.ok(names.includes(name), name);
  assert.equal(where, `${"x".repeat(240)} ... ${"x".repeat(50)}`);
});
