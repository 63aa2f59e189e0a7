// automatic-speech-recognition with Whisper: the sound, the model and the events of
// logic/speech/recognition.py.

import { HOP } from "../../../../logic/speech/features.ts";
import { first_tokens } from "../../../../logic/speech/prompts.ts";
import {
  type Call,
  call_of,
  OPTIONS,
  type Part,
  RATE,
  RESULTS,
  Transcript,
} from "../../../../logic/speech/recognition.ts";
import type { Segment } from "../../../../logic/speech/requests.ts";
import { beams_of } from "../../../../logic/speech/whisper.ts";
import type { Pair } from "../../../../logic/training/pairs.ts";
import { check_window, end_id, target_example } from "../../../../logic/training/targets.ts";
import type { TaskSound } from "../../../../protocol/tasks.ts";
import { drive } from "../../../../shared/drive.ts";
import { InputError } from "../../../../shared/errors.ts";
import { DecodingStreamer, type Streamer } from "../../../generation/index.ts";
import type { Encoded } from "../../../model/model.ts";
import type { Ending, TaskHost } from "../../host.ts";
import { Options } from "../../options.ts";
import { type Events, SILENT, type TaskRunner } from "../../runner.ts";
import { soundOf } from "../../sound-input.ts";
import { FIELD_NAMES, fieldsOf, spread } from "../fields.ts";
import { featuresOf } from "./features.ts";
import { HeldSamples, samplesOf } from "./samples.ts";
import { SpeechStream, type Spoken, wishesOf } from "./stream.ts";
import { logitsOf, WhisperRunner, whisperModel } from "./whisper.ts";

const KNOWN = [...OPTIONS, ...FIELD_NAMES];

/** `pipe(sounds, {return_timestamps, language, task, chunk_length_s, ...})` */
export const speechRecognition: TaskRunner = {
  options: KNOWN,
  prepare(host, { given }, events) {
    const call = callOf(host, given);
    const beams = beams_of(call.whisper.fields, host.config("generation_config.json"));
    if (events.streams && beams > 1)
      throw new InputError(
        "a streamer cannot follow beams",
        "options.streamer",
        "Leave num_beams at 1, or use onSegment.",
      );
    return (input, ending) => recognized(host, call, soundOf(input, host.task), events, ending);
  },
  pairs: { kind: "speech", prepare: (host, given) => learned(host, callOf(host, given)) },
  streamOptions: ["interval", "live", ...KNOWN.filter((name) => !RESULTS.includes(name))],
  stream(host, given, voice) {
    const { interval: _, live: __, ...rest } = given.given;
    const call = callOf(host, { ...rest, return_timestamps: "word" });
    const tokenizer = host.needTokenizer();
    return new SpeechStream(
      async (samples, before, ending) => {
        const prompt_ids = before
          ? tokenizer.encode(`<|startofprev|>${before}`, false)
          : call.whisper.prompt_ids;
        const one = { ...call, whisper: { ...call.whisper, prompt_ids } };
        const sound = { name: "the stream", sampling_rate: RATE, samples };
        const { chunks } = await recognized(host, one, sound, SILENT, ending);
        return chunks as Spoken[];
      },
      wishesOf(given, voice),
    );
  },
};

function callOf(host: TaskHost, given: Readonly<Record<string, unknown>>): Call {
  const options = new Options(spread(given), KNOWN);
  const config = host.config("generation_config.json");
  return call_of(options.given, fieldsOf(options, OPTIONS), config);
}

async function recognized(
  host: TaskHost,
  call: Call,
  sound: TaskSound,
  events: Events,
  ending: Ending,
): Promise<Record<string, unknown>> {
  const model = host.needSeq2Seq();
  const tokenizer = host.needTokenizer();
  const samples = samplesOf(host, sound, RATE, ending);
  const decode = (ids: number[]) => tokenizer.decode(ids, { skip_special_tokens: false });
  const logic = new Transcript(call, whisperModel(model), samples.length, decode);
  let first = 0; // second of the recording with which its part begins
  const plain = ({ start, end, tokens }: Segment) => ({
    text: decode(tokens.filter((t) => t < logic.eos)),
    timestamp: [start + first, end + first],
  });
  const runner = new WhisperRunner(model, {
    streamer: events.streams ? streamed(host, events) : undefined,
    signal: ending,
    async features({ start, length, whole }: Part) {
      first = start / RATE;
      const part = whole ? samples : new HeldSamples(await samples.read(start, start + length));
      return featuresOf(host, part, ending);
    },
    onProgress: (done, total) => events.send("progress", done / total),
    onSegments: (segments) => {
      for (const one of segments) events.send("segment", plain(one));
    },
  });
  try {
    return await runner.run(logic.steps());
  } finally {
    samples.again(); // closes what reads the sound
    if (events.streams) events.text("", true);
  }
}

/** Reads pairs of a recording and its text. */
function learned(host: TaskHost, { whisper }: Call) {
  return async ({ source, target, where }: Pair, ending: Ending): Promise<Encoded> => {
    const model = host.needSeq2Seq();
    const samples = samplesOf(host, source as TaskSound, RATE, ending);
    try {
      check_window(samples.length, model.longest * HOP, RATE, where);
      const features = await featuresOf(host, samples, ending);
      const window = await features.window(0);
      const [prefix] = await drive(first_tokens(whisperModel(model), whisper), (request) =>
        logitsOf(model, window, request),
      );
      const ids = host.needTokenizer().encode(target, false);
      const states = await model.hidden(window);
      const end = end_id(model.generation_config, model.config);
      return { example: target_example(prefix, ids, end), states };
    } finally {
      samples.again();
    }
  };
}

/** Passes the text of each window on, without tokens of times. */
function streamed(host: TaskHost, events: Events): Streamer {
  const tokenizer = host.needTokenizer();
  const config = host.config("generation_config.json");
  const text = () =>
    new DecodingStreamer(tokenizer, { callback_function: (piece) => events.text(piece, false) });
  let current = text();
  let prompted = false;
  const eos = Number(
    Array.isArray(config.eos_token_id) ? config.eos_token_id[0] : config.eos_token_id,
  );
  return {
    put(ids) {
      const kept = prompted ? ids.filter((id) => id < eos) : [];
      prompted = true;
      if (kept.length) current.put(kept);
    },
    end() {
      current.end();
      current = text();
      prompted = false;
    },
  };
}
