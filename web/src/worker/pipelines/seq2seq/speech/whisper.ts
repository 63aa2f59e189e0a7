// Tokens from log-mel features with Whisper: prompts, windows, fallback, segments. Mirrors
// python/edgewise/host/text/speech/whisper.py.

import { token_times } from "../../../../logic/speech/alignment.ts";
import type { GenerationFields } from "../../../../protocol/generation.ts";
import { InputError } from "../../../../shared/errors.ts";
import { type GenerateOutput, generate, type Streamer } from "../../../generation/index.ts";
import type { Seq2SeqModel } from "../model.ts";
import type { EncodedSource } from "../source.ts";
import type { Features } from "./features.ts";
import { firstTokens, idOf, noTimestampsId, type PromptOptions } from "./prompt.ts";
import { averageLogProbability, logProbability } from "./rescore.ts";

const TIME_PRECISION = 0.02; // seconds of a position of Whisper's encoder
const FRAMES_PER_POSITION = 2;
const WARM = 0.5; // from this temperature on, previous text is not a prompt of the next window

/** The number of beams: that of a call, else the model's own. */
export function beamsOf(fields: GenerationFields, config: Record<string, unknown>): number {
  const { num_beams: own } = config;
  return fields.num_beams ?? (typeof own === "number" ? own : 1);
}

/** How to transcribe; names and defaults are transformers'. */
export interface WhisperOptions extends PromptOptions {
  /** Whether each token gets a time. */
  word_times: boolean;
  /** Tokens before the first window's, or with "all-segments" before each. */
  prompt_ids: readonly number[];
  prompt_condition_type: "first-segment" | "all-segments";
  /** Whether the text so far is a prompt of the next window. */
  condition_on_prev_tokens: boolean;
  /** One, or several to try in turn; null: greedy or beams. */
  temperature: readonly (number | null)[];
  /** When another temperature is tried, and when a window is skipped; null: never. */
  compression_ratio_threshold: number | null;
  logprob_threshold: number | null;
  no_speech_threshold: number | null;
  /** Of GenerationConfig. */
  fields: GenerationFields;
  streamer: Streamer | undefined;
  signal: AbortSignal;
  /** Called with the frames that are done and all frames. */
  onProgress: ((done: number, total: number) => void) | undefined;
  /** Called with the segments of each window. */
  onSegments: ((segments: readonly Segment[]) => void) | undefined;
}

/** A part of a transcript. */
export interface Segment {
  /** Seconds. */
  start: number;
  end: number;
  /** Of text and times. */
  tokens: number[];
  /** When each token was spoken, in seconds; null: not asked for. */
  token_times: number[] | null;
}

/** Transcribes recordings with a Whisper model. */
export class WhisperTranscriber {
  private readonly windowFrames: number;
  /** Id of the token of 0.00 s. */
  readonly begin: number;
  readonly eos: number | undefined;
  /** Id of the language token of the latest transcript; null: the model has none. */
  language: number | null = null;

  constructor(
    private readonly model: Seq2SeqModel,
    private readonly options: WhisperOptions,
  ) {
    this.windowFrames = model.longest;
    this.begin = noTimestampsId(model, options.times) + 1;
    this.eos = idOf(model, "eos_token_id");
  }

  /**
   * The segments of a recording. Those of more than a window are transcribed window by window, for
   * which times must be generated.
   * @throws InputError, Aborted
   */
  async transcribe(features: Features): Promise<Segment[]> {
    const { options, model } = this;
    const total = features.frames;
    const segments: Segment[] = [];
    const previous = this.givenPrompt();
    let condition = options.condition_on_prev_tokens;
    let start: number[] | undefined;
    for (let seek = 0; seek < total; ) {
      options.onProgress?.(seek, total);
      const size = Math.min(total - seek, this.windowFrames);
      const source = model.encodeFeatures(await features.window(seek));
      try {
        if (!start) [start, this.language] = await firstTokens(model, source, options);
        const prompt = this.prompt(start, previous, segments, condition);
        const found = await this.window(source, prompt, start.length);
        const ended = found.tokens.length > 0 && found.tokens.at(-1) === this.eos;
        const tokens = ended ? found.tokens.slice(0, -1) : found.tokens;
        condition =
          options.condition_on_prev_tokens &&
          (found.temperature === null || found.temperature < WARM);
        if (found.skip) {
          seek += size;
          continue;
        }
        const spoken = features.spoken - seek;
        const times = options.word_times
          ? await this.tokenTimes(source, prompt, tokens, spoken, ended)
          : null;
        const [made, step] = splitSegments(tokens, times, this.begin, seek, size);
        segments.push(...made);
        options.onSegments?.(made);
        seek += step;
      } finally {
        source.close();
      }
    }
    options.onProgress?.(total, total);
    return segments;
  }

