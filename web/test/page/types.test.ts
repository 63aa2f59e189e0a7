// What TypeScript says about calls: `make check` compiles this file, and each line below
// `@ts-expect-error` has to be an error.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { GENERATION_FIELDS } from "../../src/logic/generation/fields.ts";
import {
  type FinishReason,
  fineTune,
  type Message,
  type pipeline,
  type TextGenerationPipeline,
} from "../../src/page/index.ts";

type Same<A, B> =
  (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
const same = <A, B>(_: Same<A, B>): void => undefined;

/** Never called: its types are what is tested. */
export async function typed(make: typeof pipeline, write: TextGenerationPipeline): Promise<void> {
  const chat: Message[] = [{ role: "user", content: "Hello" }];
  const [text] = await write("Once", { max_new_tokens: 5, compile_config: {} });
  text!.generated_text.toUpperCase();
  (await write(chat))[0]!.generated_text.at(-1)!.content.toUpperCase();
  (await write(chat, { return_full_text: false }))[0]!.generated_text.toUpperCase();
  (await write(["Once", "Twice"]))[0]![0]!.generated_text.toUpperCase();
  const reason: FinishReason | undefined = text!.finish_reasons;
  // @ts-expect-error: the names of reasons are known
  assert(reason !== "lenght");
  // @ts-expect-error: max_new_tokens
  await write("Once", { max_new_token: 5 });
  // @ts-expect-error: dtype
  await make("text-generation", "model", { dtyp: "q4" });
  // @ts-expect-error: a task that does not exist
  await make("text-generatoin", "model");
  // @ts-expect-error: epochs
  await fineTune(write, "text", { epoch: 5 });
  same<Awaited<ReturnType<typeof make<"text-generation">>>, TextGenerationPipeline>(true);
  const found = await make("image-classification", "model");
  (await found("picture.png"))[0]!.label.toUpperCase();
}

test("the declared fields of generation are those that exist", () => {
  const text = readFileSync("src/protocol/generation.ts", "utf8");
  const [, neutral = ""] = /export type NeutralField =([^;]*);/.exec(text)!;
  const [, own = ""] = /export interface GenerationFields [^{]*\{(.*?)\n\}/s.exec(text)!;
  const declared = [
    ...Array.from(neutral.matchAll(/"(\w+)"/g), ([, name]) => name),
    ...Array.from(own.matchAll(/^ {2}(\w+)\?:/gm), ([, name]) => name),
  ];
  const known = [...GENERATION_FIELDS]
    .filter(([name, [, use]]) => use !== "refused" && !name.startsWith("_"))
    .map(([name]) => name);
  assert.deepEqual(declared.sort(), [...known, "response_format"].sort());
});
