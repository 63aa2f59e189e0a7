// Stop strings.

import { InputError } from "../../shared/errors.ts";
import type { StopTokenizer } from "./types.ts";

export const listed = <T>(value: T | T[] | undefined): T[] =>
  value === undefined ? [] : Array.isArray(value) ? value : [value];

/**
 * Detects whether the last token completed a stop string. A string may begin in any token,
 * including the prompt's.
 */
export class StopStrings {
  private readonly strings: string[];
  private readonly window: number;

  constructor(
    private readonly tokenizer: StopTokenizer | undefined,
    strings: string | string[],
  ) {
    this.strings = listed(strings);
    if (!tokenizer)
      throw new InputError(
        "stop_strings need a tokenizer",
        "generate",
        "Pass tokenizer, or use eos_token_id or stopping_criteria.",
      );
    if (!this.strings.every((s) => typeof s === "string" && s))
      throw new InputError(
        "stop_strings has to be a string or a list of strings, none empty",
        "GenerationConfig",
      );
    // A token is at least one byte of text. One more token keeps the decoder's special treatment of
    // the first token out of the string.
    this.window = Math.max(...this.strings.map((s) => new TextEncoder().encode(s).length)) + 1;
  }

  hit(ids: number[]): boolean {
    const tail = ids.slice(-this.window);
    const text = this.tokenizer!.decode(tail, { skip_special_tokens: false });
    const before =
      tail.length > 1
        ? this.tokenizer!.decode(tail.slice(0, -1), { skip_special_tokens: false })
        : "";
    let same = 0;
    while (same < text.length && same < before.length && text[same] === before[same]) same++;
    return this.strings.some((s) => text.includes(s, Math.max(0, same - s.length + 1)));
  }
}
