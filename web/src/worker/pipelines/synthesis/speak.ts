// text-to-speech: the programs of a package, for logic/speech/voices.py.

import type { SpeechFields } from "../../../gen/schema.ts";
import {
  asked,
  check_options,
  ids_of,
  OPTIONS,
  room_of,
  type Say,
  type Sound,
  spoken,
  units_of,
} from "../../../logic/speech/voices.ts";
import type { TaskTensor } from "../../../protocol/tasks.ts";
import { drive } from "../../../shared/drive.ts";
import { InputError, ModelError } from "../../../shared/errors.ts";
import { checkSeed } from "../../../shared/seeds.ts";
import type { Ending, TaskHost } from "../host.ts";
import { described } from "../inputs.ts";
import type { TaskRunner } from "../runner.ts";
import { integers, outputOf, speakerFeeds } from "./speakers.ts";

/** `pipe(text, {voice, speaker, speed, ...})` */
export const textToSpeech: TaskRunner = {
  options: ["seed", "speaker", "speaker_embeddings", ...new Set([...OPTIONS.values()].flat())],
  prepare(host, options) {
    const d = described(host, "speech");
    const own = d.type === "kokoro" ? ["speaker_embeddings"] : [];
    check_options(d, options.given, own);
    if (!own.length && options.has("speaker_embeddings"))
      options.refuse("speaker_embeddings", "The model does not have this option.");
    const seed = checkSeed(options.given.seed, "options.seed");
    const voice = { host, d, seed, feeds: speakerFeeds(host, d, options) };
    room_of(d);
    return async (input, ending) => {
      if (typeof input !== "object" || !("speech" in input))
        throw new InputError("the input is no text", host.task, "Give a text.");
      const { sentences, phonemes, asks } = input.speech;
      if (asks) return sentences.map((s) => (d.type === "vits" ? asked(d, String(s)) : s));
      const parts: Float32Array[] = [];
      for (const [i, sentence] of sentences.entries())
        await speak(voice, units_of(d, sentence, phonemes[i] ?? false), parts, ending);
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

/** A model with the options of a call. */
interface Voice {
  host: TaskHost;
  d: SpeechFields;
  seed: bigint | undefined;
  feeds: ReturnType<typeof speakerFeeds>;
}

/** Adds the samples of a sentence's parts. */
async function speak(
  { host, d, seed, feeds }: Voice,
  units: string[],
  parts: Float32Array[],
  ending: Ending,
): Promise<void> {
  const first = host.graph(d.length ? "text" : "model");
  const masked = first.inputs.some((i) => i.name === "attention_mask");
  let made: Record<string, TaskTensor> = {};
  const answer = async (request: Say | Sound) => {
    if (request.kind === "say") {
      const { ids, count } = request;
      made = {
        [d.tokens]: integers(ids, [1, ids.length]),
        ...(await feeds(count, ending)),
      };
      const mask = ids.map((_, i) => Number(i < count));
      if (masked) made.attention_mask = integers(mask, [1, ids.length]);
      const outputs = await host.run(d.length ? "text" : "model", made, ending, seed);
      made = { ...made, ...outputs };
      if (d.length) return whole(outputOf(outputs, d.length, host.task));
      parts.push(sound(outputs, d));
      return null;
    }
    const { frames } = request;
    const length = { type: "int64", dims: [frames], data: new Uint8Array(8 * frames) };
    const names = host.graph("frames").inputs.map((i) => i.name);
    const between = Object.fromEntries(names.map((name) => [name, made[name] ?? length]));
    // the second part draws the random numbers after those of the first
    const drawn = first.plans.some((plan) => plan.seed !== undefined) ? 1 : 0;
    parts.push(sound(await host.run("frames", between, ending, seed, drawn), d));
  };
  await drive(
    spoken(d, units, (part) => ids_of(d, part), masked),
    answer,
  );
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
