// automatic-speech-recognition with models that hear pieces of words: the sound and the graphs of
// logic/speech/transducer.py and logic/speech/pieces.py.

import {
  type Request as Asked,
  OPTIONS as PROMPTED,
  prompt_of,
  recognized as prompted,
} from "../../../../logic/speech/canary.ts";
import type { Done, Hear } from "../../../../logic/speech/chunks.ts";
import { type Frames, recognized } from "../../../../logic/speech/ctc.ts";
import {
  type Heard,
  type Pieces,
  times_of,
  tokens_of,
  transcript,
} from "../../../../logic/speech/pieces.ts";
import { longest, total_of } from "../../../../logic/speech/samples.ts";
import {
  beams_of,
  type Request,
  type Transducer,
  recognized as transduced,
} from "../../../../logic/speech/transducer.ts";
import { drive } from "../../../../shared/drive.ts";
import { InputError, PackageError } from "../../../../shared/errors.ts";
import type { Ending, TaskHost } from "../../host.ts";
import { type Events, SILENT, type TaskRunner } from "../../runner.ts";
import type { Spoken } from "../../seq2seq/speech/stream.ts";
import { soundOf } from "../../sound-input.ts";
import { soundDescription } from "../features.ts";
import { readSound } from "../read.ts";
import { Encoded } from "./encoded.ts";

type Given = Readonly<Record<string, unknown>>;

/** The result for samples. */
async function heardIn(
  host: TaskHost,
  samples: Float32Array<ArrayBuffer>,
  given: Given,
  events: Events,
  ending: Ending,
): Promise<Record<string, unknown>> {
  const fields = fieldsOf(host);
  const sound = soundDescription(host);
  const encoded = new Encoded(host, fields, ending);
  const answer = (request: Hear | Request | Asked) => {
    if (request.kind === "join") return encoded.join(request);
    if (request.kind === "decode") return encoded.decode(request);
    if (request.kind === "done")
      return events.send("progress", (request as Done).done / (request as Done).total);
    const { start, length } = request;
    const part = samples.subarray(start, start + length);
    return request.kind === "hear" ? encoded.tokens(part) : encoded.frames(part);
  };
  const { sampling_rate: rate } = sound;
  const { durations, samples: size } = fields;
  const most = longest(sound);
  const frames: Frames = { rate, samples: size, windows: [], most, padded: false };
  const count = samples.length;
  total_of(sound, count); // there may be too few
  const pieces: Pieces = fields;
  const search: Transducer = fields;
  const times = times_of(given);
  let heard: Heard[];
  if (fields.kind === "prompted") {
    const prompt = prompt_of(pieces, given, times);
    const steps = prompted(pieces, prompt, fields.symbols, frames, given, count);
    heard = await drive(steps, answer);
  } else if (fields.kind === "ctc")
    heard = tokens_of(pieces, await drive(recognized(frames, given, count), answer));
  else heard = await drive(transduced(search, frames, given, count), answer);
  return transcript(pieces, heard, times, size / rate, durations.length > 0);
}

function fieldsOf(host: TaskHost) {
  const { hearing } = host.processor;
  if (hearing) return hearing;
  throw new PackageError("it does not describe its tokens", host.task, "Build it again.");
}

/** @throws InputError if an option is none of the model's, or not valid */
function check(host: TaskHost, given: Given): void {
  const fields = fieldsOf(host);
  const times = times_of(given);
  const beams = beams_of(given);
  const isPrompted = fields.kind === "prompted";
  if (isPrompted) prompt_of(fields, given, times);
  const others = isPrompted ? [] : PROMPTED;
  const wrong = fields.kind !== "transducer" && beams > 1 ? ["num_beams"] : [];
  for (const name of [...wrong, ...others.filter((n) => (given[n] ?? null) !== null)])
    throw new InputError("the model has no such option", `options.${name}`, "Leave it out.");
}

/**
 * `pipe(sounds, {return_timestamps, chunk_length_s, stride_length_s, num_beams})`, and of Canary
 * `{language, target_language, task, pnc}`
 */
export const hearingRecognition: TaskRunner = {
  options: ["return_timestamps", "chunk_length_s", "stride_length_s", "num_beams", ...PROMPTED],
  prepare(host, { given }, events) {
    if (events.streams)
      throw new InputError("the model gives its text at once", "options.streamer", "Leave it out.");
    check(host, given);
    const { sampling_rate: rate } = soundDescription(host);
    return async (input, ending) => {
      const samples = await readSound(host.device, soundOf(input, host.task), rate, ending);
      return heardIn(host, samples, given, events, ending);
    };
  },
  streamOptions: ["interval", "live", "num_beams", ...PROMPTED],
  async stream(host, given, voice) {
    const { SpeechStream, wishesOf } = await import("../../seq2seq/speech/index.ts");
    const options = { ...given.given, return_timestamps: "word" };
    check(host, options);
    return new SpeechStream(
      async (samples, _, ending) => {
        if (samples.length < soundDescription(host).length.least) return [];
        const { chunks } = await heardIn(host, samples, options, SILENT, ending);
        const words = chunks as Spoken[];
        return words.map((word) => ({ ...word, text: ` ${word.text}` })); // as Whisper's begin
      },
      wishesOf(given, voice),
    );
  },
};
