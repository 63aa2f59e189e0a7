// Axes, strides and reductions of tensors.

import { InputError, InputRangeError, Tensor } from "../../page/index.ts";
import { asFloat32 } from "../../shared/checkpoints/safetensors.ts";

/** Elements of a tensor in their array; those of 64-bit integers are bigint. */
export type Values = Float32Array | string[];

export const valuesOf = (t: Tensor): Values => t.data as Values;

/** Elements to compute with. @throws InputError where they are represented by bits or bytes */
export const numbersOf = (t: Tensor, where: string): Values => Tensor.numbers(t, where) as Values;

/** Elements as numbers, read from bits of 16. @throws InputError where they are bytes */
export function decoded(t: Tensor, where: string): Values {
  const { type, data } = t;
  if (!(data instanceof Uint16Array) || type === "uint16") return numbersOf(t, where);
  const { buffer, byteOffset, byteLength } = data as Uint16Array<ArrayBuffer>;
  return asFloat32(new Uint8Array(buffer, byteOffset, byteLength), type, where);
}

/** @throws InputError that shows a tensor's shape */
export function fail(what: string, where: string, t: Tensor): never {
  throw new InputError(what, where, `Its shape is [${t.dims.join(", ")}].`);
}

/** An array of the same class. */
export function arrayLike(data: Values, length: number): Values {
  return new (data.constructor as new (n: number) => Values)(length);
}

/** An index, which may count from the end. @throws InputRangeError */
export function indexIn(i: number, size: number, where: string): number {
  if (!(i >= -size && i < size))
    throw new InputRangeError(`there is no index ${i}`, where, `There are ${size}.`);
  return i < 0 ? i + size : i;
}

/** Distances of neighbours in memory, by axis. */
export function strides(dims: readonly number[]): number[] {
  const steps = new Array<number>(dims.length);
  for (let axis = dims.length - 1, step = 1; axis >= 0; step *= dims[axis]!, axis--)
    steps[axis] = step;
  return steps;
}

/** The first index of what is better than all others. @throws InputError if there is nothing */
export function best(list: ArrayLike<number>, better: (a: number, b: number) => boolean): number {
  if (!list.length) throw new InputError("it is empty", "the numbers", "Give one at least.");
  let at = 0;
  for (let i = 1; i < list.length; i++) if (better(list[i]!, list[at]!)) at = i;
  return at;
}

/**
 * Reduces an axis, or (null) all elements to a scalar.
 * @param f gets the elements that become one
 */
export function reduced(
  t: Tensor,
  dim: number | null,
  keepdim: boolean,
  f: (list: number[]) => number,
): Tensor {
  const data = numbersOf(t, "Tensor") as Float32Array;
  const tensor = (values: number[], dims: number[]): Tensor => new Tensor(t.type, values, dims);
  if (dim === null) return tensor([f(Array.from(data))], []);
  const axis = indexIn(dim, t.dims.length, "Tensor");
  const size = t.dims[axis]!;
  const inner = strides(t.dims)[axis]!;
  const out: number[] = [];
  for (let outer = 0; outer < data.length; outer += size * inner)
    for (let j = 0; j < inner; j++)
      out.push(f(Array.from({ length: size }, (_, i) => data[outer + i * inner + j]!)));
  const dims = t.dims.flatMap((d, i) => (i !== axis ? [d] : keepdim ? [1] : []));
  return tensor(out, dims);
}
