// The rows that a run trains on and evaluates on.

import {
  type Example,
  fitted,
  kept_rows,
  type Report,
  stream_texts,
} from "../../logic/training/chat.ts";
import { Order, type Row, split_rows, Updates } from "../../logic/training/data.ts";
import { of_batch, type Told, taught, told } from "../../logic/training/distillation.ts";
import { rows_of_texts } from "../../logic/training/packing.ts";
import { compared, type Unit, units_of } from "../../logic/training/preferences.ts";
import { are_records } from "../../logic/training/records.ts";
import type { TrainingFields, TrainingRecord } from "../../protocol/training.ts";
import { throwIfAborted } from "../../shared/abort.ts";
import { drive } from "../../shared/drive.ts";
import { InputError } from "../../shared/errors.ts";
import { pace } from "../../shared/share.ts";
import type { FeedFeatures, Learner } from "../model/model.ts";
import type { ProgramInfo } from "../package/manifest.ts";
import { readPairs, type Source } from "./pairs.ts";
import { answerOf, endOf, examplesOf } from "./records.ts";
import type { RunSettings } from "./run-options.ts";

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
  /** Of pairs: the states of the encoder for each row, or features of pictures. */
  sources?: Source[];
  heldSources?: Source[];
  /** Of features. */
  feeds?: FeedFeatures;
  /** Of a teacher: what it says of each row. */
  told?: Told[];
  heldTold?: Told[];
  /** Instead of rows: what is compared. */
  units?: Unit[];
  /** What is compared in evaluations. */
  heldUnits?: Unit[];
}

/**
 * Preferences of records, with TRL's names.
 * @throws InputError if they are none, or no completion fits
 */
async function readPreferences(
  model: Learner,
  program: ProgramInfo,
  records: unknown,
  evaluation: TrainingFields["evaluation"],
  options: RunSettings,
  signal: AbortSignal,
): Promise<Data> {
  const { loss } = options.preference!;
  const pad = padOf(model, program);
  const end = endOf(model, program) ?? null;
  const answer = await answerOf(model.tokenizer);
  let report: Report | undefined;
  const read = async (list: unknown, where: string) => {
    if (!Array.isArray(list) || !are_records(list, where))
      throw new InputError(
        "they are not preferences",
        where,
        "Give records such as { prompt, chosen, rejected }.",
      );
    const examples: [Example, boolean][] = [];
    for (const [i, record] of (list as TrainingRecord[]).entries()) {
      throwIfAborted(signal);
      const steps = compared(record, loss, end, `${where}, record ${i + 1}`);
      examples.push(...(await drive(steps, answer)));
      if (i % TEXTS_AT_ONCE === TEXTS_AT_ONCE - 1) await pace.breathe();
    }
    const block = comparisons(program) * options.gradient_accumulation_steps;
    const [units, found] = units_of(examples, loss, program.sequence, pad, block, where);
    report ??= found;
    return units;
  };
  let units = await read(records, "records");
  let heldUnits: Unit[] | undefined;
  if (typeof evaluation === "number")
    [units, heldUnits] = split_rows(units, evaluation, options.seed, "options.evaluation");
  else if (evaluation !== undefined) heldUnits = await read(evaluation, "options.evaluation");
  const rows = rowsOf(units);
  checkIds([...rows, ...rowsOf(heldUnits ?? [])], model.decoder.vocab_size);
  return { rows, held: undefined, pad, report, units, heldUnits };
}

function rowsOf(units: readonly Unit[]): Row[] {
  return units.flatMap((unit) => unit.rows);
}

/** The rows, or comparisons, of each batch. */
export function orderOf({ rows, units }: Data, program: ProgramInfo, seed: bigint): Order {
  return units
    ? new Order(units.length, comparisons(program), seed)
    : new Order(rows.length, program.batch, seed);
}

/** The updates of a run. */
export function updatesOf(order: Order, options: RunSettings): Updates {
  return new Updates(order.batches, options.gradient_accumulation_steps);
}

/** Comparisons of a batch of a program; each has two rows. */
export function comparisons(program: ProgramInfo): number {
  return Math.max(1, program.batch >> 1);
}

function padOf(model: Learner, program: ProgramInfo): number {
  return program.padTokenId ?? endOf(model, program) ?? 0;
}

/**
 * Tokenizes texts, as transformers' `tokenizer(text)`, and cuts them into rows; records make one
 * row each. Pairs are for models with an encoder.
 * @throws InputError if they are neither, too short, or contain tokens unknown to the model
 */
