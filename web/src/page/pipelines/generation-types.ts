// Types of the tasks that generate text with an encoder. Names are those of transformers and
// transformers.js.

import type { GenerationFields, Without } from "../../protocol/generation.ts";
import type { TextStreamer } from "../text-generation.ts";
import type { CallOptions } from "./base-types.ts";
import type { SpeechChunk } from "./sound-types.ts";

/** Options of translation, summarization and text2text-generation. */
export interface Text2TextOptions extends CallOptions, GenerationFields {
  /** Cut texts that are too long; otherwise they are refused. Default: of summarization true. */
  truncation?: boolean;
  /** Put before each text. Default: as the model's config says. */
  prefix?: string | null;
  /** Return `*_token_ids` instead of text. Default: false. */
  return_tensors?: boolean;
  /** Default: as the tokenizer's config says. */
  clean_up_tokenization_spaces?: boolean;
  /** More fields of GenerationConfig. */
  generate_kwargs?: GenerationFields;
  /** Receives the text while it is generated; for one input, without beams. */
  streamer?: TextStreamer | ((text: string) => void);
}

/** Options of translation. */
export interface TranslationOptions extends Text2TextOptions {
  /** Language of the text, for multilingual models: a token of the tokenizer, or T5's "en". */
  src_lang?: string | null;
  /** Language of the translation. */
  tgt_lang?: string | null;
}

/** Options of document-question-answering. */
export interface PictureTextOptions extends CallOptions, GenerationFields {
  /** More fields of GenerationConfig. */
  generate_kwargs?: GenerationFields;
  /** Receives the text while it is generated; for one input, without beams. */
  streamer?: TextStreamer | ((text: string) => void);
}

/** Options of image-to-text. */
export interface ImageToTextOptions extends PictureTextOptions {
  /**
   * Of Florence-2 a text, or the token of a task such as "<OD>"; of other models the text with
   * which the decoder begins, such as Donut's "<s_cord-v2>".
   */
  prompt?: string | null;
}

/** What a model wrote about a picture. */
export interface PictureText {
  generated_text: string;
  /**
   * Of a task of Florence-2: {task: text}, or {task: {bboxes: [[left, top, right, bottom]],
   * labels}}, {quad_boxes, labels} or {polygons, labels}, in pixels.
   */
  result?: Record<string, unknown>;
}

/** An answer about a document; null: the model wrote none. */
export interface DocumentAnswer {
  answer: string | null;
}

/** A part of a transcript: text, and its beginning and end in seconds. */
export interface SpeechSegment {
  text: string;
  timestamp: [start: number, end: number];
}

/** A transcript. Chunks with return_timestamps or return_language. */
export interface SpeechResult {
  text: string;
  chunks?: SpeechChunk[];
}

/** Options of automatic-speech-recognition. */
export interface SpeechOptions
  extends CallOptions,
    Without<GenerationFields, "return_timestamps" | "temperature"> {
  /**
   * Times of segments, or of words. Default: false. CTC models have those of characters and words,
   * and of the other options `chunk_length_s`, `stride_length_s`, `onProgress` and `signal`.
   */
  return_timestamps?: boolean | "word" | "char";
  /** Give each chunk its language. Default: false. */
  return_language?: boolean;
  /** Name ("french") or code ("fr") of the speech. Default: detected. */
  language?: string | null;
  /** Default: `transcribe`. `translate` is to English. */
  task?: "transcribe" | "translate" | null;
  /**
   * Transcribe overlapping chunks of so many seconds by themselves. Default: 0, window by window,
   * each from where the last one ended.
   */
  chunk_length_s?: number;
  /** Seconds of overlap at both ends, or [left, right]. Default: a sixth of a chunk. */
  stride_length_s?: number | [left: number, right: number] | null;
  /** Frames of sound, for times of words. Default: those of the recording. */
  num_frames?: number | null;
  /** Fail where the last chunk has no end. Default: false. */
  force_full_sequences?: boolean;
  /** Tokens before the first window's. */
  prompt_ids?: ArrayLike<number> | null;
  /** With `all-segments` they are before each window's. Default: `first-segment`. */
  prompt_condition_type?: "first-segment" | "all-segments" | null;
  /** Give a window the text so far as a prompt. Default: false. */
  condition_on_prev_tokens?: boolean | null;
  /** One temperature, or several that are tried in turn. Default: none, the likeliest tokens. */
  temperature?: number | readonly number[] | null;
  /** Try the next temperature above this ratio of compression. Default: never. */
  compression_ratio_threshold?: number | null;
  /** Try the next temperature below this mean logarithm of probabilities. Default: never. */
  logprob_threshold?: number | null;
  /** Skip unlikely windows above this probability of silence. Default: never. */
  no_speech_threshold?: number | null;
  /** More fields of GenerationConfig. */
  generate_kwargs?: Record<string, unknown>;
  /** Receives the text while it is generated; where a window is tried again, once more. */
  streamer?: TextStreamer | ((text: string) => void);
  /** Receives the segments of each window. */
  onSegment?: (segment: SpeechSegment) => void;
  /** Receives the fraction of the recording that is done. */
  onProgress?: (fraction: number) => void;
}

/** A generated text, by the name of the task: `translation_text`, `generated_token_ids`, ... */
export type GeneratedText<Name extends string> = {
  [K in `${Name}_text`]: string;
} & { [K in `${Name}_token_ids`]?: number[] };
