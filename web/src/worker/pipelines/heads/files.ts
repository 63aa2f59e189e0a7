// Heads in safetensors files, which Python reads and writes as well
// (python/edgewise/host/pipelines/personal/files.py). The format is in the part for training.

import type { HeadFields } from "../../../protocol/heads.ts";
import { ModelError } from "../../../shared/errors.ts";
import type { Adapters } from "../adapters/layout.ts";
import { Examples } from "./examples.ts";
import { areFinite } from "./features.ts";
import type { Head } from "./fit.ts";

const FORMAT = "edgewise-head";
const VERSION = "1";
const WITH_ADAPTERS = "2"; // older versions would compare such features with others
const MAX_STEPS = 100_000; // of a training, as personalize takes them

/** A head as it is saved. */
export interface Saved {
  name: string;
  task: string;
  /** Digest of the model. */
  model: string;
  fields: HeadFields;
  examples: Examples;
  /** Undefined: the head classifies by the nearest examples, or has too few to be trained. */
  head: Head | undefined;
  /** That the model has for the features of `examples`. */
  adapters: Adapters | undefined;
}

/** Writes a head with the features of its examples. */
export async function writeHead(saved: Saved): Promise<Blob> {
  const { safetensorsHead } = await import("../../training/index.ts");
  const { name, task, model, fields, examples, head, adapters } = saved;
  const { method, ...options } = fields;
  const { labels, size, length } = examples;
  const rows = new Float32Array(length * size);
  examples.rows.forEach((row, i) => {
    rows.set(row, i * size);
  });
  const given: [string, string, number[], Uint8Array<ArrayBuffer>][] = [
    ["examples", "float32", [length, size], bytesOf(rows)],
    ["classes", "int64", [length], bytesOf(BigInt64Array.from(examples.classes, BigInt))],
  ];
  if (head)
    given.push(
      ["weight", "float32", [size, labels.length], bytesOf(head.weight)],
      ["bias", "float32", [labels.length], bytesOf(head.bias)],
    );
  if (adapters) given.push(["adapters", "float32", [adapters.data.length], bytesOf(adapters.data)]);
  const contents = new Map(given.map(([key, , , data]) => [key, data]));
  const infos = new Map(
    given.map(([key, dtype, shape, { length: bytes }]) => [key, { dtype, shape, bytes }]),
  );
  const texts = { labels: JSON.stringify(labels), options: JSON.stringify(options) };
  const version = adapters ? WITH_ADAPTERS : VERSION;
  const lora = adapters && { lora: JSON.stringify(adapters.layout) };
  const metadata = { format: FORMAT, version, name, task, model, method, ...texts, ...lora };
  const { head: start, order } = safetensorsHead(infos, metadata);
  return new Blob([start, ...order.map((key) => contents.get(key)!)]);
}

function bytesOf(values: ArrayBufferView<ArrayBuffer>): Uint8Array<ArrayBuffer> {
  return new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
}

/**
 * Reads a head.
 * @throws ModelError if the file is damaged, or none of a head
 */
export async function readHead(file: Blob, where: string): Promise<Saved> {
  const { readSafetensors } = await import("../../training/index.ts");
  const { tensors, metadata } = await readSafetensors(file, where);
  const need = (fine: unknown, what: string): void => {
    if (!fine) throw new ModelError(what, where, SAVE_AGAIN);
  };
  const { version } = metadata;
  const known = version === VERSION || version === WITH_ADAPTERS;
  need(metadata.format === FORMAT && known, "it is no head of this version");
  const labels = parsed(metadata.labels);
  const options = parsed(metadata.options) as Omit<HeadFields, "method">;
  if (!isLabels(labels)) throw new ModelError("it has no labels", where, SAVE_AGAIN);
  need(isOptions(options), "its options are not valid");
  const { method } = metadata;
  need(method === "logistic" || method === "knn", `its method is '${method}'`);
  const read = async (name: string, dtype: string, rank: number) => {
    const found = tensors.get(name);
    need(found?.dtype === dtype && found.shape.length === rank, `it has no ${name}, or wrong ones`);
    const { offset, bytes, shape } = found!;
    const data = await file.slice(offset, offset + bytes).arrayBuffer();
    const finite = dtype !== "float32" || areFinite(new Float32Array(data));
    need(finite, "its numbers are not finite");
    return { shape, data };
  };
  const rows = await read("examples", "float32", 2);
  const of = await read("classes", "int64", 1);
  const [count, size] = rows.shape as [number, number];
  need(of.shape[0] === count && size, "its examples and classes do not match");
  const examples = new Examples();
  examples.labels = labels;
  examples.classes = Array.from(new BigInt64Array(of.data), Number);
  const isClass = (c: number) => c >= 0 && c < examples.labels.length;
  need(examples.classes.every(isClass), "an example has a label that is not there");
  const flat = new Float32Array(rows.data);
  examples.rows = Array.from({ length: count }, (_, i) => flat.slice(i * size, (i + 1) * size));
  let head: Head | undefined;
  const enough = labels.length > 1 && examples.counts().every(Boolean);
  if (method === "logistic" && (enough || tensors.has("weight"))) {
    const [weight, bias] = [await read("weight", "float32", 2), await read("bias", "float32", 1)];
    const shapes = [...weight.shape, ...bias.shape];
    const wanted = [size, examples.labels.length, examples.labels.length];
    need(String(shapes) === String(wanted), "its weights have a wrong shape");
    head = {
      labels: [...examples.labels],
      weight: new Float32Array(weight.data),
      bias: new Float32Array(bias.data),
      losses: [],
    };
  }
  let adapters: Adapters | undefined;
  if (version === WITH_ADAPTERS) {
    const { adaptersOf } = await import("../adapters/index.ts");
    const { data } = await read("adapters", "float32", 1);
    adapters = adaptersOf(parsed(metadata.lora), new Float32Array(data), where);
  }
  const { name = "default", task = "", model = "" } = metadata;
  const fields = { ...options, method } as HeadFields;
  return { name, task, model, fields, examples, head, adapters };
}

function parsed(text: string | undefined): unknown {
  try {
    return JSON.parse(text ?? "");
  } catch {
    return undefined;
  }
}

const SAVE_AGAIN = "Save it again with `save`.";
const MAX_LABELS = 100_000;

function isLabels(labels: unknown): labels is string[] {
  if (!Array.isArray(labels) || !labels.length || labels.length > MAX_LABELS) return false;
  return labels.every((l) => typeof l === "string") && new Set(labels).size === labels.length;
}

/** Whether options are those that `personalize` takes. */
export function isOptions(options: Partial<HeadFields> | undefined): boolean {
  if (typeof options !== "object" || options === null) return false;
  const { neighbors, c, steps, learning_rate: rate, class_weight: weight } = options;
  const isCount = (n: unknown, most: number) =>
    Number.isInteger(n) && (n as number) > 0 && (n as number) <= most;
  const isPositive = (x: unknown) => typeof x === "number" && x > 0 && x < Infinity;
  return (
    isCount(neighbors, Number.MAX_SAFE_INTEGER) &&
    isCount(steps, MAX_STEPS) &&
    isPositive(c) &&
    isPositive(rate) &&
    isWeight(weight)
  );
}

function isWeight(weight: unknown): boolean {
  if (weight === "balanced" || weight === null) return true;
  if (typeof weight !== "object" || Array.isArray(weight)) return false;
  return Object.values(weight!).every((w) => typeof w === "number" && w > 0 && w < Infinity);
}