export async function readData(
  model: Learner,
  program: ProgramInfo,
  texts: unknown,
  evaluation: TrainingFields["evaluation"],
  options: RunSettings,
  signal: AbortSignal,
): Promise<Data> {
  if (model.pairs) {
    if (options.preference)
      throw new InputError("pairs have no preferences", "options.loss", "Leave it out.");
    const pad = padOf(model, program);
    const found = await readPairs(model, program, texts, evaluation, options, pad, signal);
    const rows = found.rows.map(([row]) => row);
    const held = found.held?.map(([row]) => row);
    checkIds([...rows, ...(held ?? [])], model.decoder.vocab_size);
    const sources = found.rows.map(([, source]) => source);
    const heldSources = found.held?.map(([, source]) => source) ?? [];
    const { report, feeds } = found;
    return { rows, held, pad, report, sources, heldSources, feeds };
  }
  if (options.preference)
    return readPreferences(model, program, texts, evaluation, options, signal);
  if (program.topK)
    return readTaught(model, program, texts, evaluation, options, program.topK, signal);
  const { tokenizer } = model;
  const end = endOf(model, program);
  const pad = padOf(model, program);
  const { packing = false } = program;
  let report: Report | undefined;
  const read = async (list: unknown, where: string) => {
    if (Array.isArray(list) && are_records(list, where)) {
      const records = list as TrainingRecord[];
      const streamed = stream_texts(records, where);
      if (!streamed) {
        const examples = await examplesOf(model, program, records, where, signal);
        const [rows, found] = fitted(examples, program.sequence, pad, where, packing);
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
      if (ids.length % TEXTS_AT_ONCE === TEXTS_AT_ONCE - 1) await pace.breathe();
    }
    return rows_of_texts(ids, program.sequence, end ?? null, pad, where, packing);
  };
  let rows = await read(texts, "texts");
  let held: Row[] | undefined;
  if (typeof evaluation === "number")
    [rows, held] = split_rows(rows, evaluation, options.seed, "options.evaluation");
  else if (evaluation !== undefined) held = await read(evaluation, "options.evaluation");
  checkIds([...rows, ...(held ?? [])], model.decoder.vocab_size);
  return { rows, held, pad, report };
}

/**
 * Reads records with what a teacher says of their tokens.
 * @throws InputError if a record is invalid: the message says which; Aborted
 */
async function readTaught(
  model: Learner,
  program: ProgramInfo,
  given: unknown,
  evaluation: TrainingFields["evaluation"],
  options: RunSettings,
  topK: number,
  signal: AbortSignal,
): Promise<Data> {
  const pad = padOf(model, program);
  const { sequence } = program;
  const vocabulary = model.decoder.vocab_size;
  let report: Report | undefined;
  const read = async (list: unknown, where: string): Promise<[Row, Told][]> => {
    const examples: Example[] = [];
    const parts: Told[] = [];
    for (const [i, record] of (taught(list, where) as TrainingRecord[]).entries()) {
      const at = `${where}, record ${i + 1}`;
      for (const one of await examplesOf(model, program, [record], at, signal)) {
        examples.push(one);
        parts.push(told(record, one, sequence, topK, vocabulary, at));
      }
      if (i % TEXTS_AT_ONCE === TEXTS_AT_ONCE - 1) await pace.breathe();
    }
    const kept = kept_rows(examples, sequence, pad, where);
    report ??= kept.report;
    return kept.rows.map((row, i) => [row, parts[kept.examples[i]!]!]);
  };
  let rows = await read(given, "records");
  let held: [Row, Told][] | undefined;
  if (typeof evaluation === "number")
    [rows, held] = split_rows(rows, evaluation, options.seed, "options.evaluation");
  else if (evaluation !== undefined) held = await read(evaluation, "options.evaluation");
  const of = (all: [Row, Told][]) => all.map(([row]) => row);
  checkIds([...of(rows), ...of(held ?? [])], vocabulary);
  const said = (all: [Row, Told][]) => all.map(([, one]) => one);
  const parts = { told: said(rows), heldTold: said(held ?? []) };
  return { rows: of(rows), held: held && of(held), pad, report: report!, ...parts };
}

/** What a batch feeds of a teacher. */
export function toldFeeds(program: ProgramInfo, rows: readonly Told[]): Record<string, Uint8Array> {
  const { ids, log_probs } = of_batch(rows, program.batch);
  return {
    teacher_ids: new Uint8Array(BigInt64Array.from(ids, BigInt).buffer),
    teacher_log_probs: new Uint8Array(Float32Array.from(log_probs).buffer),
  };
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
