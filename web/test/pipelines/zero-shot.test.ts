import assert from "node:assert/strict";
import { test } from "node:test";
import { InputError } from "../../src/shared/errors.ts";
import { zeroShot } from "../../src/worker/pipelines/candidates/zero-shot.ts";
import type { TaskHost } from "../../src/worker/pipelines/host.ts";
import { Options } from "../../src/worker/pipelines/options.ts";

/** Scores of a package with such inputs. */
async function scores(text: string, second: string) {
  const inputs: Record<string, string[]> = { text: [text], scores: ["image_embeds", second] };
  const tensor = { type: "float32", dims: [1, 1], data: new Uint8Array(4) };
  const host = {
    task: "zero-shot-image-classification",
    processor: { text: { max_length: 8 } },
    config: () => ({ model_type: "clip" }),
    needTokenizer: () => ({ encode: () => [1, 2], id: () => 0, idOf: () => 0 }),
    graph: (name: string) => ({
      inputs: inputs[name]!.map((input) => ({ name: input, dtype: "int64" })),
      outputs: [{ name: "logits_per_image" }],
      plans: [],
    }),
    run: async (name: string) => ({
      [name === "text" ? "text_embeds" : "logits_per_image"]: tensor,
    }),
  } as unknown as TaskHost;
  const options = new Options({ candidate_labels: ["a", "b"] }, ["candidate_labels"]);
  const { prepare } = zeroShot(async () => ({ image_embeds: tensor }));
  const run = await prepare(host, options, undefined as never);
  return run("a picture" as never, new AbortController().signal);
}

test("packages whose graphs have other inputs are refused in words", async () => {
  assert.deepEqual(await scores("input_ids", "text_embeds"), [
    { label: "a", score: 0.5 },
    { label: "b", score: 0.5 },
  ]);
  for (const [text, second] of [
    ["anything", "text_embeds"],
    ["input_ids", "anything"],
  ] as const)
    await assert.rejects(scores(text, second), (e) => {
      assert.ok(e instanceof InputError);
      assert.match(e.what, /has an input 'anything', which/);
      return true;
    });
});
