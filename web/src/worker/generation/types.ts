// What a generation works with and what it returns.

import type { Host } from "../../device/device.ts";
import type { FINISH_REASONS } from "../../gen/sampling.ts";
import type { GenerationFields } from "../../protocol/generation.ts";

/** What makes logits. S: whatever stands for a sequence and its cache. */
export interface Decoder<S = unknown> {
  /** Number of logits. */
  readonly vocab_size: number;
  /** How many tokens a sequence can have. */
  readonly max_length: number;
  /**
   * Prompts are given to `forward` in pieces of so many ids, so that an abort is heard between
   * them.
   */
  readonly prefill_chunk?: number;
  /** Contents of config.json; of use where there is no generation_config.json. */
  readonly config?: Record<string, unknown>;
  /** Contents of generation_config.json. */
  readonly generation_config?: Record<string, unknown>;
  /** C functions for sampling, in whose memory `forward` leaves the logits. */
  readonly engine: Host;
  /** A new empty sequence. Throws OutOfMemory. */
  open(): S;
  /** Frees a sequence's cache. */
  close(sequence: S): void;
  /** target's cache := source's */
  copy(source: S, target: S): void;
  /** Forgets all but the first n tokens. */
  truncate(sequence: S, n: number): void;
  /**
   * Appends ids to a sequence and runs them.
   * @returns the address in `engine`'s memory of the logits after the last id, float32
   *   [vocab_size], valid until the next call
   */
  forward(sequence: S, ids: number[]): Promise<number>;
}

/** Follows a generation; transformers' protocol. */
export interface Streamer {
  /** First the prompt's ids, then each token. */
  put(ids: number[]): void;
  /** Behind the last token, and where the generation failed. */
  end(): void;
}

/** What stop strings and streamers want of a tokenizer. */
export interface StopTokenizer {
  /** The text of token ids. */
  decode(ids: number[], options?: { skip_special_tokens?: boolean }): string;
}

/** Gets all ids so far and float32 [vocab_size] scores; gives others, or changes them in place. */
export type LogitsProcessor = (ids: number[], scores: Float32Array) => Float32Array | void;
/** Gets all ids so far, and the step's scores with `output_scores`; true ends the sequence. */
export type StoppingCriterion = (ids: number[], scores: Float32Array | undefined) => boolean;

/** What a generation gets besides its config. */
export interface GenerateOptions {
  /** The call's own fields, which win over the config: transformers' keyword arguments. */
  fields?: GenerationFields;
  /** Only for one sequence without beams. */
  streamer?: Streamer;
  /** Ends it: Aborted, with the ids so far. */
  signal?: AbortSignal;
  /** Needed for stop_strings. */
  tokenizer?: StopTokenizer;
  /**
   * Runs where transformers runs it: after its own processors, before temperature and the filters.
   */
  logits_processor?: LogitsProcessor | LogitsProcessor[];
  /** Asked after each token; any of them ends the sequence. */
  stopping_criteria?: StoppingCriterion | StoppingCriterion[];
  /** Gets what a caller should know and that is no error; by default console.warn. */
  warn?: (message: string) => void;
}

/** Why a sequence ended. */
export type FinishReason = Exclude<(typeof FINISH_REASONS)[number], "running">;

/** What `return_dict_in_generate` gives. */
export interface GenerateOutput {
  /** One list of ids per result, prompt included, prompt by prompt, never padded. */
  sequences: number[][];
  /** One for each sequence. */
  finish_reasons: FinishReason[];
  /**
   * With output_scores, output_logits: per step one array [vocab_size] per sequence (undefined once
   * it has ended; with beams, per running beam).
   */
  scores?: (Float32Array | undefined)[][];
  /** As `scores`, before they were processed. */
  logits?: (Float32Array | undefined)[][];
  /** With num_beams > 1. */
  sequences_scores?: number[];
}
