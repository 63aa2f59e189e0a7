// automatic-speech-recognition with CTC models. Mirrors
// python/edgewise/host/pipelines/speech/ctc.py.

import type { CTCFields } from "../../../gen/schema.ts";
import { type Chunk, chunks_of } from "../../../logic/speech/chunks.ts";
import {
  characters_of,
  frames_in,
  frames_of,
  type Span,
  text_of,
  words_of,
} from "../../../logic/speech/ctc.ts";
import { InputError, PackageError } from "../../../shared/errors.ts";
import { round } from "../../../shared/python.ts";
import type { Ending, TaskHost } from "../host.ts";
import { Options } from "../options.ts";
import { numbers, output } from "../outputs.ts";
import type { TaskRunner } from "../runner.ts";
import { longestSound, soundDescription, soundInputs } from "./features.ts";
import { readSound, soundOf } from "./read.ts";

type Samples = Float32Array<ArrayBuffer>;

/** The tokens of a package, and how samples become frames. */
type CTC = CTCFields;

/** The frames [first, end) that count, of a recording of which no model gives more frames. */
function countedFrames(ctc: CTC, count: number, chunk: Chunk | undefined): [number, number] {
  const most = ctc.windows.length ? frames_in(ctc.windows, count) : round(count / ctc.samples);
  if (!chunk) return [0, most];
  const [first, end] = frames_of(chunk, ctc.samples);
  return [first, Math.min(end, most)];
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
  const ids: number[] = [];
  for (const chunk of sizes ? chunks_of(samples.length, ...sizes) : [undefined]) {
    const part = chunk ? samples.slice(chunk.start, chunk.start + chunk.length) : samples;
    ids.push(...(await tokensOf(host, part, countedFrames(ctc, part.length, chunk), ending)));
    onPart?.(chunk ? chunk.start + chunk.length - chunk.right : samples.length);
  }
  return characters_of(ctc, ids);
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
      const text = text_of(ctc, spans);
      if (!times) return { text };
      const parts = times === "word" ? words_of(ctc, spans) : spans;
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
        const words = words_of(ctc, await heard(host, ctc, samples, options, ending));
        return words.map(({ text, start, end }) => ({
          text: ` ${text}`, // Whisper's words begin with theirs
          timestamp: [seconds(start), seconds(end)],
        }));
      },
      wishesOf(given, voice),
    );
  },
};
