// Records as training data: the host of logic/training/chat.py, with the model's tokenizer and chat
// template.

import {
  type DataRequest,
  type Example,
  example_of,
  marked_template,
  type Seen,
  seen,
} from "../../logic/training/chat.ts";
import type { Message } from "../../protocol/generation.ts";
import type { TrainingRecord } from "../../protocol/training.ts";
import { throwIfAborted } from "../../shared/abort.ts";
import { drive } from "../../shared/drive.ts";
import type { Model } from "../model/model.ts";
import type { ProgramInfo } from "../package/manifest.ts";
import type { Tokenizer } from "../text/tokenizer.ts";
import { macrotask } from "./macrotask.ts";

const AT_ONCE = 64; // records before messages are handled

/** Does what requests for data ask for. */
export async function answerOf(tokenizer: Tokenizer): Promise<(request: DataRequest) => unknown> {
  await tokenizer.prepare();
  const marked = tokenizer.templateText ? marked_template(tokenizer.templateText) : null;
  // the script of text pipelines, which has places of tokens
  const texts = marked === null ? undefined : await import("../text/encoding.ts");
  return (request) => {
    if (request.kind === "encode") return tokenizer.encode(request.text, request.special);
    if (request.kind === "locate") return texts!.placesOf(tokenizer, request.text);
    const { messages, tools, prompt } = request;
    const variables = { tools: tools ?? null, add_generation_prompt: prompt };
    const source = (request.marked && marked) || tokenizer.templateText;
    return tokenizer.render(messages as Message[], variables, source);
  };
}

/** Id of the token that ends a text. */
export function endOf(model: Model, program: ProgramInfo): number | undefined {
  return program.eosTokenId ?? model.tokenizer.id("eos_token");
}

/**
 * The tokens of records, and which of them are learned.
 * @param where name of the option, for errors
 * @throws InputError, TokenizerError, Aborted
 */
export async function examplesOf(
  model: Model,
  program: ProgramInfo,
  records: readonly TrainingRecord[],
  where: string,
  signal?: AbortSignal,
): Promise<Example[]> {
  const { tokenizer } = model;
  const template = tokenizer.templateText || null;
  const answer = await answerOf(tokenizer);
  const end = endOf(model, program) ?? null;
  const examples: Example[] = [];
  for (const [i, record] of records.entries()) {
    if (signal) throwIfAborted(signal);
    const steps = example_of(record, template, end, program.sequence, `${where}, record ${i + 1}`);
    examples.push(...(await drive(steps, answer)));
    if (i % AT_ONCE === AT_ONCE - 1) await macrotask();
  }
  return examples;
}

/** The tokens of records as the model will see them. */
export async function preview(
  model: Model,
  program: ProgramInfo,
  records: readonly TrainingRecord[],
): Promise<Seen[][]> {
  const { tokenizer } = model;
  const examples = await examplesOf(model, program, records, "data");
  return examples.map((example) => {
    const texts = example.ids.map((id) => tokenizer.decode([id]));
    return seen(example, texts, program.sequence);
  });
}
