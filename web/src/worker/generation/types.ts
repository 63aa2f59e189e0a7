// Interfaces of generation: decoder, options and results.

import type { Chooser, Host, Picker } from "../../device/device.ts";
import type { Tail } from "../../logic/generation/chunks.ts";
import type { Kept } from "../../logic/generation/kept.ts";
import type { Criterion, Format, Logits, Processor } from "../../logic/generation/requests.ts";
import type { Output } from "../../logic/generation/run.ts";
import type { Pace } from "../../logic/generation/speculation.ts";
import type { GenerationFields } from "../../protocol/generation.ts";

/** Computes logits. S: the type that represents a sequence and its cache. */
export interface Decoder<S = unknown> {
  /** Size of the vocabulary. */
  readonly vocab_size: number;
  /** Maximum number of tokens of a sequence. */
  readonly max_length: number;
  /** Prompts are passed to `forward` in chunks of this many ids, so that an abort is noticed. */
  readonly prefill_chunk?: number;
  /** How less than a chunk is read; null or undefined: in one run. */
  readonly tail?: Tail | null;
  /** Contents of config.json, used if there is no generation_config.json. */
  readonly config?: Record<string, unknown>;
  /** Contents of generation_config.json. */
  readonly generation_config?: Record<string, unknown>;
  /** Token ids of the encoder's input; null or undefined: there is no encoder of text. */
  readonly encoder_input_ids?: readonly number[] | null;
  /**
   * Called, except with beams, with the address of the processed scores, float32 [vocab_size], and
   * the token that was chosen from them.
   */
  scored?: ((scores: number, token: number) => void) | undefined;
  /** Tokens that `verify` takes at most; 0 or undefined: none. */
  readonly verified?: number;
  /** What generations measured of it. */
  readonly pace?: Pace;
  /** The states of earlier generations; undefined: none are kept. */
  readonly kept?: Kept | undefined;
  /** Names the weights and the adapter that states come from. */
  key?(): string;
  /** C functions for sampling, whose memory receives the logits of `forward`. */
  readonly engine: Host;
  /**
   * Makes an empty sequence.
   * @throws OutOfMemory
   */
  open(): S;
  /** Frees a sequence. */
  close(sequence: S): void;
  /** Copies the cache of `source` to `target`. */
  copy(source: S, target: S): void;
  /** Removes all tokens after the first n. */
  truncate(sequence: S, n: number): void;
  /**
   * Appends ids to a sequence and runs them.
   * @returns address in `engine`'s memory of the logits after the last id, float32 [vocab_size],
   *   valid until the next call
   */
  forward(sequence: S, ids: number[]): Promise<number>;
  /**
   * As `forward`, for at most `verified` tokens that fit before `max_length` as so many.
   * @returns address of the logits after each of them, float32 [ids.length, vocab_size]
   */
  verify?(sequence: S, ids: number[]): Promise<number>;
  /** See `Picker.begin` of device.ts; undefined where all logits are needed. */
  choosing?(members: Readonly<Record<string, number>>, work: number): Choosing | undefined;
  /**
   * As `forward`, but what chooses the next token, where the chooser can; else the address of the
   * logits. Where it runs ahead, `sequence` may be longer than its tokens.
   * @param room tokens that may follow
   */
  forwardBest?(sequence: S, ids: number[], by: Choosing, room: number): Promise<Logits>;
}

/** The choice of a generation's tokens where the decoder computes. */
export interface Choosing {
  members: Readonly<Record<string, number>>;
  work: number;
  /** Of the device, and what it began. */
  picker: Picker | undefined;
  chooser: Chooser | undefined;
}

/** Follows a generation; the interface of transformers' streamers. */
export interface Streamer {
  /** Receives the prompt's ids first, then each token. */
  put(ids: number[]): void;
  /** Called after the last token, and when generation fails. */
  end(): void;
}

/** The part of a tokenizer that stop strings and streamers need. */
export interface StopTokenizer {
  /** Decodes token ids. */
  decode(ids: number[], options?: { skip_special_tokens?: boolean }): string;
}

/** Options of a generation besides its config. */
export interface GenerationOptions {
  /** Fields of the call itself, which take precedence over the config: transformers' kwargs. */
  fields?: GenerationFields;
  /** Follows the generation; only for a single sequence without beams. */
  streamer?: Streamer;
  /** Cancels the generation, which throws Aborted with the ids so far. */
  signal?: AbortSignal;
  /** Required for stop_strings. */
  tokenizer?: StopTokenizer;
  /** Called as in transformers: after its own processors, before temperature and filters. */
  logits_processor?: Processor | Processor[];
  /** Called after each token; any of them can end the sequence. */
  stopping_criteria?: Criterion | Criterion[];
  /**
   * Continue from the states of an earlier generation that begins alike, and keep these states.
   * Default: false.
   */
  cache?: boolean;
  /** What the texts have to be. */
  format?: Format | null;
  /** A smaller model with the same tokenizer, which guesses tokens. */
  assistant_model?: Decoder | undefined;
  /** Receives warnings. Default: console.warn. */
  warn?: (message: string) => void;
}

/** Result with `return_dict_in_generate`. */
export type GenerateOutput = Output;
