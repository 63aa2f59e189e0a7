import assert from "node:assert/strict";
import { test } from "node:test";
import { GenerationConfig } from "../../src/worker/generation/config.ts";
import { lengthLimit } from "../../src/worker/generation/inputs.ts";
import { vectors } from "../common/vectors.ts";

interface Row {
  prompt: number;
  ends: boolean;
  file: Record<string, number>;
  config: Record<string, number>;
  fields: Record<string, number | null>;
  length: number | null;
}

test("lengths from keywords, configurations and the model's file equal transformers'", () => {
  for (const row of vectors<Row[]>("generation_lengths")) {
    const fields = new GenerationConfig(row.fields, "generate");
    const config = GenerationConfig.fromJson({ eos_token_id: 7, ...row.file })
      .merged(new GenerationConfig(row.config))
      .merged(fields);
    let length: number | null;
    try {
      config.validate();
      const limit = lengthLimit(config, fields, row.prompt, 64, () => {});
      const { members } = config.pack(16, row.prompt, limit);
      // A text that could end immediately continues until both minimum lengths are reached, and has
      // at least one token.
      const least = Math.max(members.min_length!, row.prompt + members.min_new_tokens!);
      length = row.ends ? Math.min(limit, Math.max(least, row.prompt) + 1) : limit;
    } catch (e) {
      assert.equal((e as Error).name, "InputError", JSON.stringify(row));
      length = null;
    }
    assert.equal(length, row.length, JSON.stringify(row));
  }
});
