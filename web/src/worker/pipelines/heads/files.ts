// Heads in safetensors files, which Python reads and writes as well: logic/personal/files.py says
// what they hold. The format is in the part for training.

import {
  broken,
  check_contents,
  FORMAT,
  head_file,
  options_of,
  tensors_of,
  VERSION,
  WITH_ADAPTERS,
} from "../../../logic/personal/files.ts";
import type { HeadFields } from "../../../logic/personal/options.ts";
import type { Adapters } from "../adapters/lora.ts";
import { Examples } from "./examples.ts";
import { areFinite } from "./features.ts";
import type { Head } from "./fit.ts";

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
  const { size, length } = examples;
  const rows = new Float32Array(length * size);
  examples.rows.forEach((row, i) => {
    rows.set(row, i * size);
  });
  const contents = new Map<string, Uint8Array<ArrayBuffer>>([
    ["examples", bytesOf(rows)],
    ["classes", bytesOf(BigInt64Array.from(examples.classes, BigInt))],
  ]);
  if (head) contents.set("weight", bytesOf(head.weight)).set("bias", bytesOf(head.bias));
  if (adapters) contents.set("adapters", bytesOf(adapters.data));
  const layout = adapters?.layout ?? null;
  const infos = new Map(
    tensors_of(examples, size, head !== undefined, layout).map(([key, { dtype, shape }]) => [
      key,
      { dtype, shape, bytes: contents.get(key)!.length },
    ]),
  );
  const texts = {
    labels: JSON.stringify(examples.labels),
    options: JSON.stringify(options_of(fields)),
    ...(layout && { lora: JSON.stringify(layout.to_dict()) }),
  };
  const version = layout ? WITH_ADAPTERS : VERSION;
  const metadata = { format: FORMAT, version, name, task, model, method: fields.method, ...texts };
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
  const contents = Object.fromEntries(
    ["labels", "options", "lora"].map((name) => [name, parsed(metadata[name])]),
  );
  const stored = Object.fromEntries(tensors);
  const found = head_file(metadata, contents, stored, where);
  const read = async (name: string) => {
    const { offset, bytes } = tensors.get(name)!;
    return file.slice(offset, offset + bytes).arrayBuffer();
  };
  const floats = async (name: string) => {
    const data = new Float32Array(await read(name));
    if (!areFinite(data)) throw broken("its numbers are not finite", where);
    return data;
  };
  const classes = Array.from(new BigInt64Array(await read("classes")), Number);
  const labels = check_contents(found, classes, stored, where);
  const examples = new Examples(labels.labels, labels.classes);
  const flat = await floats("examples");
  const { size, layout } = found;
  examples.rows = classes.map((_, i) => flat.slice(i * size, (i + 1) * size));
  const head = found.trained
    ? {
        labels: [...found.labels],
        weight: await floats("weight"),
        bias: await floats("bias"),
        losses: [],
      }
    : undefined;
  const adapters = layout ? { layout, data: await floats("adapters") } : undefined;
  const { name, task, model, fields } = found;
  return { name, task, model, fields, examples, head, adapters };
}

function parsed(text: string | undefined): unknown {
  try {
    return JSON.parse(text ?? "");
  } catch {
    return undefined;
  }
}
