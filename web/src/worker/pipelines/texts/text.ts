// What the pipelines of texts share: encodings, inputs and outputs of the graph.

import type { TaskTensor } from "../../../protocol/tasks.ts";
import { InputError } from "../../../shared/errors.ts";
import type { Dim, InferencePlan } from "../../inference/manifest.ts";
import { type EncodeOptions, type Encoding, encodingsOf } from "../../text/encoding.ts";
import type { Ending, TaskHost } from "../host.ts";

/** Model types whose positions begin after that of the padding token. */
const OFFSET_POSITIONS =
  /^((xlm-)?roberta(-xl|-prelayernorm)?|camembert|mpnet|longformer|data2vec-text|xmod|luke)$/;

/** An output of a graph as numbers. */
export interface Numbers {
  dims: number[];
  data: Float32Array;
}

/** The most tokens of a text. */
export function longest(host: TaskHost): number | undefined {
  const { text } = host.processor;
  const most = (text as { max_length?: unknown } | undefined)?.max_length;
  return typeof most === "number" ? most : undefined;
}

/** The encodings of a text or a pair, by default cut to the length that the model takes. */
export function encodings(
  host: TaskHost,
  text: string,
  pair: string | undefined,
  options: EncodeOptions = {},
): Encoding[] {
  const most = longest(host);
  const max_length = Math.min(options.max_length ?? Infinity, most ?? Infinity);
  return encodingsOf(host.needTokenizer(), text, pair, {
    ...options,
    ...(Number.isFinite(max_length) ? { max_length } : {}),
  });
}

/**
 * Runs the graph "model" on an encoding.
 * @param perToken whether the outputs have a row for each token: rows of padding are removed
 * @returns its outputs by name
 * @throws InputError if the text has no tokens
 */
export async function forward(
  host: TaskHost,
  encoding: Encoding,
  perToken: boolean,
  ending: Ending,
): Promise<Record<string, Numbers>> {
  const n = encoding.length;
  if (!n) throw new InputError("the text has no tokens", host.task, "Give a text.");
  const graph = host.graph("model");
  const length = planLength(graph.plans, n);
  const { model_type: kind, pad_token_id: pad } = host.config();
  const first = OFFSET_POSITIONS.test(String(kind)) ? Number(pad ?? 1) + 1 : 0;
  const padId = Number.isInteger(pad) ? Number(pad) : 0;
  const values: Record<string, (i: number) => number> = {
    input_ids: (i) => encoding[i]?.id ?? padId,
    attention_mask: (i) => (i < n ? 1 : 0),
    token_type_ids: (i) => encoding[i]?.type ?? 0,
    position_ids: (i) => first + i,
  };
  const feeds: Record<string, TaskTensor> = {};
  for (const { name, dtype } of graph.inputs) {
    const value = values[name];
    if (!value)
      throw new InputError(
        `the graph has an input '${name}', which this pipeline does not feed`,
        host.task,
        "Export the model for this task.",
      );
    feeds[name] = integers(dtype, length, value);
  }
  const outputs = await host.run("model", feeds, ending);
  return Object.fromEntries(
    Object.entries(outputs).map(([name, tensor]) => {
      const { dims, data } = numbers(tensor);
      if (!perToken || length === n) return [name, { dims, data }];
      const row = dims.slice(2).reduce((a, b) => a * b, 1);
      return [name, { dims: [1, n, ...dims.slice(2)], data: data.subarray(0, n * row) }];
    }),
  );
}

/** The length that plans take for `n` tokens: the next one for which there is a plan. */
function planLength(plans: readonly InferencePlan[], n: number): number {
  let best = Infinity;
  for (const { register, inputs } of plans) {
    const size: Dim | undefined = inputs.get("input_ids")?.shape[1];
    const [low, high] = typeof size === "number" ? [size, size] : (register ?? [n, n]);
    if (n <= high) best = Math.min(best, Math.max(n, low));
  }
  return Number.isFinite(best) ? best : n;
}

function integers(type: string, length: number, value: (i: number) => number): TaskTensor {
  const at = Array.from({ length }, (_, i) => value(i));
  const array =
    type === "int64"
      ? BigInt64Array.from(at, BigInt)
      : type === "int32"
        ? Int32Array.from(at)
        : type === "bool"
          ? Uint8Array.from(at)
          : Float32Array.from(at);
  return { type, dims: [1, length], data: new Uint8Array(array.buffer) };
}

/** A float tensor as numbers. */
export function numbers({ type, dims, data }: TaskTensor): Numbers {
  if (type === "float32")
    return { dims, data: new Float32Array(data.buffer, data.byteOffset, data.byteLength / 4) };
  if (type === "float16") return { dims, data: fromHalves(data) };
  throw new InputError(`an output has the type ${type}`, "model", "Export the model as float32.");
}

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
  for (const name of names) if (outputs[name]) return outputs[name];
  const all = Object.keys(outputs);
  if (all.length === 1 && names.length === 1) return outputs[all[0]!]!;
  throw new InputError(
    `the model has no output ${names.join(" or ")}; it has ${all.join(", ")}`,
    host.task,
    "It was exported for another task: give a model of this one.",
  );
}

/** `id2label` of config.json, for `count` labels. */
export function labelsOf(host: TaskHost, count: number): Record<string, string> {
  const given = (host.config().id2label ?? {}) as Record<string, unknown>;
  return Object.fromEntries(
    Array.from({ length: count }, (_, i) => [String(i), String(given[i] ?? `LABEL_${i}`)]),
  );
}
