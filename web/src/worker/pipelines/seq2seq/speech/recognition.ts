// automatic-speech-recognition with Whisper. Mirrors
// python/edgewise/host/pipelines/automatic_speech_recognition.py.

import { chunks_of } from "../../../../logic/speech/chunks.ts";
import { Joiner } from "../../../../logic/speech/join.ts";
import { language_name, type WhisperOptions } from "../../../../logic/speech/prompts.ts";
import type { Segment } from "../../../../logic/speech/requests.ts";
import { beams_of } from "../../../../logic/speech/whisper.ts";
import type { TaskSound } from "../../../../protocol/tasks.ts";
import { InputError } from "../../../../shared/errors.ts";
import type { Json } from "../../../../shared/python.ts";
import { DecodingStreamer, type Streamer } from "../../../generation/index.ts";
import type { Ending, TaskHost } from "../../host.ts";
import { Options } from "../../options.ts";
import type { Events, TaskRunner } from "../../runner.ts";
import { FIELD_NAMES, fieldsOf, spread } from "../fields.ts";
import { featuresOf, HOP, type Samples } from "./features.ts";
import { HeldSamples, samplesOf } from "./samples.ts";
import { SpeechStream, type Spoken, wishesOf } from "./stream.ts";
import { WhisperTranscriber } from "./whisper.ts";

const RATE = 16000; // Hz, of Whisper
const OWN = [
  "return_timestamps",
  "return_language",
  "chunk_length_s",
  "stride_length_s",
  "num_frames",
  "force_full_sequences",
  "language",
  "task",
  "prompt_ids",
  "prompt_condition_type",
  "condition_on_prev_tokens",
  "temperature",
  "compression_ratio_threshold",
  "logprob_threshold",
  "no_speech_threshold",
];

/** Options that do not say what a result has, or how a recording is divided. */
const OTHERS = [...OWN, ...FIELD_NAMES].filter(
  (name) => OWN.indexOf(name) < 0 || OWN.indexOf(name) > 5,
);

/** A part of a recording that is transcribed by itself. */
interface Piece {
  samples: Samples;
  /** First sample in the recording. */
  start: number;
  /** Length, left and right overlap in samples; null: it is the whole recording. */
  stride: [number, number, number] | null;
}

/** Options that do not depend on the recording. */
interface Call {
  times: boolean | "word";
  language: boolean;
  chunk: number;
  stride: [number, number];
  frames: number | null;
  full: boolean;
  whisper: Omit<WhisperOptions, "times">;
}

