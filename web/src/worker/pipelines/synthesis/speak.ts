// text-to-speech: sentence by sentence, and long ones part by part.

import type { SpeechFields } from "../../../gen/schema.ts";
import { parts_of } from "../../../logic/speech/parts.ts";
import type { TaskTensor } from "../../../protocol/tasks.ts";
import { InputError, ModelError } from "../../../shared/errors.ts";
import { checkSeed } from "../../../shared/seeds.ts";
import type { Ending, TaskHost } from "../host.ts";
import { described } from "../inputs.ts";
import type { TaskRunner } from "../runner.ts";
import { integers, outputOf, type Speaker, speaker } from "./speakers.ts";

const MODEL_OPTIONS: Record<SpeechFields["type"], readonly string[]> = {
  vits: [],
  piper: ["speed", "noise_scale", "length_scale", "noise_w"],
  kokoro: ["speed", "voice", "speaker_embeddings"],
};

/** `pipe(text, {voice, speaker, speed, ...})` */
export const textToSpeech: TaskRunner = {
  options: ["seed", "speaker", ...new Set(Object.values(MODEL_OPTIONS).flat())],
  prepare(host, options) {
    const d = described(host, "speech");
    const takes = [...MODEL_OPTIONS[d.type], ...(d.speakers ? ["speaker"] : [])];
    for (const name of Object.keys(options.given))
      if (name !== "seed" && !takes.includes(name))
        throw new InputError(
          "the model does not have this option",
          `options.${name}`,
          takes.length ? `It has ${takes.join(", ")}.` : "Leave it out.",
        );
    const seed = checkSeed(options.given.seed, "options.seed");
    const voice = speaker(host, d, options);
    return async (input, ending) => {
      if (typeof input !== "object" || !("speech" in input))
        throw new InputError("the input is no text", host.task, "Give a text.");
      const { sentences, phonemes, asks } = input.speech;
      if (asks) return sentences.map((s) => (voice.asks ? voice.asks(String(s)) : s));
      const parts: Float32Array[] = [];
      for (const [i, sentence] of sentences.entries()) {
        const units = voice.units(sentence, phonemes[i] ?? false);
        for (const part of parts_of(units, voice.most))
          parts.push(...(await spoken(host, d, voice, part, seed, ending)));
      }
      if (!parts.length)
        throw new InputError(
          "the text has no characters that the model knows",
          host.task,
          "Give a text.",
        );
      return { audio: joined(parts), sampling_rate: d.sampling_rate };
    };
  },
};

/** The samples of a part; of two halves where it is too long for the plans. */
async function spoken(
  host: TaskHost,
  d: SpeechFields,
  voice: Speaker,
  units: readonly string[],
  seed: bigint | undefined,
  ending: Ending,
): Promise<Float32Array[]> {
  const ids = voice.ids(units);
  const count = ids.length;
  while (ids.length < d.least) ids.push(0);
  const feeds: Record<string, TaskTensor> = {
    [d.tokens]: integers(ids, [1, ids.length]),
    ...(await voice.feeds(count, ending)),
  };
  const first = host.graph(d.length ? "text" : "model");
  if (first.inputs.some((i) => i.name === "attention_mask")) {
    const mask = ids.map((_, i) => Number(i < count));
    feeds.attention_mask = integers(mask, [1, ids.length]);
  } else if (count < ids.length && d.type !== "piper")
    throw new InputError("the text is too short for the model", host.task, "Give a longer one.");
  if (!d.length) return [sound(await host.run("model", feeds, ending, seed), d)];
  const made = await host.run("text", feeds, ending, seed);
  const frames = whole(outputOf(made, d.length, host.task));
  const [least, most] = d.frames!;
  if (frames > most && units.length > 1) {
    const halves = parts_of(units, (units.length + 1) >> 1);
    const found: Float32Array[] = [];
    for (const half of halves) found.push(...(await spoken(host, d, voice, half, seed, ending)));
    return found;
  }
  if (frames > most || frames < least)
    throw new InputError(
      `the model speaks a part of the text in ${frames} frames`,
      host.task,
      `The package is for ${least} to ${most}: choose another speed, or build it with ` +
        "--max-length.",
    );
  const length: TaskTensor = {
    type: "int64",
    dims: [frames],
    data: new Uint8Array(8 * frames),
  };
  const names = host.graph("frames").inputs.map((i) => i.name);
  const between = Object.fromEntries(
    names.map((name) => [name, made[name] ?? feeds[name] ?? length]),
  );
  // the second part draws the random numbers after those of the first
  const drawn = first.plans.some((plan) => plan.seed !== undefined) ? 1 : 0;
  return [sound(await host.run("frames", between, ending, seed, drawn), d)];
}

function sound(outputs: Record<string, TaskTensor>, { output }: SpeechFields): Float32Array {
  const { type, dims, data } = outputOf(outputs, output, "text-to-speech");
  if (type !== "float32" || dims.reduce((n, d) => n * d, 1) !== Math.max(...dims))
    throw new ModelError(
      `its output '${output}' of shape [${dims.join(", ")}] is no sound`,
      "text-to-speech",
      "Give a model of this task.",
    );
  return new Float32Array(data.slice().buffer);
}

/**
 * The whole number in a tensor of int64 or int32.
 * @throws ModelError if it is another
 */
export function whole({ type, dims, data }: TaskTensor): number {
  const { buffer, byteLength } = data.slice();
  if (type === "int64" && byteLength >= 8) return Number(new BigInt64Array(buffer, 0, 1)[0]);
  if (type === "int32" && byteLength >= 4) return new Int32Array(buffer, 0, 1)[0]!;
  throw new ModelError(
    `its number of frames is of type ${type} and shape [${dims.join(", ")}], no whole number`,
    "text-to-speech",
    "Build the package again with this version: `edgewise build --task`.",
  );
}

function joined(parts: readonly Float32Array[]): Float32Array<ArrayBuffer> {
  const all = new Float32Array(parts.reduce((n, part) => n + part.length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}
