// From samples to the inputs of a model: the graph "pre" of a package, as logic/speech/samples.py
// reads its description.

import type { AudioFields } from "../../../gen/schema.ts";
import {
  check_longest,
  type Input,
  input_of,
  mask_sizes,
  plan_length,
  repeated,
  voice_parts,
} from "../../../logic/speech/samples.ts";
import type { TaskTensor } from "../../../protocol/tasks.ts";
import { PackageError } from "../../../shared/errors.ts";
import type { Ending, TaskHost } from "../host.ts";
import { described } from "../inputs.ts";

/** @throws PackageError if the manifest has none */
export function soundDescription(host: TaskHost): AudioFields {
  return described(host, "audio");
}

/**
 * The inputs of a graph for samples at the processor's rate.
 * @throws InputError if there are too few or too many samples
 */
export async function soundInputs(
  host: TaskHost,
  samples: Float32Array<ArrayBuffer>,
  ending: Ending,
  graph = "model",
): Promise<Record<string, TaskTensor>> {
  const description = soundDescription(host);
  const count = samples.length;
  check_longest(description, count, host.task);
  const length = plan_length(description, count);
  const { audio, valid, mask } = audioInput(description, samples);
  const feeds: Record<string, TaskTensor> = { audio: floats([1, audio.length], audio) };
  if (valid !== null) feeds.valid = integers([1], BigInt64Array.of(BigInt(valid)));
  const made = await host.run("pre", feeds, ending);
  if (length !== null && length > audio.length)
    for (const name of Object.keys(made)) made[name] = padded(made[name]!, length);
  const rule = description.mask;
  const ones = rule && length !== null ? mask_sizes(rule, count, length) : mask;
  if (rule && ones) made[rule.name] = maskOf(...ones);
  if (description.any_length) made.attention_mask ??= maskOf(count, length!);
  return Object.fromEntries(
    host.graph(graph).inputs.map(({ name }) => {
      if (made[name]) return [name, made[name]];
      throw new PackageError(
        `its model has an input '${name}', which its processor does not give`,
        host.task,
        "Build it again.",
      );
    }),
  );
}

/** Samples [..., n], followed by zeros. */
function padded({ type, dims, data }: TaskTensor, length: number): TaskTensor {
  const more = new Uint8Array(4 * length);
  more.set(data);
  return { type, dims: [...dims.slice(0, -1), length], data: more };
}

const floats = (dims: number[], { buffer }: Float32Array<ArrayBuffer>): TaskTensor => ({
  type: "float32",
  dims,
  data: new Uint8Array(buffer),
});

const integers = (dims: number[], { buffer }: BigInt64Array): TaskTensor => ({
  type: "int64",
  dims,
  data: new Uint8Array(buffer as ArrayBuffer),
});

/** Ones, then zeros. */
const maskOf = (ones: number, size: number): TaskTensor =>
  integers([1, size], new BigInt64Array(size).fill(1n, 0, ones));

/**
 * Cuts, repeats or fills samples.
 * @param samples one channel at the processor's rate
 * @throws InputError if there are too few or too many
 */
export function audioInput(
  description: AudioFields,
  samples: Float32Array<ArrayBuffer>,
): Input & { audio: Float32Array<ArrayBuffer> } {
  const count = samples.length;
  const input = input_of(description, count);
  const { total } = input;
  if (count === total) return { ...input, audio: samples };
  const audio = new Float32Array(total);
  const end = repeated(description.length, count, total);
  for (let at = 0; at < end; at += count) audio.set(samples.subarray(0, total - at), at);
  return { ...input, audio };
}

/** The parts of a recording of which a voice's vector is the mean. */
export function voiceParts(
  description: AudioFields,
  samples: Float32Array<ArrayBuffer>,
): Float32Array<ArrayBuffer>[] {
  return voice_parts(description, samples.length).map(([first, size]) => {
    const part = new Float32Array(size);
    part.set(samples.subarray(Math.max(first, 0), first + size), Math.max(-first, 0));
    return part;
  });
}
