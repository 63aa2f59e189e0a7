// Pairs as training data: rows of tokens, and for each the states of the encoder, or features of
// pictures.

import { answered } from "../../logic/training/answers.ts";
import { type Example, kept_rows, type Report } from "../../logic/training/chat.ts";
import { type Row, split_rows } from "../../logic/training/data.ts";
import { type Pair, pairs_of } from "../../logic/training/pairs.ts";
import type { TrainingFields } from "../../protocol/training.ts";
import { throwIfAborted } from "../../shared/abort.ts";
import { InputError, PackageError } from "../../shared/errors.ts";
import { pace } from "../../shared/share.ts";
import type { Asked, Encoded, Features, FeedFeatures, Learner } from "../model/model.ts";
import type { ProgramInfo } from "../package/manifest.ts";
import type { RunSettings } from "./run-options.ts";

const [STATES, MASK] = ["encoder_hidden_states", "encoder_attention_mask"];

/** What a row has besides tokens: states of its encoder, [positions, width], or features. */
export type Source = Float32Array<ArrayBuffer> | Features;

export type Sourced = [row: Row, source: Source];

/** Rows to train on and to evaluate on. */
export interface SourcedData {
  rows: Sourced[];
  held: Sourced[] | undefined;
  report: Report;
  feeds: FeedFeatures | undefined;
}

/**
 * Reads pairs: each source goes through the processor and the encoder once.
 * @throws InputError if a pair is invalid: the message says which; Aborted
 */
export async function readPairs(
  model: Learner,
  program: ProgramInfo,
  given: unknown,
  evaluation: TrainingFields["evaluation"],
  options: RunSettings,
  pad: number,
  signal: AbortSignal,
): Promise<SourcedData> {
  const reader = await model.pairs!(options.call_options, signal);
  const { width, positions } = sizesOf(program);
  if (!reader.feeds && width !== reader.width)
    throw new PackageError(
      `training takes states of ${width} numbers, the encoder gives ${reader.width}`,
      model.where,
      "Build it again.",
    );
  let report: Report | undefined;
  const checked = ({ example, states }: Encoded, { where }: Pair): [Example, Source] => {
    if (states.length > positions * width)
      throw new InputError(
        `its source has ${states.length / width} tokens, training takes ${positions}`,
        where,
        "Shorten it, or compile the model for a longer sequence_length.",
      );
    return [example, states];
  };
  const read = async (list: unknown, where: string): Promise<Sourced[]> => {
    if (!Array.isArray(list))
      throw new InputError("it is no list of pairs", where, "Give a list of records.");
    const examples: Example[] = [];
    const sources: Source[] = [];
    for (const pair of pairs_of(list, reader.kind, where)) {
      throwIfAborted(signal);
      const one = await reader.read(pair).catch((e: unknown) => placed(e, pair));
      const [example, source] = "whole" in one ? seen(one, pair) : checked(one, pair);
      examples.push(example);
      sources.push(source);
      await pace.breathe();
    }
    const kept = kept_rows(examples, program.sequence, pad, where);
    report ??= kept.report;
    return kept.rows.map((row, i) => [row, sources[kept.examples[i]!]!]);
  };
  let rows = await read(given, "pairs");
  let held: Sourced[] | undefined;
  if (typeof evaluation === "number")
    [rows, held] = split_rows(rows, evaluation, options.seed, "options.evaluation");
  else if (evaluation !== undefined) held = await read(evaluation, "options.evaluation");
  return { rows, held, report: report!, feeds: reader.feeds };
}

/** The row of a question and its answer, and the features of its pictures. */
function seen({ asked, whole, ends, parts, counts }: Asked, { where }: Pair): [Example, Source] {
  const { example, prompt } = answered(asked, whole, ends, where);
  return [example, { prompt, parts, counts }];
}

/** Throws an error with the pair that it is of. */
function placed(e: unknown, { where }: Pair): never {
  if (!(e instanceof InputError) || e.where === where) throw e;
  throw new InputError(e.what, e.where ? `${where}: ${e.where}` : where, e.remedy);
}

/** Numbers of a position of the states, and positions of a row. */
function sizesOf({ plans, batch, source = 0 }: ProgramInfo): { width: number; positions: number } {
  const slot = plans.get("train")!.slots.find(({ name }) => name === STATES);
  return { width: (slot?.bytes ?? 0) / (4 * batch * source), positions: source };
}

/**
 * What a batch feeds besides tokens: states with zeros after those of shorter sources, masks; or
 * features of pictures.
 */
export function sourceFeeds(
  program: ProgramInfo,
  sources: readonly Source[],
  feeds: FeedFeatures | undefined,
): Record<string, Uint8Array> {
  if (feeds) return feeds(program, sources as readonly Features[]);
  const { width, positions } = sizesOf(program);
  const { batch } = program;
  const states = new Float32Array(batch * positions * width);
  const mask = new BigInt64Array(batch * positions);
  for (let i = 0; i < batch; i++) {
    const one = (sources[i] ?? sources[0]!) as Float32Array; // rows without labels get one, too
    states.set(one, i * positions * width);
    mask.fill(1n, i * positions, i * positions + one.length / width);
  }
  return { [STATES!]: new Uint8Array(states.buffer), [MASK!]: new Uint8Array(mask.buffer) };
}
