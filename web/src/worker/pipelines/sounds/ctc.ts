// automatic-speech-recognition with CTC models: from the token of each frame to text and times.
// Mirrors python/edgewise/host/text/speech/ctc.py and pipelines/speech/ctc.py.

import type { CTCFields } from "../../../gen/schema.ts";
import { InputError, PackageError } from "../../../shared/errors.ts";
import type { Ending, TaskHost } from "../host.ts";
import { Options } from "../options.ts";
import { numbers, output } from "../outputs.ts";
import type { TaskRunner } from "../runner.ts";
import { longestSound, soundDescription, soundInputs } from "./features.ts";
import { readSound, soundOf } from "./read.ts";

type Samples = Float32Array<ArrayBuffer>;

/** The tokenizer of a package, and how samples become frames. */
export type CTC = CTCFields;

/** A character or word, and the frames from `start` to `end` (exclusive) that it was read in. */
export interface Span {
  text: string;
  start: number;
  end: number;
}

/** The characters that the tokens of frames are: repeated ones are one, blanks are left out. */
export function characters(ctc: CTC, ids: ArrayLike<number>): Span[] {
  const found: Span[] = [];
  let last: string | undefined;
  for (let i = 0; i < ids.length; i++) {
    const token = ctc.tokens[ids[i]!] ?? ctc.unknown;
    if (token !== ctc.blank) {
      if (token === last) found.at(-1)!.end = i + 1;
      else found.push({ text: token === ctc.delimiter ? ctc.space : token, start: i, end: i + 1 });
    }
    last = token;
  }
  return found;
}

/** The words that characters form. */
export function wordsOf({ space }: CTC, spans: readonly Span[]): Span[] {
  const words: Span[] = [];
  let inside = false;
  for (const { text, start, end } of spans) {
    if (inside && text !== space) {
      const word = words.at(-1)!;
      word.text += text;
      word.end = end;
    } else if (text !== space) words.push({ text, start, end });
    inside = text !== space;
  }
  return words;
}

const CLEANED = [" .", " ?", " !", " ,", " ' ", " n't", " 'm", " 's", " 've", " 're"];

/** The text of characters, without spaces at its ends. */
export function textOf({ lower, clean_up: clean }: CTC, spans: readonly Span[]): string {
  let text = spans
    .map((span) => span.text)
    .join("")
    .trim();
  if (lower) text = text.toLowerCase();
  if (clean) for (const part of CLEANED) text = text.replaceAll(part, part.trim());
  return text;
}

/** Rounds half to even, as Python does. */
function round(x: number): number {
  const near = Math.round(x);
  return near - x === 0.5 && near % 2 ? near - 1 : near;
}

/** A part of a recording: [samples, length, left and right overlap]. */
type Piece = [Samples, number, number, number];

/** Overlapping parts of a recording, as by transformers' `chunk_iter`. */
export function* chunks(
  samples: Samples,
  size: number,
  before: number,
  after: number,
): Generator<Piece> {
  for (let start = 0; ; start += size - before - after) {
    const part = samples.slice(start, start + size);
    const last = start + size >= samples.length;
    const overlap = start ? before : 0;
    if (part.length > overlap) yield [part, part.length, overlap, last ? 0 : after];
    if (last) return;
  }
}

/** The frames [first, end) of a part that count, out of those that a model gives for it. */
export function framesOf(ctc: CTC, piece: Piece, isWhole: boolean): [number, number] {
  const [, count, left, right] = piece;
  const frames = round(count / ctc.samples);
  const made = ctc.windows.reduce((n, [size, step]) => Math.floor((n - size) / step) + 1, count);
  const most = ctc.windows.length ? Math.max(made, 0) : frames;
  if (isWhole) return [0, most];
  const end = frames - round((right / count) * frames);
  return [round((left / count) * frames), Math.min(end, most)];
}

/**
 * Samples of a chunk and of its overlaps; undefined: the recording is not divided.
 * @throws InputError if chunks do not advance
 */
export function chunkSizes(
  host: TaskHost,
  options: Options,
  unit: number,
  count: number,
): [number, number, number] | undefined {
  const description = soundDescription(host);
  const { sampling_rate: rate } = description;
  const most = longestSound(description);
  const asked = options.number("chunk_length_s", 0, 0, 3600);
  const whole = Math.floor(most / unit) * unit; // chunks are of whole frames
  const seconds = asked || (count > most ? whole / rate : 0);
  if (!seconds) return undefined;
  const stride = options.given.stride_length_s ?? seconds / 6;
  const sides: unknown[] = Array.isArray(stride) ? stride : [stride, stride];
  const [size, before, after] = [seconds, ...sides].map((s) =>
    Math.trunc(round(((s as number) * rate) / unit) * unit),
  ) as [number, number, number];
  if (sides.length === 2 && before >= 0 && after >= 0 && size > before + after)
    return [size, before, after];
  throw new InputError(
    `chunks of ${seconds} s with overlaps of ${sides.join(" and ")} s do not advance`,
    "options.stride_length_s",
    "Give a smaller overlap.",
  );
}

