// What a device and a cloud have in common for a hybrid: they continue text.

import type { Message } from "../../protocol/generation.ts";

/** Names of the sides. */
export type Where = "device" | "cloud";

/** Generation options that both sides have, with the names of transformers. */
export interface SharedFields {
  /** Maximum number of new tokens. Default: 256. */
  max_new_tokens?: number | null;
  /** Sample instead of choosing the most likely token. Default: each side's own. */
  do_sample?: boolean | null;
  /** Divisor of the logits before sampling. */
  temperature?: number | null;
  /** Sample from this many most likely tokens. */
  top_k?: number | null;
  /** Sample from the smallest set of tokens whose probabilities sum to this. */
  top_p?: number | null;
  /** Sample from tokens with at least this fraction of the highest probability. */
  min_p?: number | null;
  /** Penalty of tokens that occurred before. */
  repetition_penalty?: number | null;
  /** Subtracted once from the logit of each generated token. */
  presence_penalty?: number | null;
  /** Subtracted from the logit of each token as often as it was generated. */
  frequency_penalty?: number | null;
  /** Seed of the sampler; equal seeds give equal text on one side, not on both. */
  seed?: number | bigint | null;
  /** Strings that end the generation. */
  stop_strings?: string | string[] | null;
}

/** What a side is asked to write. */
export interface Task {
  /** A prompt, or the messages of a chat. */
  input: string | Message[];
  /** The text so far, which is continued; without white space at its end. */
  prefix: string;
  /** New tokens at most. */
  tokens: number;
  /** Further options of the call. */
  fields: Record<string, unknown>;
}

/** New text. */
export interface Piece {
  text: string;
  /** Tokens of the text, as far as they are known. */
  tokens: number;
  /** Why the text ends here, as in transformers; undefined if it does not. */
  finish?: string | undefined;
  /** Whether the side works on without text: its model thinks before it writes. */
  alive?: boolean;
  /** Whether the side begins only now, since its model had to be loaded. */
  begun?: boolean;
}

/** A side of a hybrid. */
export interface Side {
  readonly where: Where;
  /** Writes; ends after a piece with `finish`. @throws what made it fail */
  write(task: Task, signal: AbortSignal): AsyncIterable<Piece>;
  /** Whether it can do a task. */
  can(task: Task): boolean;
}

/** The input with the text so far, which a side continues. */
export function continued({ input, prefix }: Task): string | Message[] {
  if (!prefix) return input;
  if (typeof input === "string") return input + prefix;
  const last = input.at(-1);
  return last?.role === "assistant"
    ? [...input.slice(0, -1), { ...last, content: last.content + prefix }]
    : [...input, { role: "assistant", content: prefix }];
}

/** Whether a task continues the last message of a chat. */
export function continues({ input, prefix }: Task): boolean {
  return typeof input !== "string" && (prefix !== "" || input.at(-1)?.role === "assistant");
}
