// Tensors of a diffusion model's graphs, which may be float16.

import type { TaskTensor } from "../../../protocol/tasks.ts";
import { toHalf } from "../../../shared/float16.ts";
import type { InferenceInfo } from "../../inference/manifest.ts";

/** A tensor of the type that a graph's input has. */
export function feed(
  graph: InferenceInfo,
  name: string,
  dims: readonly number[],
  values: ArrayLike<number>,
): TaskTensor {
  const type = graph.plans[0]?.inputs.get(name)?.dtype ?? "float32";
  const list = Array.from(values);
  const made =
    type === "int64"
      ? BigInt64Array.from(list, (x) => BigInt(Math.trunc(x)))
      : type === "int32"
        ? Int32Array.from(list, Math.trunc)
        : type === "float16"
          ? Uint16Array.from(list, toFiniteHalf)
          : Float32Array.from(list);
  return { type, dims: [...dims], data: new Uint8Array(made.buffer) };
}

/** The bits of the nearest float16; too large numbers are the largest. */
export const toFiniteHalf = (value: number): number =>
  toHalf(Math.min(Math.max(value, -65504), 65504));
