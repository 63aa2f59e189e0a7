// Records as training data: the host of logic/training/chat.py, with the model's tokenizer and chat
// template.

import {
  type DataRequest,
  type Example,
  example_of,
  marked_template,
  rows_seen,
  seen,
  stream_texts,
} from "../../logic/training/chat.ts";
import { token_rows } from "../../logic/training/data.ts";
import { previewed } from "../../logic/training/preferences.ts";
import type { Seen } from "../../logic/training/preview.ts";
import { are_records } from "../../logic/training/records.ts";
import type { Message } from "../../protocol/generation.ts";
import type { TrainingRecord } from "../../protocol/training.ts";
import { throwIfAborted } from "../../shared/abort.ts";
import { drive } from "../../shared/drive.ts";
import { InputError } from "../../shared/errors.ts";
import { pace } from "../../shared/share.ts";
import type { Learner } from "../model/model.ts";
import type { ProgramInfo } from "../package/manifest.ts";
import type { Tokenizer } from "../text/tokenizer.ts";

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
export function endOf(model: Learner, program: ProgramInfo): number | undefined {
  return program.eosTokenId ?? model.tokenizer.id("eos_token");
}

/**
 * The tokens of records, and which of them are learned.
 * @param where name of the option, for errors
 * @throws InputError, TokenizerError, Aborted
 */
export async function examplesOf(
  model: Learner,
  program: ProgramInfo,
  records: readonly TrainingRecord[],
  where: string,
  signal?: AbortSignal,
  make: typeof example_of = example_of,
): Promise<Example[]> {
  const { tokenizer } = model;
  const template = tokenizer.templateText || null;
  const answer = await answerOf(tokenizer);
  const end = endOf(model, program) ?? null;
  const examples: Example[] = [];
  for (const [i, record] of records.entries()) {
    if (signal) throwIfAborted(signal);
    const steps = make(record, template, end, program.sequence, `${where}, record ${i + 1}`);
    examples.push(...(await drive(steps, answer)));
    if (i % AT_ONCE === AT_ONCE - 1) await pace.breathe();
  }
  return examples;
}

/** What the model will see of the first texts or records. */
export async function preview(
  model: Learner,
  program: ProgramInfo,
  data: readonly (string | TrainingRecord)[],
  count: number,
): Promise<Seen[][]> {
  const { tokenizer } = model;
  if (model.pairs)
    throw new InputError("pairs have no preview", "data", "Look at the pairs themselves.");
  const { sequence } = program;
  const texts = are_records(data, "data")
    ? stream_texts(data as TrainingRecord[], "data")
    : (data as string[]);
  let examples: Example[];
  if (texts) {
    await tokenizer.prepare();
    const ids: number[][] = [];
    let tokens = 0;
    for (const text of texts) {
      if (text) tokens += ids[ids.push(tokenizer.encode(text, true)) - 1]!.length;
      if (tokens > count * sequence) break; // those of the first rows
    }
    examples = rows_seen(token_rows(ids, sequence, endOf(model, program) ?? null, null), count);
  } else {
    const records = (data as TrainingRecord[]).slice(0, count);
    examples = await examplesOf(model, program, records, "data", undefined, previewed);
  }
  return examples.map((example) => seen(example, (ids) => tokenizer.decode(ids), sequence));
}
