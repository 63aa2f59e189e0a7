// From samples to the inputs of a model: the graph "pre" of a package, and the lengths that its
// plans have. Mirrors python/edgewise/compiler/task_package/sounds.py, which writes the
// description.

import type { AudioFields, SoundWindows } from "../../../gen/schema.ts";
import type { TaskTensor } from "../../../protocol/tasks.ts";
import { InputError, PackageError } from "../../../shared/errors.ts";
import type { Ending, TaskHost } from "../host.ts";
import { described } from "../inputs.ts";
import { audioInput, maskOf } from "./audio-input.ts";

/** @throws PackageError if the manifest has none */
export function soundDescription(host: TaskHost): AudioFields {
  return described(host, "audio");
}

/** The most samples that the model takes at once. */
export function longestSound({ lengths, any_length: range }: AudioFields): number {
  return range?.[1] ?? lengths?.at(-1) ?? Infinity;
}

/** The samples that a plan takes for so many; undefined: the processor says it. */
function lengthFor({ lengths, any_length: range }: AudioFields, count: number): number | undefined {
  return range ? Math.max(range[0], count) : lengths?.find((n) => n >= count);
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
  const { sampling_rate: rate, mask: rule } = description;
  const most = longestSound(description);
  if (samples.length > most)
    throw new InputError(
      `the sound has ${(samples.length / rate).toFixed(1)} s, this package takes ${most / rate} s`,
      host.task,
      "Give a shorter one, or build the package with a larger --max-length.",
    );
  const length = lengthFor(description, samples.length);
  const { audio, valid, mask } = audioInput(description, samples);
  const feeds: Record<string, TaskTensor> = { audio: floats([1, audio.length], audio) };
  if (valid !== undefined) feeds.valid = integers([1], BigInt64Array.of(valid));
  const made = await host.run("pre", feeds, ending);
  if (length !== undefined && length > audio.length)
    for (const name of Object.keys(made)) made[name] = padded(made[name]!, length);
  const ones = rule && length !== undefined ? maskOf(rule, samples.length, length) : mask;
  if (rule && ones) made[rule.name] = integers([1, ones.length], ones);
  if (description.any_length)
    made.attention_mask ??= integers(
      [1, length!],
      BigInt64Array.from({ length: length! }, (_, i) => BigInt(+(i < samples.length))),
    );
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

/** The parts of a recording of which a voice's vector is the mean. */
export function voiceParts(
  description: AudioFields,
  samples: Float32Array<ArrayBuffer>,
): Float32Array<ArrayBuffer>[] {
  const { windows, lengths, any_length: range } = description;
  if (windows)
    return windowStarts(windows, samples.length).map((start) => {
      const part = new Float32Array(windows.size);
      const first = start - windows.before;
      part.set(samples.subarray(Math.max(first, 0), first + windows.size), Math.max(-first, 0));
      return part;
    });
  const n = samples.length;
  if (range ? n <= range[1] : !lengths) return [samples];
  const size = range?.[1] ?? lengths!.findLast((length) => length <= n) ?? lengths![0]!;
  if (n <= size) {
    const part = new Float32Array(size);
    part.set(samples);
    return [part];
  }
  const count = Math.ceil(n / size);
  return Array.from({ length: count }, (_, i) => {
    const start = Math.round((i * (n - size)) / (count - 1));
    return samples.slice(start, start + size);
  });
}

/** Where the parts of `count` samples begin. */
export function windowStarts(windows: SoundWindows, count: number): number[] {
  const { unit, span, hop, coverage } = windows;
  const units = Math.ceil((count + 1) / unit);
  const steps = Math.max(1, units - (span - hop) / unit + 1);
  const starts: number[] = [];
  for (let at = 0; at < steps * unit; at += hop) starts.push(at);
  if (starts.length > 1 && count - starts.at(-1)! < coverage * span) starts.pop();
  return starts;
}
