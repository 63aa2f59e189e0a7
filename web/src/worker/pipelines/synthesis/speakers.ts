// Models that speak: what their graphs are fed for a sentence. As
// python/edgewise/host/pipelines/speech/ synthesis.py; what they read is in the package
// (python/edgewise/compiler/task_package/synthesis.py).

import type { SpeechFields } from "../../../gen/schema.ts";
import {
  known_text,
  piper_ids,
  piper_room,
  vits_ids,
  vits_text,
} from "../../../logic/speech/units.ts";
import type { TaskTensor } from "../../../protocol/tasks.ts";

import { InputError, PackageError } from "../../../shared/errors.ts";
import type { Ending, TaskHost } from "../host.ts";
import type { Options } from "../options.ts";

type Feeds = Record<string, TaskTensor>;

/** A kind of model. */
export interface Speaker {
  /** What a phonemizer gets for a sentence; null: the model reads its letters. */
  asks?(sentence: string): string | null;
  /** The units of a sentence, of which parts can be spoken by themselves. */
  units(sentence: string | readonly string[], phonemes: boolean): string[];
  /** The ids of units. */
  ids(units: readonly string[]): number[];
  /** Most units of a part. */
  most: number;
  /** The other inputs for so many tokens. */
  feeds(count: number, ending: Ending): Promise<Feeds>;
}

const ESPEAK = "such as espeak-ng's; pass phonemizer: (text) => text for texts that are phonemes";

const floats = (values: ArrayLike<number>, dims: number[]): TaskTensor => ({
  type: "float32",
  dims,
  data: new Uint8Array(Float32Array.from(values).buffer),
});

/** A tensor of int64. */
export const integers = (values: readonly number[], dims: number[]): TaskTensor => ({
  type: "int64",
  dims,
  data: new Uint8Array(BigInt64Array.from(values, BigInt).buffer),
});

function needPhonemes(what: string): never {
  throw new InputError(
    `the ${what} phonemes`,
    "phonemizer",
    `Give a function that makes them of a text, ${ESPEAK}.`,
  );
}

const characters = (sentence: string | readonly string[]): string =>
  typeof sentence === "string" ? sentence : sentence.join("");

/** The number of a speaker, by number or name. */
function speakerOf({ speakers, speaker_names: names = {} }: SpeechFields, given: unknown) {
  const number = typeof given === "string" ? names[given] : (given ?? 0);
  if (Number.isInteger(number) && (number as number) >= 0 && (number as number) < speakers)
    return number as number;
  const known = Object.keys(names);
  throw new InputError(
    `there is no speaker ${JSON.stringify(given)}`,
    "speaker",
    `Give a number below ${speakers}${known.length ? ` or one of ${known.join(", ")}` : ""}.`,
  );
}

/**
 * The kind of a package's model.
 * @throws InputError if an option is not valid; PackageError if no unit fits into its plans
 */
export function speaker(host: TaskHost, d: SpeechFields, options: Options): Speaker {
  const voice = { vits, piper, kokoro }[d.type](host, d, options);
  if (voice.most >= 1) return voice;
  throw new PackageError(
    `its plans are for ${d.most} tokens, fewer than a character of it takes`,
    host.task,
    "Build it again with this version: `edgewise build --task`.",
  );
}

/**
 * An output of a program.
 * @throws PackageError if it is not there
 */
export function outputOf(
  made: Readonly<Record<string, TaskTensor>>,
  name: string,
  where: string,
): TaskTensor {
  if (Object.hasOwn(made, name)) return made[name]!;
  throw new PackageError(
    `its program has no output '${name}'`,
    where,
    "Build it again with this version: `edgewise build --task`.",
  );
}

/** Feeds of a number for each text, with the rank that the graph declares. */
function oneNumber(host: TaskHost, name: string, value: number): Feeds {
  const program = host.has("text") ? "text" : "model";
  const declared = host.graph(program).inputs.find((i) => i.name === name)?.shape ?? [];
  return { [name]: integers([value], declared.length ? [1] : []) };
}