  /** Tokens that count as said before the first window. */
  private givenPrompt(): number[] {
    const given = [...this.options.prompt_ids];
    if (!given.length || this.options.prompt_condition_type !== "first-segment") return [];
    return given[0] === this.before() ? given.slice(1) : given;
  }

  /** The id of <|startofprev|>. */
  private before(): number | undefined {
    const { suppress_tokens: suppressed } = this.model.generation_config;
    return (
      idOf(this.model, "prev_sot_token_id") ??
      (Array.isArray(suppressed) && suppressed.length > 1 ? suppressed.at(-2) : undefined)
    );
  }

  /** The first tokens of a window. */
  private prompt(
    start: number[],
    previous: number[],
    segments: readonly Segment[],
    condition: boolean,
  ): number[] {
    const given = [...this.options.prompt_ids];
    if (!condition || !(previous.length || segments.length)) return [...given, ...start];
    const all = given.length && this.options.prompt_condition_type === "all-segments";
    const before = this.before();
    const said = [...previous];
    for (const { tokens } of segments) {
      const double = tokens.length > 2 && tokens.at(-2)! >= this.begin;
      said.push(...(double ? tokens.slice(0, -1) : tokens));
    }
    const most = Math.floor(this.model.max_length / 2) - 1;
    return [
      ...(all ? given : before === undefined ? [] : [before]),
      ...said.slice(-most),
      ...start,
    ];
  }

  /**
   * Generates the tokens of a window, with other temperatures where they seem wrong.
   * @param start how many of the prompt's last tokens begin with <|startoftranscript|>
   * @returns tokens without prompt; `skip`: whether the window has no speech
   */
  private async window(
    source: EncodedSource,
    prompt: number[],
    start: number,
  ): Promise<{ tokens: number[]; skip: boolean; temperature: number | null }> {
    const {
      temperature: temperatures,
      no_speech_threshold: quiet,
      compression_ratio_threshold: ratio,
      logprob_threshold: least,
    } = this.options;
    const silence =
      quiet === null ? 0 : await this.silence(source, prompt.slice(0, prompt.length - start + 1));
    for (let i = 0; ; i++) {
      const temperature = temperatures[i]!;
      const [tokens, logprob] = await this.attempt(source, prompt, temperature);
      const failed =
        (ratio !== null && (await compressionRatio(tokens, this.model.info.vocabSize)) > ratio) ||
        (least !== null && logprob < least);
      const skip = quiet !== null && least !== null && logprob < least && silence > quiet;
      if (!failed || skip || i === temperatures.length - 1) return { tokens, skip, temperature };
    }
  }

  /** Tokens behind the prompt, and the average logarithm of their probability or 0. */
  private async attempt(
    source: EncodedSource,
    prompt: number[],
    temperature: number | null,
  ): Promise<[number[], number]> {
    const { options } = this;
    const fields: GenerationFields = { ...options.fields, ...this.limit(prompt) };
    if (temperature !== null && temperature > 0)
      Object.assign(fields, { do_sample: true, temperature, num_beams: 1 });
    const beams = beamsOf(fields, this.model.generation_config);
    const wanted = options.logprob_threshold !== null;
    let total = 0;
    const add = (scores: number, token: number) => {
      total += logProbability(source, scores, token, fields.temperature ?? 1);
    };
    source.scored = wanted && beams === 1 ? add : undefined;
    const all: GenerationFields = { ...fields, return_timestamps: options.times };
    const made = (await generate(
      source,
      prompt,
      {},
      {
        fields: { ...all, return_dict_in_generate: true },
        ...(beams === 1 && options.streamer ? { streamer: options.streamer } : {}),
        signal: options.signal,
      },
    )) as GenerateOutput;
    source.scored = undefined;
    const tokens = made.sequences[0]!.slice(prompt.length);
    if (wanted && beams > 1)
      return [tokens, await averageLogProbability(source, prompt, tokens, all)];
    return [tokens, total / Math.max(1, tokens.length)];
  }

