// automatic-speech-recognition with CTC models: the sound and the model of logic/speech/ctc.py.

import type { CTCFields } from "../../../gen/schema.ts";
import type { Done, Hear } from "../../../logic/speech/chunks.ts";
import { type Frames, recognized, times_of, transcript } from "../../../logic/speech/ctc.ts";
import { longest } from "../../../logic/speech/samples.ts";
import { drive } from "../../../shared/drive.ts";
import { InputError, PackageError } from "../../../shared/errors.ts";
import type { Ending, TaskHost } from "../host.ts";
import { numbers, output } from "../outputs.ts";
import type { TaskRunner } from "../runner.ts";
import type { Spoken } from "../seq2seq/speech/stream.ts";
import { soundOf } from "../sound-input.ts";
import { soundDescription, soundInputs } from "./features.ts";
import { readSound } from "./read.ts";

type Samples = Float32Array<ArrayBuffer>;

/** The token of each frame of a part. */
async function tokensOf(host: TaskHost, samples: Samples, ending: Ending): Promise<number[]> {
  const outputs = await host.run("model", await soundInputs(host, samples, ending), ending);
  const found = Object.entries(outputs).map(([name, tensor]) => [name, numbers(tensor)]);
  const { dims, data } = output(host, Object.fromEntries(found), "logits");
  const [, rows = 0, size = 0] = dims;
  const ids: number[] = [];
  for (let row = 0; row < rows; row++) {
    let best = row * size;
    for (let i = best + 1; i < (row + 1) * size; i++) if (data[i]! > data[best]!) best = i;
    ids.push(best - row * size);
  }
  return ids;
}

/** @throws PackageError if the package does not describe its tokens */
function tokenizerOf(host: TaskHost): CTCFields {
  const { ctc } = host.processor;
  if (ctc) return ctc;
  throw new PackageError("it does not describe its tokens", host.task, "Build it again.");
}

function framesOf(host: TaskHost, { samples, windows }: CTCFields): Frames {
  const description = soundDescription(host);
  const most = longest(description);
  return { rate: description.sampling_rate, samples, windows, most, padded: true };
}

/** `pipe(sounds, {return_timestamps: "char" | "word", chunk_length_s, stride_length_s})` */
export const ctcRecognition: TaskRunner = {
  options: ["return_timestamps", "chunk_length_s", "stride_length_s"],
  prepare(host, { given }, events) {
    if (events.streams)
      throw new InputError(
        "a CTC model gives its text at once",
        "options.streamer",
        "Leave it out.",
      );
    const ctc = tokenizerOf(host);
    const times = times_of(given);
    const frames = framesOf(host, ctc);
    return async (input, ending) => {
      const samples = await readSound(host.device, soundOf(input, host.task), frames.rate, ending);
      const answer = (request: Hear | Done) => {
        if (request.kind === "done") return events.send("progress", request.done / request.total);
        const { start, length } = request;
        return tokensOf(host, samples.slice(start, start + length), ending);
      };
      const ids = await drive(recognized(frames, given, samples.length), answer);
      return transcript(ctc, frames, ids, times);
    };
  },
  streamOptions: ["interval", "live"],
  async stream(host, given, voice) {
    const { SpeechStream, wishesOf } = await import("../seq2seq/speech/index.ts");
    const ctc = tokenizerOf(host);
    const frames = framesOf(host, ctc);
    return new SpeechStream(
      async (samples, _, ending) => {
        const answer = (request: Hear | Done) => {
          const { start, length } = request as Hear;
          return length && tokensOf(host, samples.slice(start, start + length), ending);
        };
        const ids = await drive(recognized(frames, {}, samples.length), answer);
        const words = transcript(ctc, frames, ids, "word").chunks as Spoken[];
        return words.map((word) => ({ ...word, text: ` ${word.text}` })); // as Whisper's begin
      },
      wishesOf(given, voice),
    );
  },
};
