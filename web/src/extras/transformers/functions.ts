// Functions of numbers and of tensors, with the names of transformers.js.

import { Tensor as Base, InputError, type TensorType } from "../../page/index.ts";
import { arrayLike, best, indexIn, numbersOf, valuesOf } from "./shapes.ts";
import { permuted, type Tensor } from "./tensor-methods.ts";

type Numbers = readonly number[] | Float32Array | Float64Array;

const made = (type: TensorType, data: unknown, dims: readonly number[]): Tensor =>
  new Base(type, data as never, dims) as Tensor;

/** exp(x) of each number, divided by their sum. */
export function softmax<T extends Numbers>(arr: T): T {
  const most = max(arr);
  const list = Array.from(arr as ArrayLike<number>, (x) => Math.exp(x - most));
  const sum = list.reduce((a, b) => a + b, 0);
  const shares = list.map((x) => x / sum);
  return (Array.isArray(arr)
    ? shares
    : (arr.constructor as Float32ArrayConstructor).from(shares)) as unknown as T;
}

/** Logarithms of {@link softmax}. */
export function log_softmax<T extends Numbers>(arr: T): T {
  const most = max(arr);
  let sum = 0;
  for (const x of arr) sum += Math.exp(x - most);
  const log = Math.log(sum);
  return arr.map((x) => x - most - log) as unknown as T;
}

/** The sum of products. */
export function dot(arr1: Numbers, arr2: Numbers): number {
  let sum = 0;
  for (let i = 0; i < arr1.length; i++) sum += arr1[i]! * arr2[i]!;
  return sum;
}

/** Euclidean length. */
const magnitude = (arr: Numbers): number => Math.sqrt(dot(arr, arr));

/** The cosine of the angle between two vectors. */
export function cos_sim(arr1: Numbers, arr2: Numbers): number {
  return dot(arr1, arr2) / (magnitude(arr1) * magnitude(arr2));
}

/** The greatest number. */
const max = (arr: ArrayLike<number>): number => arr[best(arr, (a, b) => a > b)]!;

/** Tensors one after the other along an axis. */
export function cat(tensors: readonly Base[], dim = 0): Tensor {
  const [first] = tensors;
  if (!first) throw new InputError("there are no tensors", "cat", "Give one at least.");
  const axis = indexIn(dim, first.dims.length, "cat");
  for (const t of tensors)
    if (
      t.type !== first.type ||
      t.dims.length !== first.dims.length ||
      t.dims.some((d, i) => i !== axis && d !== first.dims[i])
    )
      throw new InputError(
        `${t.type} [${t.dims}] does not fit ${first.type} [${first.dims}]`,
        "cat",
        `All axes but ${axis} have one size.`,
      );
  const dims = [...first.dims];
  dims[axis] = tensors.reduce((n, t) => n + t.dims[axis]!, 0);
  const out = arrayLike(
    valuesOf(first),
    dims.reduce((n, d) => n * d, 1),
  );
  const outer = dims.slice(0, axis).reduce((n, d) => n * d, 1);
  for (let row = 0, at = 0; row < outer; row++)
    for (const t of tensors) {
      const data = valuesOf(t);
      const part = data.length / outer;
      for (let i = row * part; i < (row + 1) * part; i++) out[at++] = data[i] as never;
    }
  return made(first.type, out as never, dims);
}

/** Tensors of one shape along a new axis. */
export function stack(tensors: readonly Base[], dim = 0): Tensor {
  return cat(
    tensors.map((t) => (t as Tensor).unsqueeze(dim)),
    dim,
  );
}

/** A tensor of equal elements: float32, int64 for a bigint, bool for a boolean. */
export function full(size: readonly number[], fill_value: number | bigint | boolean): Tensor {
  const count = size.reduce((n, d) => n * d, 1);
  if (typeof fill_value === "bigint")
    return made("int64", new BigInt64Array(count).fill(fill_value), size);
  return typeof fill_value === "boolean"
    ? made("bool", new Uint8Array(count).fill(Number(fill_value)), size)
    : made("float32", new Float32Array(count).fill(fill_value), size);
}

export const full_like = (t: Base, fill_value: number | bigint | boolean): Tensor =>
  full(t.dims, fill_value);
/** A tensor of int64 ones, as there. */
export const ones = (size: readonly number[]): Tensor => full(size, 1n);
export const ones_like = (t: Base): Tensor => ones(t.dims);
/** A tensor of int64 zeros, as there. */
export const zeros = (size: readonly number[]): Tensor => full(size, 0n);
export const zeros_like = (t: Base): Tensor => zeros(t.dims);

/** The elements in another order of axes. */
export const permute = (t: Base, axes: readonly number[]): Tensor => permuted(t, axes);

/** Means of an axis, or of all elements. */
export const mean = (t: Base, dim: number | null = null, keepdim = false): Tensor =>
  (t as Tensor).mean(dim, keepdim);

/**
 * Means over the tokens of each text.
 * @param last_hidden_state [texts, tokens, size]
 * @param attention_mask [texts, tokens]: 0 for padding
 */
export function mean_pooling(last_hidden_state: Base, attention_mask: Base): Tensor {
  const [texts = 0, tokens = 0, size = 0] = last_hidden_state.dims;
  if (last_hidden_state.dims.length !== 3 || attention_mask.size !== texts * tokens)
    throw new InputError(
      `[${attention_mask.dims}] does not fit [${last_hidden_state.dims}]`,
      "mean_pooling",
      "Give [texts, tokens, size] and [texts, tokens].",
    );
  const states = numbersOf(last_hidden_state, "mean_pooling") as Float32Array;
  const mask = Array.from(attention_mask.data as ArrayLike<unknown>, Number);
  const out = new Float32Array(texts * size);
  for (let i = 0; i < texts; i++)
    for (let k = 0; k < size; k++) {
      let [sum, count] = [0, 0];
      for (let j = 0; j < tokens; j++) {
        const weight = mask[i * tokens + j]!;
        count += weight;
        sum += weight * states[(i * tokens + j) * size + k]!;
      }
      out[i * size + k] = sum / count;
    }
  return made(last_hidden_state.type, out as never, [texts, size]);
}

/** Rows less their mean, divided by their standard deviation plus `eps`, as there. */
export function layer_norm(
  input: Base,
  normalized_shape: readonly number[],
  { eps = 1e-5 }: { eps?: number } = {},
): Tensor {
  const [size = 0] = normalized_shape;
  if (input.dims.length !== 2 || normalized_shape.length !== 1 || size !== input.dims[1])
    throw new InputError(
      `[${normalized_shape}] does not fit [${input.dims}]`,
      "layer_norm",
      "Give [rows, size] and [size].",
    );
  const x = numbersOf(input, "layer_norm") as Float32Array;
  const out = new Float32Array(x.length);
  for (let row = 0; row < x.length; row += size) {
    const part = x.subarray(row, row + size);
    const middle = part.reduce((a, b) => a + b, 0) / size;
    const spread = part.reduce((a, b) => a + (b - middle) ** 2, 0) / size;
    for (let i = 0; i < size; i++) out[row + i] = (part[i]! - middle) / (Math.sqrt(spread) + eps);
  }
  return made(input.type, out as never, input.dims);
}
