// Streaming of text while it is generated. Options as in transformers.js' TextStreamer; the timing
// of the output equals python/edgewise/host/text/streamers.py. Incomplete characters are held back.

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
  private ids: number[] = [];
  private given = 0;
  private promptIsNext = true;

  constructor(
    private readonly tokenizer: StopTokenizer,
    private readonly options: TextStreamerOptions = {},
  ) {}

  /** Adds token ids, the prompt's first, and emits completed text. */
  put(ids: number[]): void {
    const prompt = this.promptIsNext;
    this.promptIsNext = false;
    if (prompt && this.options.skip_prompt) return;
    this.options.token_callback_function?.(ids);
    this.ids.push(...ids);
    const text = this.decode();
    const byWord = this.options.by_word ?? true;
    let ready: number;
    if (text.endsWith("\ufffd")) {
      // the next token may complete the character
      const whole = text.replace(/\ufffd+$/, "");
      ready = byWord ? whole.lastIndexOf(" ") + 1 : whole.length;
    } else if (text.endsWith("\n") || !byWord || CJK_AT_END.test(text)) ready = text.length;
    else ready = text.lastIndexOf(" ") + 1;
    const piece = text.slice(this.given, ready);
    this.given = Math.max(this.given, ready);
    if (text.endsWith("\n")) this.forget();
    this.onFinalizedText(piece, false);
  }

  /** Emits the remaining text. */
  end(): void {
    const piece = this.ids.length ? this.decode().slice(this.given) : "";
    this.forget();
    this.promptIsNext = true;
    this.onFinalizedText(piece, true);
  }

  /** Called with each piece of text; override it or pass `callback_function`. */
  protected onFinalizedText(text: string, _end: boolean): void {
    if (text) this.options.callback_function?.(text);
  }

  private decode(): string {
    return this.tokenizer.decode(this.ids, {
      skip_special_tokens: this.options.skip_special_tokens ?? true,
      ...this.options.decode_kwargs,
    });
  }

  private forget(): void {
    this.ids = [];
    this.given = 0;
  }
}

/**
 * Scripts without spaces that transformers emits character by character: the CJK Unified Ideographs
 * blocks.
 */
const CJK_AT_END =
  /[\u4e00-\u9fff\u3400-\u4dbf\u{20000}-\u{2a6df}\u{2a700}-\u{2ceaf}\uf900-\ufaff\u{2f800}-\u{2fa1f}]$/u;
