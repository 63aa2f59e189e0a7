// Updates as integers whose sum is exact, and whose norm is bounded: as
// python/edgewise/extras/federated/secure/quantize.py, number by number.

import { digest } from "../../../logic/federated/crypto.ts";
import { type Grid, LESS } from "../../../logic/federated/lattice.ts";
import { InputError } from "../../../shared/errors.ts";
import { nearest } from "../../../shared/python/numbers.ts";
import type { Schema, Values } from "../codec.ts";
import { type Bytes, made, stream } from "./crypto.ts";

/** How a round's updates become integers. */
export class Lattice {
  private signs: Float64Array | undefined;

  /**
   * @param grid its sizes
   * @param context digest of the round, from which the signs come
   */
  constructor(
    readonly grid: Grid,
    private readonly context: Bytes,
  ) {}

  /** Integers of an update. */
  get size(): number {
    return this.grid.block * this.grid.columns;
  }

  private async sign(x: Float64Array): Promise<void> {
    if (!this.signs) {
      const key = (await made(digest("signs", [this.context]))) as Bytes;
      const raw = await stream(key, Math.ceil(this.size / 8));
      this.signs = Float64Array.from(x, (_, i) => 1 - 2 * ((raw[i >> 3]! >> (i & 7)) & 1));
    }
    const { signs } = this;
    for (let i = 0; i < x.length; i++) x[i]! *= signs[i]!;
  }

  /** Multiplies the columns with the Hadamard matrix of orthonormal rows. */
  private mix(x: Float64Array): void {
    const { block, columns } = this.grid;
    for (let half = columns; half < block * columns; half *= 2)
      for (let begin = 0; begin < x.length; begin += 2 * half)
        for (let i = begin; i < begin + half; i++) {
          const [a, b] = [x[i]!, x[i + half]!];
          x[i] = a + b;
          x[i + half] = a - b;
        }
    const scale = 1 / Math.sqrt(block);
    for (let i = 0; i < x.length; i++) x[i]! *= scale;
  }

  /** [count] -> [size]. */
  async rotate(values: Float64Array): Promise<Float64Array> {
    const x = new Float64Array(this.size);
    x.set(values);
    await this.sign(x);
    this.mix(x);
    return x;
  }

  /** [size] -> [count], the inverse of `rotate`. */
  async unrotate(values: Float64Array): Promise<Float64Array> {
    const x = values.slice();
    this.mix(x);
    await this.sign(x);
    return x.slice(0, this.grid.count);
  }

  /** Rotated numbers of a norm of at most clip as integers of a norm of at most `bound`. */
  round(x: Float64Array): Int16Array<ArrayBuffer> {
    const { levels, bound, step } = this.grid;
    const whole = (y: Float64Array, cut: (v: number) => number): Int16Array<ArrayBuffer> =>
      Int16Array.from(y, (v) => Math.max(-levels, Math.min(levels, cut(v))));
    const inverse = 1 / step;
    let y = x.map((v) => v * inverse);
    for (let k = 0; k < 8; k++) {
      const q = whole(y, nearest);
      const squares = q.reduce((sum, v) => sum + v * v, 0);
      if (squares <= bound * bound) return q;
      const factor = (LESS * bound) / Math.sqrt(squares);
      y = y.map((v) => v * factor);
    }
    const less = LESS / step;
    return whole(
      x.map((v) => v * less),
      Math.trunc,
    );
  }
}

/** The L2 norm, summed from the first number to the last. */
const normInOrder = (x: Float64Array): number => Math.sqrt(x.reduce((sum, v) => sum + v * v, 0));

/** An update as integers. */
export interface Quantized {
  /** The integers [size]. */ numbers: Int16Array<ArrayBuffer>;
  /** What they have rounded away. */ left: Values;
  /** L2 norm of what they express. */ norm: number;
}

/**
 * Makes integers of an update.
 * @param values the difference of each parameter
 * @param left what earlier updates have rounded away; it is added first
 */
export async function quantize(
  values: Values,
  left: Values,
  schema: Schema,
  lattice: Lattice,
): Promise<Quantized> {
  const { step, bound, count } = lattice.grid;
  const x = new Float64Array(count);
  let at = 0;
  for (const name of schema.shapes.keys()) {
    const before = left.get(name);
    values.get(name)!.forEach((v, i) => (x[at + i] = v + (before?.[i] ?? 0)));
    at += values.get(name)!.length;
  }
  const norm = normInOrder(x);
  if (!Number.isFinite(norm))
    throw new InputError("its change is not finite", "update", "Train with a smaller rate.");
  const clip = step * bound;
  const factor = clip / norm;
  const inside = norm > clip ? x.map((v) => v * factor) : x;
  const numbers = lattice.round(await lattice.rotate(inside));
  const got = await lattice.unrotate(Float64Array.from(numbers, (q) => q * step));
  const away: Values = new Map();
  at = 0;
  for (const name of schema.shapes.keys()) {
    const begin = at;
    const part = values.get(name)!;
    away.set(
      name,
      part.map((_, i) => inside[begin + i]! - got[begin + i]!),
    );
    at += part.length;
  }
  return { numbers, left: away, norm: normInOrder(got) };
}
