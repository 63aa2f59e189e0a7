// Outputs of graphs as numbers, and the labels of their classes.

import { labeled, labeling, type Score } from "../../logic/post/classification.ts";
import { choose_output } from "../../logic/tasks/inputs.ts";
import type { TaskTensor } from "../../protocol/tasks.ts";
import { InputError } from "../../shared/errors.ts";
import type { TaskHost } from "./host.ts";
import type { Options } from "./options.ts";

/** An output of a graph as numbers. */
export interface Numbers {
  dims: number[];
  data: Float32Array;
}

/** A tensor as numbers. */
export function numbers({ type, dims, data }: TaskTensor): Numbers {
  if (type === "float32")
    return { dims, data: new Float32Array(data.buffer, data.byteOffset, data.byteLength / 4) };
  if (type === "float16") return { dims, data: fromHalves(data) };
  if (type === "int32") return { dims, data: Float32Array.from(new Int32Array(copied(data))) };
  if (type === "int64")
    return { dims, data: Float32Array.from(new BigInt64Array(copied(data)), Number) };
  throw new InputError(`an output has the type ${type}`, "model", "Export the model as float32.");
}

const copied = (data: Uint8Array<ArrayBuffer>): ArrayBuffer => data.slice().buffer;

function fromHalves(data: Uint8Array<ArrayBuffer>): Float32Array {
  const halves = new Uint16Array(data.buffer, data.byteOffset, data.byteLength / 2);
  return Float32Array.from(halves, (h) => {
    const sign = h & 0x8000 ? -1 : 1;
    const [exponent, fraction] = [(h >> 10) & 31, h & 1023];
    if (exponent === 31) return fraction ? NaN : sign * Infinity;
    return exponent
      ? sign * 2 ** (exponent - 15) * (1 + fraction / 1024)
      : sign * 2 ** -14 * (fraction / 1024);
  });
}

/** The numbers of the last dimension at an index of the others. */
export function row({ dims, data }: Numbers, ...index: number[]): Float32Array {
  let at = 0;
  index.forEach((x, i) => {
    at = at * dims[i]! + x;
  });
  const size = dims.at(-1)!;
  return data.subarray(at * size, (at + 1) * size);
}

/**
 * An output of the graph.
 * @throws InputError if the model is of another task
 */
export function output(
  host: TaskHost,
  outputs: Record<string, Numbers>,
  ...names: string[]
): Numbers {
  const all = Object.keys(outputs);
  const any = all.length === 1 && names.length === 1;
  return outputs[any ? all[0]! : choose_output(all, names, host.task)]!;
}

/**
 * From logits to labels, as options and config say.
 * @param top default of `top_k`
 */
export function labeler(
  host: TaskHost,
  { given }: Options,
  top: number,
): (logits: Float32Array) => Score[] {
  const how = labeling(given, top);
  return (logits) => labeled(logits, host.config(), how);
}
