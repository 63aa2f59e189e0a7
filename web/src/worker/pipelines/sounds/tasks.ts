// Tasks that classify a sound, or compare voices. Names, options and results are those of Python.

import {
  enrolled,
  matches,
  mean_voice,
  OUTPUTS,
  threshold_of,
  OPTIONS as VOICE_OPTIONS,
} from "../../../logic/post/speakers.ts";
import type { TaskInput, TaskTensor } from "../../../protocol/tasks.ts";
import type { Ending, TaskHost } from "../host.ts";
import type { Options } from "../options.ts";
import { labeler, type Numbers, numbers, output, row } from "../outputs.ts";
import type { TaskRunner } from "../runner.ts";
import { soundOf } from "../sound-input.ts";
import { soundDescription, soundInputs, voiceParts } from "./features.ts";
import { readSound } from "./read.ts";

/** The outputs of the model for samples at the processor's rate. */
async function hear(
  host: TaskHost,
  samples: Float32Array<ArrayBuffer>,
  ending: Ending,
): Promise<Record<string, Numbers>> {
  const outputs = await host.run("model", await soundInputs(host, samples, ending), ending);
  return inNumbers(outputs);
}

function inNumbers(outputs: Record<string, TaskTensor>): Record<string, Numbers> {
  return Object.fromEntries(Object.entries(outputs).map(([name, t]) => [name, numbers(t)]));
}

/** The outputs of the graph "model" for a sound. */
export async function perceive(
  host: TaskHost,
  input: TaskInput,
  ending: Ending,
): Promise<Record<string, TaskTensor>> {
  const { sampling_rate: rate } = soundDescription(host);
  const samples = await readSound(host.device, soundOf(input, host.task), rate, ending);
  return host.run("model", await soundInputs(host, samples, ending), ending);
}

/** `pipe(sounds, {top_k, function_to_apply})` */
export const audioClassification: TaskRunner = {
  options: ["top_k", "function_to_apply"],
  prepare(host, options) {
    const labels = labeler(host, options, 5);
    return async (input, ending) =>
      labels(row(output(host, inNumbers(await perceive(host, input, ending)), "logits"), 0));
  },
  features: async (host, input, pooled, ending) =>
    pooled(inNumbers(await perceive(host, input, ending))),
};

/**
 * Compares voices. `enrol: true` gives vectors: of the n-th input the mean of the first n. Else
 * `voices` are those to compare with.
 */
export const speakerVerification: TaskRunner = {
  options: [...Object.keys(VOICE_OPTIONS), "voices", "enrol"],
  prepare(host, options) {
    const description = soundDescription(host);
    const threshold = threshold_of(options.given);
    const enrol = options.flag("enrol", false);
    const voices = enrol ? [] : enrolled(vectorsOf(options, "voices"), options.given);
    const all: number[][] = [];
    return async (input, ending) => {
      const sound = soundOf(input, host.task);
      const samples = await readSound(host.device, sound, description.sampling_rate, ending);
      const vectors: Float32Array[] = [];
      for (const part of voiceParts(description, samples))
        vectors.push(row(output(host, await hear(host, part, ending), ...OUTPUTS), 0));
      const heard = mean_voice(vectors);
      all.push(heard);
      if (enrol) return mean_voice(all);
      return matches(heard, voices, threshold);
    };
  },
  async features(host, input, pooled, ending) {
    const description = soundDescription(host);
    const sound = soundOf(input, host.task);
    const samples = await readSound(host.device, sound, description.sampling_rate, ending);
    const voices: (number[] | Float32Array)[] = [];
    for (const part of voiceParts(description, samples))
      voices.push(pooled(await hear(host, part, ending)));
    return mean_voice(voices);
  },
};

/** Lists of numbers by names, of an option. */
function vectorsOf(options: Options, name: string): Record<string, number[]> {
  const found = options.given[name] ?? {};
  for (const list of Object.values(found))
    if (!Array.isArray(list) || !list.length || !list.every((x) => typeof x === "number"))
      options.refuse(name, "Give a list of numbers for each name.");
  return found as Record<string, number[]>;
}
