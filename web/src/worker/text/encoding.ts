// Encodings of texts and pairs of texts by a tokenizer. Offsets are in UTF-16 units, as
// JavaScript's strings.

import {
  assemble,
  type EncodeOptions,
  type Encoding,
  read_template,
  surrounding,
  type Template,
  truncated,
} from "../../logic/text/encoding.ts";
import { type Token, tokensOf, writingOf } from "./offsets.ts";
import type { Tokenizer } from "./tokenizer.ts";

/** What is known of a text or a pair, without special tokens. */
interface Read {
  template: Template;
  first: Token[];
  second: Token[] | null;
  /** The token of an id. */
  name(id: number): string;
}

/** @throws TokenizerError, InputError */
function reading<T>(
  tokenizer: Tokenizer,
  text: string,
  pair: string | null,
  work: (read: Read) => T,
): T {
  return tokenizer.use(text.length + (pair?.length ?? 0), (backend, json, around) => {
    const writing = writingOf(json);
    return work({
      template: around
        ? surrounding(around.prefix, around.suffix)
        : read_template(json.post_processor),
      first: tokensOf(backend, writing, text),
      second: pair === null ? null : tokensOf(backend, writing, pair),
      name: (id) => backend.id_to_token(id) ?? "",
    });
  });
}

/**
 * The encodings of a text or a pair of texts, cut to a length.
 * @param options without `max_length`: no limit
 * @returns one encoding, and those of the parts of the text that it lacks
 * @throws TokenizerError, InputError
 */
export function encodingsOf(
  tokenizer: Tokenizer,
  text: string,
  pair: string | null,
  options: Partial<EncodeOptions>,
): Encoding[] {
  const { truncation = "longest_first", max_length = null, stride = 0 } = options;
  const { add_special_tokens = true } = options;
  const side = tokenizer.config.truncation_side === "left" ? "left" : "right";
  return reading(tokenizer, text, pair, ({ template, first, second }) =>
    truncated(template, first, second, truncation, max_length, stride, side, add_special_tokens),
  );
}

/**
 * The tokens of a text, with their places; none are added.
 * @throws TokenizerError
 */
export function placesOf(tokenizer: Tokenizer, text: string): Token[] {
  return reading(tokenizer, text, null, ({ first }) => first);
}

/**
 * The tokens of a text or a pair of texts.
 * @throws TokenizerError
 */
export function tokenTexts(
  tokenizer: Tokenizer,
  text: string,
  pair: string | null,
  add_special_tokens: boolean,
): string[] {
  return reading(tokenizer, text, pair, ({ template, first, second, name }) => {
    const { ids, sequences } = assemble(template, first, second, add_special_tokens);
    const rest = [[...first], [...(second ?? [])]];
    return ids.map((id, i) => rest[sequences[i] ?? 2]?.shift()?.text ?? name(id));
  });
}

/** Whether a tokenizer marks tokens that continue a word, as by "##". */
export function marksContinuations(tokenizer: Tokenizer): boolean {
  return tokenizer.use(0, (_, json) => writingOf(json).prefix !== "");
}
