// Texts to batches: each text's tokens and an end-of-text behind it, all in one row, cut into
// blocks. Neighbouring blocks share one token, so that every token but the very first is predicted
// once.

import { InputError } from "../../shared/errors.ts";
import { shuffled } from "./seeds.ts";

/** Where nothing is to be learned. */
export const IGNORED = -100;

/** Texts as blocks of tokens. */
export interface Blocks {
  /** Block after block, `sequence` ids each. */
  ids: Int32Array;
  /** The same ids, -100 in the padding of the last block. */
  labels: Int32Array;
  /** Tokens of a block. */
  sequence: number;
  /** Blocks. */
  count: number;
  /** Tokens that are predicted, and so learned from. */
  learned: number;
}

/**
 * @param rows token ids of each text, special tokens of the tokenizer included
 * @param eos put behind each text; undefined: nothing
 * @param pad fills up the last block
 */
export function blocksOf(
  rows: number[][],
  sequence: number,
  eos: number | undefined,
  pad: number,
): Blocks {
  const all: number[] = [];
  for (const row of rows) {
    for (const id of row) all.push(id);
    if (eos !== undefined && row.length && row[row.length - 1] !== eos) all.push(eos);
  }
  const learned = Math.max(0, all.length - 1);
  const stride = sequence - 1;
  const count = Math.ceil(learned / stride);
  const ids = new Int32Array(count * sequence).fill(pad);
  const labels = new Int32Array(count * sequence).fill(IGNORED);
  for (let b = 0; b < count; b++)
    for (let i = 0; i < sequence && b * stride + i < all.length; i++)
      ids[b * sequence + i] = labels[b * sequence + i] = all[b * stride + i]!;
  return { ids, labels, sequence, count, learned };
}

/**
 * Takes a share of the blocks away for evaluation: at least one, never all. They are drawn by the
 * seed.
 */
export function split(
  blocks: Blocks,
  share: number,
  seed: bigint,
): [training: Blocks, evaluation: Blocks] {
  const held = Math.max(1, Math.round(blocks.count * share));
  if (held >= blocks.count)
    throw new InputError(
      `${blocks.count} blocks of ${blocks.sequence} tokens are too few to hold some back`,
      "evaluation",
      "Give more text, or texts of their own for evaluation.",
    );
  const order = shuffled(blocks.count, seed, -1);
  return [pick(blocks, order.slice(held).sort()), pick(blocks, order.slice(0, held).sort())];
}

function pick({ ids, labels, sequence }: Blocks, which: Uint32Array): Blocks {
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
 * The blocks in an endless row, in another order each epoch: block `cursor` of it is the `cursor %
 * count`-th of its epoch.
 */
export class Order {
  private epoch = -1;
  private order: Uint32Array = new Uint32Array(0);

  constructor(
    private readonly count: number,
    private readonly seed: bigint,
  ) {}

  /** The block at a place of the run, over all epochs. */
  at(cursor: number): number {
    const epoch = Math.floor(cursor / this.count);
    if (epoch !== this.epoch)
      [this.epoch, this.order] = [epoch, shuffled(this.count, this.seed, epoch)];
    return this.order[cursor % this.count]!;
  }
}

/**
 * Ids and labels of one batch as int64. Rows beyond `which` are padding, which counts for nothing.
 */
export function batchOf(
  blocks: Blocks,
  which: number[],
  batch: number,
  pad: number,
): { ids: BigInt64Array; labels: BigInt64Array; learned: number } {
  const n = blocks.sequence;
  const ids = new BigInt64Array(batch * n).fill(BigInt(pad));
  const labels = new BigInt64Array(batch * n).fill(BigInt(IGNORED));
  let learned = 0;
  which.forEach((b, row) => {
    for (let i = 0; i < n; i++) {
      const label = blocks.labels[b * n + i]!;
      ids[row * n + i] = BigInt(blocks.ids[b * n + i]!);
      labels[row * n + i] = BigInt(label);
      if (i && label !== IGNORED) learned++;
    }
  });
  return { ids, labels, learned };
}