/** `pipe(sounds, {return_timestamps, language, task, chunk_length_s, ...})` */
export const speechRecognition: TaskRunner = {
  options: [...OWN, ...FIELD_NAMES],
  prepare(host, given, events) {
    const options = new Options(spread(given.given), [...OWN, ...FIELD_NAMES]);
    const call = callOf(host, options);
    const beams = beams_of(call.whisper.fields, host.config("generation_config.json"));
    if (events.streams && beams > 1)
      throw new InputError(
        "a streamer cannot follow beams",
        "options.streamer",
        "Leave num_beams at 1, or use onSegment.",
      );
    return async (input, ending) => {
      if (typeof input !== "object" || !("sound" in input))
        throw new InputError("the input is no sound", host.task, "Give a sound.");
      return recognized(host, call, input.sound, events, ending);
    };
  },
  streamOptions: ["interval", "live", ...OTHERS],
  stream(host, given, voice) {
    const { interval: _, live: __, ...rest } = given.given;
    const asked = { ...spread(rest), return_timestamps: "word" };
    const call = callOf(host, new Options(asked, [...OWN, ...FIELD_NAMES]));
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

const SILENT: Events = { streams: false, text: () => undefined, send: () => undefined };

function callOf(host: TaskHost, options: Options): Call {
  const config = host.config("generation_config.json");
  // fields of the model's own file apply as well
  const own = (name: string): unknown =>
    options.has(name) && options.given[name] !== null ? options.given[name] : config[name];
  const both = new Options(
    Object.fromEntries(
      OWN.slice(9)
        .filter((name) => name !== "temperature")
        .map((name) => [name, own(name) ?? undefined])
        .filter(([, value]) => value !== undefined) as [string, unknown][],
    ),
    OWN,
  );
  const number = (name: string) => realOf(both, name, null);
  const chunk = realOf(options, "chunk_length_s", 0) ?? 0;
  if (chunk < 0) options.refuse("chunk_length_s", "Give seconds.");
  const stride = options.given.stride_length_s ?? chunk / 6;
  const sides = Array.isArray(stride) ? stride : [stride, stride];
  if (sides.length !== 2 || !sides.every((x) => Number.isFinite(x) && x >= 0))
    throw new InputError(
      `it is ${JSON.stringify(stride)}`,
      "options.stride_length_s",
      "Give seconds, or [left, right].",
    );
  const whisper: Call["whisper"] = {
    word_times: options.given.return_timestamps === "word",
    language: options.optional("language") ?? null,
    task: options.optional("task") ?? null,
    prompt_ids: idsOf(options, "prompt_ids"),
    prompt_condition_type: both.choice("prompt_condition_type", "first-segment", [
      "first-segment",
      "all-segments",
    ]),
    condition_on_prev_tokens: both.flag("condition_on_prev_tokens", false),
    temperature: temperatures(options),
    compression_ratio_threshold: number("compression_ratio_threshold"),
    logprob_threshold: number("logprob_threshold"),
    no_speech_threshold: number("no_speech_threshold"),
    fields: fieldsOf(options, OWN),
    where: "options.",
  };
  checkFields(options, whisper);
  const times = options.given.return_timestamps ?? false;
  if (times !== "word" && typeof times !== "boolean")
    throw new InputError(
      `Whisper has no times of kind ${JSON.stringify(times)}`,
      "options.return_timestamps",
      'Give true, false or "word".',
    );
  return {
    times,
    language: options.flag("return_language", false),
    chunk,
    stride: sides as [number, number],
    frames: options.count("num_frames", null, null),
    full: options.flag("force_full_sequences", false),
    whisper,
  };
}

/** A finite number; null stands for none. */
function realOf(options: Options, name: string, otherwise: number | null): number | null {
  const value = options.given[name] ?? otherwise;
  return value === null || Number.isFinite(value)
    ? (value as number | null)
    : options.refuse(name, "Give a number.");
}

/** Token ids. */
function idsOf(options: Options, name: string): number[] {
  const value = options.given[name] ?? [];
  const list = Array.isArray(value) || ArrayBuffer.isView(value) ? Array.from(value as []) : [NaN];
  return list.every((id) => Number.isInteger(id) && (id as number) >= 0)
    ? list
    : options.refuse(name, "Give a list of token ids.");
}

function temperatures({ given: { temperature } }: Options): (number | null)[] {
  const list = Array.isArray(temperature) ? temperature : [temperature ?? null];
  if (list.length && list.every((t) => t === null || (Number.isFinite(t) && t >= 0))) return list;
  throw new InputError(
    `it is ${JSON.stringify(temperature)}`,
    "options.temperature",
    "Give a number, or a list of those to try in turn.",
  );
}

function checkFields(options: Options, whisper: Call["whisper"]): void {
  const { do_sample: draws, num_return_sequences: several } = whisper.fields;
  if ((several ?? 1) !== 1 || draws)
    throw new InputError(
      "transcripts have one text; `temperature` draws at random",
      `options.${draws ? "do_sample" : "num_return_sequences"}`,
      "Leave it out.",
    );
  if (whisper.prompt_condition_type === "all-segments" && !whisper.condition_on_prev_tokens)
    throw new InputError(
      '"all-segments" needs condition_on_prev_tokens: true',
      "options.prompt_condition_type",
      "Give both.",
    );
  if ((options.given.no_speech_threshold ?? null) !== null && whisper.logprob_threshold === null)
    throw new InputError(
      "it has an effect only with logprob_threshold",
      "options.no_speech_threshold",
      "Give both.",
    );
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
  let piece: Piece = { samples, start: 0, stride: null };
  const times = call.times !== false || (!call.chunk && samples.length > model.longest * HOP);
  const options = { ...call.whisper, times };
  const transcriber: WhisperTranscriber = new WhisperTranscriber(model, options, {
    streamer: events.streams ? streamed(host, events) : undefined,
    signal: ending,
    onProgress: (done, total) =>
      events.send(
        "progress",
        (piece.start + (done / total) * piece.samples.length) / samples.length,
      ),
    onSegments: (segments) => {
      for (const one of segments) events.send("segment", plain(one));
    },
  });
  const { begin } = transcriber.logic;
  const eos = transcriber.logic.eos ?? begin;
  const plain = ({ start, end, tokens }: Segment) => ({
    text: decode(tokens.filter((t) => t < eos)),
    timestamp: [start + piece.start / RATE, end + piece.start / RATE],
  });
  const joiner = new Joiner(
    decode,
    eos,
    begin,
    call.times === "word",
    call.times !== false,
    0.02,
    model.positions,
  );
  try {
    for await (piece of pieces(samples, call)) {
      const features = await featuresOf(host, piece.samples, ending);
      const counted = call.frames === null ? features : { ...bound(features), spoken: call.frames };
      const segments = await transcriber.transcribe(counted);
      joiner.add({
        tokens: segments.flatMap((s) => s.tokens),
        token_times: call.whisper.word_times ? segments.flatMap((s) => s.token_times ?? []) : null,
        stride: piece.stride && (piece.stride.map((n) => n / RATE) as [number, number, number]),
        language: language_name(model.generation_config, transcriber.logic.language),
      });
    }
  } finally {
    samples.again(); // closes what reads the sound
  }
  if (events.streams) events.text("", true);
  const [text, chunks] = joiner.end();
  if (call.times && call.full && chunks.length && chunks.at(-1)!.timestamp[1] === null)
    throw new InputError(
      "the model gave no end of the last chunk",
      "options.force_full_sequences",
      "Set it to false.",
    );
  return { text, ...chunkFields(chunks, call) };
}

/** Features as a plain object, so that fields can be replaced. */
function bound(features: Awaited<ReturnType<typeof featuresOf>>) {
  return { frames: features.frames, window: (start: number) => features.window(start) };
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

function chunkFields(chunks: readonly Json[], { times, language }: Call): { chunks?: unknown[] } {
  if (!times && !language) return {};
  return {
    chunks: chunks.map((chunk) => ({
      ...(language ? { language: chunk.language } : {}),
      ...(times ? { timestamp: chunk.timestamp } : {}),
      text: chunk.text,
    })),
  };
}

/** The recording, or its overlapping chunks. */
async function* pieces(samples: Samples, { chunk, stride }: Call): AsyncGenerator<Piece> {
  if (!chunk) {
    yield { samples, start: 0, stride: null };
    return;
  }
  const [size, before, after] = [chunk, ...stride].map((s) => Math.round(s * RATE)) as [
    number,
    number,
    number,
  ];
  if (size <= before + after)
    throw new InputError(
      `chunks of ${chunk} s with overlaps of ${stride.join(" and ")} s do not advance`,
      "options.stride_length_s",
      "Give a smaller overlap.",
    );
  for (const { start, length, left, right } of chunks_of(samples.length, size, before, after)) {
    const part = await samples.read(start, start + length);
    yield { samples: new HeldSamples(part), start, stride: [part.length, left, right] };
  }
}
