// Training data: rows of tokens cut from texts, their order, and the batches made from them.
// python/edgewise/host/training/data.py follows the same rules;
// tests/conformance/training_data.json holds both to them.

import { InputError } from "../../shared/errors.ts";
import { permutation } from "./permutation.ts";

/** Label of a position without a loss, as in PyTorch and transformers. */
export const IGNORED = -100;

/** Texts as rows of tokens. */
export interface Rows {
  /** Row after row, `sequence` ids each. */
  ids: Int32Array;
  /** The same ids; -100 in the padding of the last row. The loss shifts them. */
  labels: Int32Array;
  /** Tokens per row. */
  sequence: number;
  /** Number of rows. */
  count: number;
  /** Number of tokens that are predicted. */
  learned: number;
}

/**
 * Cuts texts into rows. The texts form one stream; each is followed by an end token unless it ends
 * with one. A row repeats the last token of the row before, so that every token but the first is
 * predicted exactly once. The last row is padded on the right.
 * @param texts token ids of each text, special tokens of the tokenizer included; empty ones are
 *   skipped
 * @param sequence tokens per row, at least 2
 * @param end id of the end-of-text token; undefined: texts follow each other without one
 * @param pad id of padding
 */
export function tokenRows(
  texts: readonly (readonly number[])[],
  sequence: number,
  end: number | undefined,
  pad: number,
): Rows {
  const stream: number[] = [];
  for (const text of texts) {
    for (const id of text) stream.push(id);
    if (end !== undefined && text.length && text[text.length - 1] !== end) stream.push(end);
  }
  const learned = Math.max(0, stream.length - 1);
  const stride = sequence - 1;
  const count = Math.ceil(learned / stride);
  const ids = new Int32Array(count * sequence).fill(pad);
  const labels = new Int32Array(count * sequence).fill(IGNORED);
  for (let row = 0; row < count; row++)
    for (let i = 0; i < sequence && row * stride + i < stream.length; i++)
      ids[row * sequence + i] = labels[row * sequence + i] = stream[row * stride + i]!;
  return { ids, labels, sequence, count, learned };
}

/**
 * Holds back a share of the rows for evaluation: at least one, never all. They are drawn as
 * PyTorch's random_split draws them, and keep their order.
 */
export function splitRows(
  rows: Rows,
  share: number,
  seed: bigint,
): [training: Rows, evaluation: Rows] {
  const held = Math.max(1, Math.floor(rows.count * share + 0.5));
  if (held >= rows.count)
    throw new InputError(
      `${rows.count} rows of ${rows.sequence} tokens are too few to hold out a part for evaluation`,
      "evaluation",
      "Give more text, or separate texts for evaluation.",
    );
  const order = permutation(rows.count, seed);
  const kept = rows.count - held;
  return [pick(rows, order.slice(0, kept).sort()), pick(rows, order.slice(kept).sort())];
}

function pick({ ids, labels, sequence }: Rows, which: Uint32Array): Rows {
  const take = (from: Int32Array) => {
    const out = new Int32Array(which.length * sequence);
    which.forEach((b, i) => out.set(from.subarray(b * sequence, (b + 1) * sequence), i * sequence));
    return out;
  };
  const picked = {
    ids: take(ids),
    labels: take(labels),
    sequence,
    count: which.length,
    learned: 0,
  };
  for (let i = 0; i < picked.labels.length; i++)
    if (i % sequence && picked.labels[i] !== IGNORED) picked.learned++;
  return picked;
}

/**
 * Which rows each update of a run is made from. An epoch has every row once; its last batch may
 * have fewer rows, its last update fewer batches.
 */
export class Order {
  /** Updates per epoch. */
  readonly perEpoch: number;
  private readonly batches: number;
  private epoch = -1;
  private order: Uint32Array = new Uint32Array(0);

  /**
   * @param count rows of the data
   * @param batch rows of a batch
   * @param accumulation batches of an update
   * @param seed epoch e is shuffled with seed + e
   */
  constructor(
    private readonly count: number,
    private readonly batch: number,
    private readonly accumulation: number,
    private readonly seed: bigint,
  ) {
    this.batches = Math.ceil(count / batch);
    this.perEpoch = Math.max(1, Math.ceil(this.batches / accumulation));
  }

  /**
   * Updates of a run.
   * @param epochs passes over the data; undefined: 1, or as many as `maxSteps` takes
   * @param maxSteps maximum number of updates
   */
  total(epochs: number | undefined, maxSteps: number | undefined): number {
    if (epochs === undefined && maxSteps !== undefined) return maxSteps;
    const total = Math.max(1, Math.ceil(this.perEpoch * (epochs ?? 1)));
    return maxSteps === undefined ? total : Math.min(total, maxSteps);
  }

  /** The rows of each batch of update `step`, which counts from 0. */
  update(step: number): number[][] {
    const epoch = Math.floor(step / this.perEpoch);
    if (epoch !== this.epoch)
      [this.epoch, this.order] = [epoch, permutation(this.count, this.seed + BigInt(epoch))];
    const first = (step % this.perEpoch) * this.accumulation;
    const last = Math.min(first + this.accumulation, this.batches);
    return Array.from({ length: last - first }, (_, i) =>
      Array.from(this.order.slice((first + i) * this.batch, (first + i + 1) * this.batch)),
    );
  }

  /** Passes over the data after `steps` updates, with a fraction. */
  epochs(steps: number): number {
    const batches = Math.min((steps % this.perEpoch) * this.accumulation, this.batches);
    return Math.floor(steps / this.perEpoch) + batches / this.batches;
  }
}

/** Ids and labels of one batch as int64. Rows beyond those of `which` are unlabelled padding. */
export function batchOf(
  rows: Rows,
  which: readonly number[],
  batch: number,
  pad: number,
): { ids: BigInt64Array; labels: BigInt64Array; learned: number } {
  const n = rows.sequence;
  const ids = new BigInt64Array(batch * n).fill(BigInt(pad));
  const labels = new BigInt64Array(batch * n).fill(BigInt(IGNORED));
  let learned = 0;
  which.forEach((b, row) => {
    for (let i = 0; i < n; i++) {
      const label = rows.labels[b * n + i]!;
      ids[row * n + i] = BigInt(rows.ids[b * n + i]!);
      labels[row * n + i] = BigInt(label);
      if (i && label !== IGNORED) learned++;
    }
  });
  return { ids, labels, learned };
}
