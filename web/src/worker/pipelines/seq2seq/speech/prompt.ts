// The first tokens of Whisper's decoder: language, task, with or without times. Mirrors
// python/edgewise/host/text/speech/whisper_prompt.py.

import { CODES, LANGUAGES } from "../../../../logic/speech/languages.ts";
import { InputError } from "../../../../shared/errors.ts";
import { startIds } from "../fields.ts";
import type { Seq2SeqModel } from "../model.ts";
import type { EncodedSource } from "../source.ts";

const TASKS = ["transcribe", "translate"];

/** What the prompt depends on. */
export interface PromptOptions {
  times: boolean;
  language: string | null;
  task: string | null;
}

/** A number of generation_config.json; undefined if there is none. */
export function idOf(model: Seq2SeqModel, name: string): number | undefined {
  const value = model.generation_config[name] ?? undefined;
  const one: unknown = Array.isArray(value) ? value[0] : value;
  return Number.isInteger(one) ? (one as number) : undefined;
}

/**
 * The id of <|notimestamps|>; beyond the vocabulary where the model does not say.
 * @throws InputError if times are asked for and the model does not say
 */
export function noTimestampsId(model: Seq2SeqModel, times: boolean): number {
  const found = idOf(model, "no_timestamps_token_id");
  if (found === undefined && times)
    throw new InputError(
      "generation_config.json has no no_timestamps_token_id, which times need",
      "options.return_timestamps",
      "Take generation_config.json from the model's newest revision.",
    );
  return found ?? model.info.vocabSize;
}

/**
 * The first tokens of a window.
 * @param source the first window, in which the language is detected if it is not given
 * @returns <|startoftranscript|> and what follows, and the id of the language
 * @throws InputError if language or task is unknown, or the model is for English only
 */
export async function firstTokens(
  model: Seq2SeqModel,
  source: EncodedSource,
  { language: wanted, task: asked, times }: PromptOptions,
): Promise<[number[], number | null]> {
  const config = model.generation_config;
  const [start] = startIds(model) as [number];
  const end = idOf(model, "no_timestamps_token_id");
  const ended = (ids: number[]) => (times || end === undefined ? ids : [...ids, end]);
  const ids = config.lang_to_id as Record<string, number> | null | undefined;
  if (config.is_multilingual === false || !ids || !Object.keys(ids).length) {
    if (wanted !== null || asked !== null)
      throw new InputError(
        "the model is for English only, so there is no language and no task to choose",
        `options.${wanted !== null ? "language" : "task"}`,
        "Leave it out, or take a multilingual model.",
      );
    return [ended([start]), null];
  }
  const name = wanted ?? (config.language as string | null) ?? null;
  const task = asked ?? (config.task as string | null) ?? null;
  if (task !== null && !TASKS.includes(task))
    throw new InputError(
      `there is no task '${task}'`,
      "options.task",
      `There are: ${TASKS.join(", ")}.`,
    );
  const forced = name === null && task === null ? forcedIds(model) : new Map<number, number>();
  const language =
    (name ? languageId(name, ids) : forced.get(1)) ??
    (await detectLanguage(model, source, Object.values(ids)));
  // transformers leaves the task out where neither is given; models then go astray.
  const taskId =
    (task === null ? forced.get(2) : undefined) ??
    (config.task_to_id as Record<string, number> | undefined)?.[task ?? "transcribe"];
  return [ended([start, language, ...(taskId === undefined ? [] : [taskId])]), language];
}

/** forced_decoder_ids by position, which older models have; those to be detected are left out. */
function forcedIds(model: Seq2SeqModel): Map<number, number> {
  const pairs = model.generation_config.forced_decoder_ids ?? model.config.forced_decoder_ids ?? [];
  return new Map((pairs as [number, number | null][]).filter(([, id]) => id !== null) as never);
}

/**
 * The id of a language.
 * @param language its name ("french"), code ("fr") or token ("<|fr|>")
 * @param ids by token
 * @throws InputError if the model does not know it
 */
function languageId(language: string, ids: Record<string, number>): number {
  const name = language.toLowerCase();
  const bare = (token: string) => token.replace(/^[<|]+|[|>]+$/g, "");
  const code = Object.hasOwn(ids, name) ? bare(name) : (CODES.get(name) ?? name);
  const found = ids[`<|${code}|>`];
  if (found !== undefined) return found;
  const known = Object.keys(ids).map((token) => LANGUAGES.get(bare(token)) ?? token);
  throw new InputError(
    `the language '${language}' is unknown to the model`,
    "options.language",
    `There are: ${known.sort().join(", ")}.`,
  );
}

/** The id of the likeliest language, from the logits behind <|startoftranscript|>. */
async function detectLanguage(
  model: Seq2SeqModel,
  source: EncodedSource,
  ids: readonly number[],
): Promise<number> {
  const sequence = source.open();
  try {
    const at = await source.forward(sequence, startIds(model));
    const bytes = source.engine.read(at, 4 * source.vocab_size);
    const logits = new Float32Array(bytes.buffer, bytes.byteOffset, source.vocab_size);
    return [...ids].sort((a, b) => logits[b]! - logits[a]! || a - b)[0]!;
  } finally {
    source.close(sequence);
  }
}