/** The token of each frame of a part that counts. */
async function tokensOf(
  host: TaskHost,
  samples: Samples,
  frames: readonly [number, number],
  ending: Ending,
): Promise<number[]> {
  const outputs = await host.run("model", await soundInputs(host, samples, ending), ending);
  const found = Object.entries(outputs).map(([name, tensor]) => [name, numbers(tensor)]);
  const { dims, data } = output(host, Object.fromEntries(found), "logits");
  const [, rows = 0, size = 0] = dims;
  const ids: number[] = [];
  for (let row = frames[0]; row < Math.min(frames[1], rows); row++) {
    let best = row * size;
    for (let i = best + 1; i < (row + 1) * size; i++) if (data[i]! > data[best]!) best = i;
    ids.push(best - row * size);
  }
  return ids;
}

/** @throws PackageError if the package does not describe its tokens */
function tokenizerOf(host: TaskHost): CTC {
  const { ctc } = host.processor;
  if (ctc) return ctc;
  throw new PackageError("it does not describe its tokens", host.task, "Build it again.");
}

/**
 * The characters of a recording.
 * @param onPart is told of the samples that are done
 */
async function heard(
  host: TaskHost,
  ctc: CTC,
  samples: Samples,
  options: Options,
  ending: Ending,
  onPart?: (done: number) => void,
): Promise<Span[]> {
  const sizes = chunkSizes(host, options, ctc.samples, samples.length);
  const whole: Piece = [samples, samples.length, 0, 0];
  const ids: number[] = [];
  let done = 0;
  for (const piece of sizes ? chunks(samples, ...sizes) : [whole]) {
    ids.push(...(await tokensOf(host, piece[0], framesOf(ctc, piece, !sizes), ending)));
    done += piece[1] - (done && piece[2]) - piece[3];
    onPart?.(done);
  }
  return characters(ctc, ids);
}

/** `pipe(sounds, {return_timestamps: "char" | "word", chunk_length_s, stride_length_s})` */
export const ctcRecognition: TaskRunner = {
  options: ["return_timestamps", "chunk_length_s", "stride_length_s"],
  prepare(host, options, events) {
    if (events.streams)
      throw new InputError(
        "a CTC model gives its text at once",
        "options.streamer",
        "Leave it out.",
      );
    const ctc = tokenizerOf(host);
    const times = options.given.return_timestamps ?? false;
    if (times !== false && times !== "char" && times !== "word")
      throw new InputError(
        `CTC models have no times of kind ${JSON.stringify(times)}`,
        "options.return_timestamps",
        'Give false, "char" or "word".',
      );
    const { sampling_rate: rate } = soundDescription(host);
    const seconds = (frame: number) => (frame * ctc.samples) / rate;
    return async (input, ending) => {
      const samples = await readSound(host.device, soundOf(input, host.task), rate, ending);
      const progress = (done: number) => events.send("progress", done / samples.length);
      const spans = await heard(host, ctc, samples, options, ending, progress);
      const text = textOf(ctc, spans);
      if (!times) return { text };
      const parts = times === "word" ? wordsOf(ctc, spans) : spans;
      return {
        text,
        chunks: parts.map(({ text, start, end }) => ({
          text,
          timestamp: [seconds(start), seconds(end)],
        })),
      };
    };
  },
  streamOptions: ["interval", "live"],
  async stream(host, given, voice) {
    const { SpeechStream, wishesOf } = await import("../seq2seq/speech/index.ts");
    const ctc = tokenizerOf(host);
    const { sampling_rate: rate } = soundDescription(host);
    const seconds = (frame: number) => (frame * ctc.samples) / rate;
    const options = new Options({}, []);
    return new SpeechStream(
      async (samples, _, ending) => {
        const words = wordsOf(ctc, await heard(host, ctc, samples, options, ending));
        return words.map(({ text, start, end }) => ({
          text: ` ${text}`, // Whisper's words begin with theirs
          timestamp: [seconds(start), seconds(end)],
        }));
      },
      wishesOf(given, voice),
    );
  },
};
