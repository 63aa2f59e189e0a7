// Ends a sequence at a string.

import { InputError } from "../../shared/errors.ts";
import type { StopTokenizer } from "./types.ts";

export const listed = <T>(value: T | T[] | undefined): T[] =>
  value === undefined ? [] : Array.isArray(value) ? value : [value];

/**
 * Has the last token completed one of the strings? One may begin in any token, the prompt's
 * included, and has to end in the last one.
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
    // A token stands for at least a byte, and one more keeps a decoder's treatment of the first
    // token out of the string.
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
