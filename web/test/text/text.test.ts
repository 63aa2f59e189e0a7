import assert from "node:assert/strict";
import { test } from "node:test";
import { LIMITS as T } from "../../src/logic/text/limits.ts";
import { TokenizerError } from "../../src/shared/errors.ts";
import { ChatTemplate } from "../../src/worker/text/chat-template.ts";
import { Tokenizer } from "../../src/worker/text/tokenizer.ts";
import { vectors } from "../common/vectors.ts";

type Json = Record<string, unknown>;
const tokenizers = vectors<{
  files: [string, Json, string | null][];
}>("tokenizers");
const templates = vectors<{
  messages: Record<string, Json>;
  rendered: { name: string; template: string; messages: string; text: string | null }[];
  refused: { name: string; template: unknown }[];
}>("chat_templates");

for (const [name, value, says] of tokenizers.files.filter((row) => row[2] !== null))
  test(`tokenizer.json: ${name}`, () => {
    assert.throws(
      () => new Tokenizer(JSON.stringify(value), undefined, undefined, ""),
      (e) => e instanceof TokenizerError && e.message.includes(says!),
    );
  });

for (const { name, template, messages, text } of templates.rendered)
  test(`chat template: ${name}`, () => {
    const render = () =>
      new ChatTemplate(template).render({
        documents: null,
        bos_token: "<s>",
        eos_token: "</s>",
        ...templates.messages[messages],
      });
    if (text === null) assert.throws(render, TokenizerError);
    else assert.equal(render(), text);
  });

// Those that only the number of steps ends, which takes seconds: the test lowers it.
const ENDLESS = ["loops", "filtered loops", "macros"];

test("limits of chat templates", () => {
  assert.deepEqual([T.template_steps, T.template_seconds], [1_000_000, 30]);
  const names = templates.refused.map(({ name }) => name);
  assert.deepEqual(
    ENDLESS.filter((name) => !names.includes(name)),
    [],
  );
});

for (const { name, template } of templates.refused)
  test(`chat template beyond the limits: ${name}`, () => {
    const limits: { template_steps: number } = T;
    const { template_steps } = limits;
    if (ENDLESS.includes(name)) limits.template_steps = template_steps / 20;
    try {
      assert.throws(
        () => new ChatTemplate(template).render({ messages: [{ role: "user", content: "hi" }] }),
        (e) => e instanceof TokenizerError && !!e.remedy,
      );
    } finally {
      limits.template_steps = template_steps;
    }
    // a refused template does not affect others
    assert.equal(new ChatTemplate("{% for i in range(3) %}{{ i }}{% endfor %}").render({}), "012");
  });

const base = {
  version: "1.0",
  added_tokens: [],
  normalizer: null,
  pre_tokenizer: null,
  post_processor: null,
  decoder: null,
  model: { type: "BPE", unk_token: "<s>", vocab: { "<s>": 0, a: 1, b: 2, ab: 3 }, merges: ["a b"] },
};

test("a tokenizer's text does not grow beyond the limit", () => {
  const replace = { type: "Replace", pattern: { String: "a" }, content: "a".repeat(90) };
  const made = new Tokenizer(
    JSON.stringify({ ...base, normalizer: { type: "Sequence", normalizers: [replace, replace] } }),
    undefined,
    undefined,
    "",
  );
  assert.equal(made.encode("a").length, 8100);
  assert.throws(
    () => made.encode("a".repeat(40_000)),
    (e) => e instanceof TokenizerError && e.message.includes("8100 times as long"),
  );
});

test("files with invalid content raise a TokenizerError", async () => {
  const good = JSON.stringify(base);
  const deep = "[".repeat(1_000_000);
  for (const [json, config] of [
    [deep, "{}"],
    ['{"a": NaN}', "{}"],
    ["{}", "{}"],
    [good, deep],
    [good, '{"bos_token": 5}'],
    [good, " ".repeat(T.config_bytes + 1)],
    [good, '{"chat_template": 5}'],
    [good, '{"chat_template": [{"name": []}, 3]}'],
  ])
    await assert.rejects(
      async () =>
        new Tokenizer(json, config, undefined, "").applyChatTemplate([
          { role: "user", content: "x" },
        ]),
      TokenizerError,
      `${json!.slice(0, 40)} ${config!.slice(0, 40)}`,
    );
});
