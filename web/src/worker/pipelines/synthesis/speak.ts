// text-to-speech: sentence by sentence, and long ones part by part.

import type { TaskTensor } from "../../../protocol/tasks.ts";
import { InputError, ModelError } from "../../../shared/errors.ts";
import { checkSeed } from "../../../shared/seeds.ts";
import type { Ending, TaskHost } from "../host.ts";
import type { TaskRunner } from "../runner.ts";
import { integers, type Speaker, type SpeechDescription, speaker, speechOf } from "./speakers.ts";

const MODEL_OPTIONS: Record<SpeechDescription["type"], readonly string[]> = {
  vits: [],
  piper: ["speed", "noise_scale", "length_scale", "noise_w"],
  kokoro: ["speed", "voice", "speaker_embeddings"],
};

/** `pipe(text, {voice, speaker, speed, ...})` */
export const textToSpeech: TaskRunner = {
  options: ["seed", "speaker", ...new Set(Object.values(MODEL_OPTIONS).flat())],
  prepare(host, options) {
    const d = speechOf(host.processor);
    const takes = [...MODEL_OPTIONS[d.type], ...(d.speakers ? ["speaker"] : [])];
    for (const name of Object.keys(options.given))
      if (name !== "seed" && !takes.includes(name))
        throw new InputError(
          "the model does not have this option",
          `options.${name}`,
          takes.length ? `It has ${takes.join(", ")}.` : "Leave it out.",
        );
    const seed = checkSeed(options.given.seed, "options.seed");
    const voice = speaker(host, options);
    return async (input, ending) => {
      if (typeof input !== "object" || !("speech" in input))
        throw new InputError("the input is no text", host.task, "Give a text.");
      const parts: Float32Array[] = [];
      for (const sentence of input.speech.sentences) {
        const units = voice.units(sentence, input.speech.phonemes);
        for (const part of partsOf(units, voice.most))
          parts.push(...(await spoken(host, voice, part, seed, ending)));
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

const MARKS = [".!?…", ";:", ",—", " "];

/** Parts of at most `most` units, cut behind punctuation or a space where there is one. */
export function partsOf(units: readonly string[], most: number): string[][] {
  const parts: string[][] = [];
  let rest = [...units];
  while (rest.length > most) {
    let end = most;
    for (const marks of MARKS) {
      let i = most - 1;
      while (i >= most >> 1 && !marks.includes(rest[i]!)) i--;
      if (i < most >> 1 || i < 1) continue;
      end = i + 1;
      break;
    }
    parts.push(rest.slice(0, end));
    rest = rest.slice(end);
  }
  if (rest.some((unit) => unit.trim())) parts.push(rest);
  return parts;
}

/** The samples of a part; of two halves where it is too long for the plans. */
async function spoken(
  host: TaskHost,
  voice: Speaker,
  units: readonly string[],
  seed: bigint | undefined,
  ending: Ending,
): Promise<Float32Array[]> {
  const d = speechOf(host.processor);
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
  const frames = whole(made[d.length]!);
  const [least, most] = d.frames!;
  if (frames > most && units.length > 1) {
    const halves = partsOf(units, (units.length + 1) >> 1);
    const found: Float32Array[] = [];
    for (const half of halves) found.push(...(await spoken(host, voice, half, seed, ending)));
    return found;
  }
  if (frames > most || frames < least)
    throw new InputError(
      `the model speaks a part of the text in ${frames} frames`,
      host.task,
      `The package is for ${least} to ${most}: choose another speed, or build it with ` +
        "--max-length.",
    );
  const length = integers(Array(frames).fill(0), [frames]);
  const names = host.graph("frames").inputs.map((i) => i.name);
  const between = Object.fromEntries(
    names.map((name) => [name, made[name] ?? feeds[name] ?? length]),
  );
  // the second part draws the random numbers behind those of the first
  const drawn = first.plans.some((plan) => plan.seed !== undefined) ? 1 : 0;
  return [sound(await host.run("frames", between, ending, seed, drawn), d)];
}

function sound(outputs: Record<string, TaskTensor>, { output }: SpeechDescription): Float32Array {
  const { type, dims, data } = outputs[output]!;
  if (type !== "float32" || dims.reduce((n, d) => n * d, 1) !== Math.max(...dims))
    throw new ModelError(
      `its output '${output}' of shape [${dims.join(", ")}] is no sound`,
      "text-to-speech",
      "Give a model of this task.",
    );
  return new Float32Array(data.slice().buffer);
}

/** A whole number in a tensor of any integer type. */
function whole({ type, data }: TaskTensor): number {
  const { buffer } = data.slice();
  return type === "int64" ? Number(new BigInt64Array(buffer)[0]) : new Int32Array(buffer)[0]!;
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