function vits(host: TaskHost, d: SpeechFields, options: Options): Speaker {
  const vocabulary = d.vocabulary as Record<string, number>;
  const number = d.speakers ? speakerOf(d, options.given.speaker) : 0;
  const cleaned = (sentence: string): string =>
    vits_text(sentence, vocabulary, d.normalize ?? false, d.language ?? null);
  // biome-ignore lint/suspicious/noControlCharactersInRegex: ASCII
  const foreign = (text: string) => d.is_uroman && !/^[\x00-\x7f]*$/.test(text);
  return {
    most: d.add_blank ? (d.most - 1) >> 1 : d.most,
    asks(sentence) {
      const text = cleaned(sentence);
      return d.phonemize || foreign(text) ? text : null;
    },
    units(sentence, phonemes) {
      let text = characters(sentence);
      if (!phonemes) {
        text = cleaned(text);
        if (d.phonemize) needPhonemes("model reads");
        if (foreign(text)) needPhonemes("model reads Latin letters (as made by uroman) as");
      } else text = text.replace(/\s+/g, " ");
      return [...(!d.phonemize && d.normalize ? known_text(text, vocabulary) : text)];
    },
    ids: (units) => vits_ids(units, vocabulary, d.unknown ?? "", d.add_blank ?? false),
    async feeds() {
      return d.speakers ? oneNumber(host, "speaker_id", number) : {};
    },
  };
}

function piper(host: TaskHost, d: SpeechFields, options: Options): Speaker {
  const vocabulary = d.vocabulary as Record<string, number[]>;
  const [noise = 0.667, length = 1, width = 0.8] = d.scales ?? [];
  const scales = [
    options.number("noise_scale", noise, 0, 100),
    options.number("length_scale", length, 0.01, 100) / options.number("speed", 1, 0.01, 100),
    options.number("noise_w", width, 0, 100),
  ];
  const number = d.speakers ? speakerOf(d, options.given.speaker) : 0;
  return {
    most: piper_room(d.most, vocabulary),
    units(sentence, phonemes) {
      if (!phonemes && !d.is_text) needPhonemes("voice reads");
      const units = typeof sentence === "string" ? [...sentence.normalize("NFD")] : [...sentence];
      return units.filter((unit) => Object.hasOwn(vocabulary, unit));
    },
    ids: (units) => piper_ids(units, vocabulary),
    async feeds(count) {
      return {
        input_lengths: integers([count], [1]),
        scales: floats(scales, [3]),
        ...(d.speakers ? oneNumber(host, "sid", number) : {}),
      };
    },
  };
}

const WIDTH = 256;

function kokoro(host: TaskHost, d: SpeechFields, options: Options): Speaker {
  const speed = options.number("speed", 1, 0.01, 100);
  const { speaker_embeddings: own, voice: named } = options.given;
  if (own !== undefined && named !== undefined)
    throw new InputError(
      "there are two voices",
      "speaker_embeddings",
      "Give either `voice` or `speaker_embeddings`.",
    );
  const given = own ?? named;
  const table = ArrayBuffer.isView(given) ? (given as Float32Array) : undefined;
  if (table && (!(table instanceof Float32Array) || !table.length || table.length % WIDTH))
    throw new InputError(
      "they are not styles of 256 numbers of float32",
      "speaker_embeddings",
      "Give a Float32Array of [rows, 1, 256].",
    );
  const voice = table ? undefined : voiceOf(d, given);
  return {
    most: d.most - 2,
    units(sentence, phonemes) {
      if (!phonemes) needPhonemes("model reads");
      return [...characters(sentence)].filter((c) => Object.hasOwn(d.vocabulary, c));
    },
    ids: (units) => [0, ...units.map((c) => d.vocabulary[c] as number), 0],
    async feeds(count, ending) {
      const tokens = count - 2;
      let style: TaskTensor;
      if (table) {
        const at = Math.min(tokens, table.length / WIDTH - 1) * WIDTH;
        style = floats(table.subarray(at, at + WIDTH), [1, WIDTH]);
      } else {
        const [first, rows] = voice!;
        const row = integers([first + Math.min(tokens, rows - 1)], [1]);
        style = outputOf(await host.run("style", { row }, ending), "style", host.task);
      }
      return { style, speed: floats([speed], [1]) };
    },
  };
}

function voiceOf({ voices = {} }: SpeechFields, given: unknown): [number, number] {
  const names = Object.keys(voices);
  const name = given ?? (names.length === 1 ? names[0] : "af_heart");
  if (typeof name === "string" && Object.hasOwn(voices, name)) return voices[name]!;
  throw new InputError(
    given === undefined ? "the model has several voices" : `there is no voice '${String(given)}'`,
    "voice",
    `Give one of ${names.slice(0, 40).join(", ")}.`,
  );
}
