// The rows that a run trains on and evaluates on.

import { fitted, type Report, stream_texts } from "../../logic/training/chat.ts";
import { type Row, split_rows, token_rows } from "../../logic/training/data.ts";
import { are_records } from "../../logic/training/records.ts";
import type { TrainingFields, TrainingRecord } from "../../protocol/training.ts";
import { throwIfAborted } from "../../shared/abort.ts";
import { InputError } from "../../shared/errors.ts";
import type { Model } from "../model/model.ts";
import type { ProgramInfo } from "../package/manifest.ts";
import { macrotask } from "./macrotask.ts";
import { endOf, examplesOf } from "./records.ts";

const TEXTS_AT_ONCE = 64; // number of texts to tokenize before handling messages

/** The rows of a run. */
export interface Data {
  /** Rows to train on. */
  rows: Row[];
  /** Rows to evaluate on. */
  held: Row[] | undefined;
  /** Id of padding. */
  pad: number;
  /** Of records: how many are too long. */
  report: Report | undefined;
}

/**
 * Tokenizes texts, as transformers' `tokenizer(text)`, and cuts them into rows; records make one
 * row each.
 * @throws InputError if they are neither, too short, or contain tokens unknown to the model
 */
export async function readData(
  model: Model,
  program: ProgramInfo,
  texts: unknown,
  evaluation: TrainingFields["evaluation"],
  seed: bigint,
  signal: AbortSignal,
): Promise<Data> {
  const { tokenizer } = model;
  const end = endOf(model, program);
  const pad = program.padTokenId ?? end ?? 0;
  let report: Report | undefined;
  const read = async (list: unknown, where: string) => {
    if (Array.isArray(list) && are_records(list) && list.every(isObject)) {
      const streamed = stream_texts(list, where);
      if (!streamed) {
        const examples = await examplesOf(model, program, list, where, signal);
        const [rows, found] = fitted(examples, program.sequence, pad, where);
        report ??= found;
        return rows;
      }
      list = streamed;
    }
    if (!Array.isArray(list) || !list.every((t) => typeof t === "string"))
      throw new InputError(
        "they are not texts",
        where,
        "Give a string or a list of strings, or records such as { messages: [...] }.",
      );
    const ids: number[][] = [];
    for (const text of list as string[]) {
      throwIfAborted(signal);
      // an empty text yields no tokens, not even special ones
      if (text) ids.push(tokenizer.encode(text, true));
      if (ids.length % TEXTS_AT_ONCE === TEXTS_AT_ONCE - 1) await macrotask();
    }
    return token_rows(ids, program.sequence, end ?? null, pad, where);
  };
  let rows = await read(texts, "texts");
  let held: Row[] | undefined;
  if (typeof evaluation === "number")
    [rows, held] = split_rows(rows, evaluation, seed, "options.evaluation");
  else if (evaluation !== undefined) held = await read(evaluation, "options.evaluation");
  checkIds([...rows, ...(held ?? [])], model.decoder.vocab_size);
  return { rows, held, pad, report };
}

function isObject(value: unknown): value is TrainingRecord {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function checkIds(rows: Row[], vocabulary: number): void {
  for (const [ids] of rows)
    for (const id of ids)
      if (!(id >= 0 && id < vocabulary))
        throw new InputError(
          `token id ${id} is outside the vocabulary of ${vocabulary}`,
          "texts",
          "Do model and tokenizer belong together?",
        );
}
