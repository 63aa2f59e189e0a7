// Streaming of text while it is generated. Options as in transformers.js' TextStreamer.

import { TextPieces } from "../../logic/generation/streamers.ts";
import type { StopTokenizer, Streamer } from "./types.ts";

/** Options of {@link DecodingStreamer}. */
export interface TextStreamerOptions {
  /** Do not emit the prompt. Default: false. */
  skip_prompt?: boolean;
  /** Receives each piece of text. */
  callback_function?: (text: string) => void;
  /** Receives token ids as they arrive. */
  token_callback_function?: (ids: number[]) => void;
  /** Omit special tokens such as `<|endoftext|>`. Default: true. */
  skip_special_tokens?: boolean;
  /**
   * Emit whole words, as in transformers; false emits the text of each token at once. Default:
   * true.
   */
  by_word?: boolean;
  /** Options of the tokenizer's `decode`. */
  decode_kwargs?: Record<string, unknown>;
}

/** Streams text while it is generated: transformers' TextStreamer, in the worker. */
export class DecodingStreamer implements Streamer {
  private readonly pieces: TextPieces;

  constructor(
    tokenizer: StopTokenizer,
    private readonly options: TextStreamerOptions = {},
  ) {
    const { skip_special_tokens = true, decode_kwargs } = options;
    const decode = (ids: number[]) =>
      tokenizer.decode(ids, { skip_special_tokens, ...decode_kwargs });
    this.pieces = new TextPieces(decode, !!options.skip_prompt, options.by_word ?? true);
  }

  /** Adds token ids, the prompt's first, and emits completed text. */
  put(ids: number[]): void {
    if (this.pieces.skips()) return;
    this.options.token_callback_function?.(ids);
    this.onFinalizedText(this.pieces.put(ids), false);
  }

  /** Emits the remaining text. */
  end(): void {
    this.onFinalizedText(this.pieces.end(), true);
  }

  /** Called with each piece of text; override it or pass `callback_function`. */
  protected onFinalizedText(text: string, _end: boolean): void {
    if (text) this.options.callback_function?.(text);
  }
}
