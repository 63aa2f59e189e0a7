// Errors that both languages raise have one text: tests/conformance/errors.json, which
// tests/generation/test_error_texts.py reads as well.
import assert from "node:assert/strict";
import { test } from "node:test";
import { SAMPLING_ERRORS } from "../../src/gen/sampling.ts";
import { readSafetensors } from "../../src/shared/checkpoints/safetensors.ts";
import { EdgewiseError } from "../../src/shared/errors.ts";
import { checkSeed } from "../../src/shared/seeds.ts";
import { meant } from "../../src/shared/words.ts";
import { errorFor, GenerationConfig } from "../../src/worker/generation/config.ts";
import { vectors } from "../common/vectors.ts";

type Raised = [name: string, what: string];
const { generation, sampling, seeds, safetensors } = vectors<{
  generation: [Record<string, unknown>, Raised][];
  sampling: [keyof typeof SAMPLING_ERRORS, Raised][];
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

test("generation fields", async () => {
  for (const [fields, error] of generation)
    assert.deepEqual(
      await raised(() => {
        const config = new GenerationConfig(fields, "generate");
        config.validate();
        config.pack(16, 4, 8);
      }),
      error,
    );
});

test("codes of the sampling functions", () => {
  for (const [code, error] of sampling) {
    const e = errorFor(SAMPLING_ERRORS[code]);
    assert.deepEqual([e.name, e.what], error);
  }
});

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