  /** The field that limits the length of a window's tokens. */
  private limit(prompt: readonly number[]): GenerationFields {
    const most = this.model.max_length;
    const { max_new_tokens: more, max_length: whole } = this.options.fields;
    if (more != null) {
      if (more + prompt.length > most)
        throw new InputError(
          `a prompt of ${prompt.length} tokens and max_new_tokens of ${more} exceed the ${most} ` +
            "tokens of the decoder",
          "options.max_new_tokens",
          "Shorten the prompt, or lower max_new_tokens.",
        );
      return { max_new_tokens: more };
    }
    const given = whole || idOf(this.model, "max_length") || most;
    return { max_length: Math.min(given, most) };
  }

  /** The probability of <|nospeech|> behind <|startoftranscript|>, the prompt's last token. */
  private async silence(source: EncodedSource, prompt: number[]): Promise<number> {
    const sequence = source.open();
    try {
      const logits = await source.forward(sequence, prompt);
      return Math.exp(logProbability(source, logits, this.begin - 2, 1));
    } finally {
      source.close(sequence);
    }
  }

  /**
   * When each token of a window was spoken, in seconds from its start. As in transformers, which
   * does not run the last one, that has the time of the one before where the window has no end.
   */
  private async tokenTimes(
    source: EncodedSource,
    prompt: number[],
    tokens: number[],
    frames: number,
    ended: boolean,
  ): Promise<number[]> {
    const length = Math.max(
      1,
      Math.min(Math.floor(frames / FRAMES_PER_POSITION), source.positions),
    );
    const run = ended ? tokens : tokens.slice(0, -1);
    if (!run.length) return tokens.map(() => 0);
    const weights = await this.model.align(source, [...prompt, ...run], prompt.length, length);
    const times = token_times(weights);
    return ended ? times : [...times, times.at(-1)!];
  }
}

/** How much smaller zlib makes the tokens' bytes: high for repetitions. */
export async function compressionRatio(
  tokens: readonly number[],
  vocabSize: number,
): Promise<number> {
  const length = Math.trunc(Math.log2(vocabSize) / 8) + 1;
  const data = new Uint8Array(length * tokens.length);
  tokens.forEach((token, i) => {
    for (let k = 0; k < length; k++) data[i * length + k] = Math.floor(token / 256 ** k) & 255;
  });
  const stream = new Blob([data]).stream().pipeThrough(new CompressionStream("deflate"));
  const { byteLength } = await new Response(stream).arrayBuffer();
  return data.length / byteLength;
}

/**
 * The segments of a window.
 * @param times of the tokens, from the window's start
 * @param begin id of the token of 0.00 s
 * @param seek the window's first frame
 * @param size its frames
 * @returns segments, and frames to the next window
 */
export function splitSegments(
  tokens: readonly number[],
  times: readonly number[] | null,
  begin: number,
  seek: number,
  size: number,
): [Segment[], number] {
  const offset = (seek * TIME_PRECISION) / FRAMES_PER_POSITION;
  const isTime = tokens.map((t) => t >= begin);
  const single = tokens.length > 1 && !isTime.at(-2) && isTime.at(-1)!;
  const cuts = isTime.flatMap((time, i) => (time && isTime[i + 1] ? [i + 1] : []));
  const absolute = times?.map((t) => t + offset) ?? null;
  if (!cuts.length) {
    const last = tokens.filter((t) => t >= begin).at(-1);
    const end =
      last !== undefined && last !== begin
        ? last - begin
        : Math.trunc((size * 0.01) / TIME_PRECISION);
    const all = { tokens: [...tokens], token_times: absolute };
    return [[{ start: offset, end: offset + end * TIME_PRECISION, ...all }], size];
  }
  if (single) cuts.push(tokens.length);
  else cuts[cuts.length - 1]!++;
  const segments: Segment[] = [];
  let start = 0;
  cuts.forEach((stop, i) => {
    const part = tokens.slice(start, stop);
    const end = part.at(i < cuts.length - 1 || single ? -1 : -2)!;
    segments.push({
      start: offset + (part[0]! - begin) * TIME_PRECISION,
      end: offset + (end - begin) * TIME_PRECISION,
      tokens: part,
      token_times: absolute?.slice(start, stop) ?? null,
    });
    start = stop;
  });
  if (single) return [segments, size];
  return [segments, (tokens[start - 2]! - begin) * FRAMES_PER_POSITION];
}
