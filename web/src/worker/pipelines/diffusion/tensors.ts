// Tensors of a diffusion model's graphs, which may be float16.

import type { TaskTensor } from "../../../protocol/tasks.ts";
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
          ? Uint16Array.from(list, toHalf)
          : Float32Array.from(list);
  return { type, dims: [...dims], data: new Uint8Array(made.buffer) };
}

const view = new DataView(new ArrayBuffer(4));

/** The bits of the nearest float16, with ties to even; too large numbers are the largest. */
export function toHalf(value: number): number {
  view.setFloat32(0, Math.min(Math.max(value, -65504), 65504));
  const bits = view.getUint32(0);
  const sign = (bits >>> 16) & 0x8000;
  const exponent = ((bits >>> 23) & 255) - 112;
  let fraction = (bits & 0x7fffff) | 0x800000;
  if (Number.isNaN(value)) return sign | 0x7e00;
  if (exponent < -10) return sign;
  const cut = exponent < 1 ? 14 - exponent : 13;
  const half = 1 << (cut - 1);
  const odd = (fraction >>> cut) & 1;
  fraction = (fraction + half - 1 + odd) >>> cut;
  // a carry out of the fraction raises the exponent
  return sign | (exponent < 1 ? fraction : fraction + ((exponent - 1) << 10));
}
