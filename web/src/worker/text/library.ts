// The library's tokenizer of a tokenizer.json. @huggingface/tokenizers lacks some components of the
// `tokenizers` library, and takes some members otherwise: files are rewritten with what it has.

import { Tokenizer as Backend } from "@huggingface/tokenizers";

type Json = Record<string, unknown>;

const isObject = (value: unknown): value is Json =>
  typeof value === "object" && value !== null && !Array.isArray(value);

const sequence = (lists: string, parts: Json[]): Json => ({ type: "Sequence", [lists]: parts });
const replace = (Regex: string, content: string): Json => ({
  type: "Replace",
  pattern: { Regex },
  content,
});
const split = (Regex: string, behavior: string, invert = false): Json => ({
  type: "Split",
  pattern: { Regex },
  behavior,
  invert,
});
const escaped = (text: string): string => text.replace(/[$^\\.*+?()[\]{}|/]/g, "\\$&");

/** What of Unicode sentencepiece's rules for translation remove, and replace by a space. */
const NMT_REMOVED = "[\\x01-\\x08\\x0B\\x0E-\\x1F\\x7F\\x8F\\x9F]";
const NMT_SPACES = "[\\t\\n\\f\\r\\u1680\\u200B-\\u200F\\u2028\\u2029\\u2581\\uFEFF\\uFFFD]";

/** What `\w` of Unicode is. */
const WORD = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\p{Join_Control}";
/** Unicode's punctuation, and that of ASCII. */
const PUNCTUATION = "[\\p{P}$+<=>\\^`|~]";

/** Which parts of a text are words, for the behaviors of Split that the library does not have. */
const MERGED: Record<string, (match: string) => string> = {
  MergedWithPrevious: (match) => `(?:(?!${match})[\\s\\S])*${match}|(?:(?!${match})[\\s\\S])+`,
  MergedWithNext: (match) => `${match}(?:(?!${match})[\\s\\S])*|(?:(?!${match})[\\s\\S])+`,
  Contiguous: (match) => `${match}+|(?:(?!${match})[\\s\\S])+`,
};

function splitOf(one: Json): Json {
  const { pattern, behavior, invert } = one;
  if (!isObject(pattern)) return one;
  const merged = MERGED[String(behavior)];
  if (merged && !invert) {
    const source = typeof pattern.String === "string" ? escaped(pattern.String) : pattern.Regex;
    return typeof source === "string" ? split(merged(`(?:${source})`), "Removed", true) : one;
  }
  // What it isolates are the matches and what is between them, in both cases.
  return behavior === "Isolated" ? { ...one, invert: false } : one;
}

function metaspaceOf(one: Json): Json {
  const { replacement, prepend_scheme, add_prefix_space } = one;
  const mark = typeof replacement === "string" ? replacement : "\u2581";
  const scheme = prepend_scheme ?? (add_prefix_space === false ? "never" : "always");
  const made = { ...one, prepend_scheme: scheme };
  if (one.split === false) return made;
  return sequence("pretokenizers", [
    made,
    splitOf({ pattern: { String: mark }, behavior: "MergedWithNext" }),
  ]);
}

const punctuationOf = ({ behavior = "Isolated" }: Json): Json =>
  splitOf({ type: "Split", pattern: { Regex: PUNCTUATION }, behavior, invert: false });
const words = (Regex: string): Json => split(Regex, "Removed", true);

const PRE_TOKENIZERS: Record<string, (one: Json) => Json> = {
  BertPreTokenizer: () => sequence("pretokenizers", [words("\\S+"), punctuationOf({})]),
  CharDelimiterSplit: ({ delimiter }) => split(escaped(String(delimiter)), "Removed"),
  Digits: ({ individual_digits }) => split(`\\p{N}${individual_digits ? "" : "+"}`, "Isolated"),
  Metaspace: metaspaceOf,
  Punctuation: punctuationOf,
  Split: splitOf,
  Whitespace: () => words(`[${WORD}]+|[^${WORD}\\s]+`),
  WhitespaceSplit: () => words("\\S+"),
};
/** Each letter alone: JavaScript has another small sigma at the end of a word. */
const lowered = (one: Json): Json => sequence("normalizers", [replace("Σ", "σ"), one]);
const NORMALIZERS: Record<string, (one: Json) => Json> = {
  BertNormalizer: (one) => (one.lowercase ? lowered(one) : one),
  Lowercase: lowered,
  Nmt: () => sequence("normalizers", [replace(NMT_REMOVED, ""), replace(NMT_SPACES, " ")]),
};

function rewritten(
  value: unknown,
  lists: string,
  by: Record<string, (one: Json) => Json>,
): unknown {
  if (!isObject(value)) return value ?? null;
  const parts = value[lists];
  if (Array.isArray(parts)) return { ...value, [lists]: parts.map((p) => rewritten(p, lists, by)) };
  return by[String(value.type)]?.(value) ?? value;
}

/** A prefix that no token has. */
const NO_PREFIX = "\0\uFFFF";

/** A model of whole words as WordPiece without a token that continues a word. */
function modelOf(model: unknown): unknown {
  if (!isObject(model) || model.type !== "WordLevel" || !isObject(model.vocab)) return model;
  let longest = 0;
  for (const token of Object.keys(model.vocab)) longest = Math.max(longest, token.length);
  return {
    ...model,
    type: "WordPiece",
    continuing_subword_prefix: NO_PREFIX,
    max_input_chars_per_word: longest,
  };
}

/**
 * The file as the library takes it.
 * @param json contents of a tokenizer.json
 */
export function forLibrary(json: Json): Json {
  return {
    ...json,
    added_tokens: json.added_tokens ?? [],
    normalizer: rewritten(json.normalizer, "normalizers", NORMALIZERS),
    pre_tokenizer: rewritten(json.pre_tokenizer, "pretokenizers", PRE_TOKENIZERS),
    post_processor: json.post_processor ?? null,
    decoder: json.decoder ?? null,
    model: modelOf(json.model),
  };
}

/** The parts of the library's tokenizer that are changed here; it declares some of them private. */
interface Parts {
  model: { tokens_to_ids: Map<string, number>; encode(words: string[]): string[] };
  decoder: Decoder | null;
}
interface Decoder {
  config: Json;
  decoders?: Decoder[];
  decode_chain(tokens: string[]): string[];
}

const byteToken = (byte: number): string =>
  `<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`;

/** Pieces that are not in the vocabulary become their bytes, if these are in it. */
function withBytes(model: Parts["model"]): void {
  const encode = model.encode.bind(model);
  const encoder = new TextEncoder();
  const known = (token: string): boolean => model.tokens_to_ids.has(token);
  model.encode = (words) =>
    encode(words).flatMap((piece) => {
      if (known(piece)) return [piece];
      const bytes = Array.from(encoder.encode(piece), byteToken);
      return bytes.every(known) ? bytes : [piece];
    });
}

/** The text of bytes; each is the replacement character if they are not UTF-8 as a whole. */
function textOf(bytes: readonly number[]): string {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(
      Uint8Array.from(bytes),
    );
  } catch {
    return "\uFFFD".repeat(bytes.length);
  }
}

/** Joins tokens of bytes as the `tokenizers` library does. */
function joinBytes(tokens: string[]): string[] {
  const joined: string[] = [];
  let bytes: number[] = [];
  const flush = (): void => {
    if (bytes.length) joined.push(textOf(bytes));
    bytes = [];
  };
  for (const token of tokens) {
    const byte = /^<0x([0-9A-Fa-f]{2})>$/.exec(token)?.[1];
    if (byte) bytes.push(Number.parseInt(byte, 16));
    else {
      flush();
      joined.push(token);
    }
  }
  flush();
  return joined;
}

/**
 * Makes a tokenizer.
 * @param json contents of tokenizer.json
 * @param config contents of tokenizer_config.json
 * @throws Error if the library cannot use it
 */
export function libraryOf(json: Json, config: Json): Backend {
  const backend = new Backend(forLibrary(json), config);
  const { model, decoder } = backend as unknown as Parts;
  const { type, byte_fallback } = json.model as Json;
  if (type === "Unigram" && byte_fallback) withBytes(model);
  for (const one of decoder ? [decoder, ...(decoder.decoders ?? [])] : [])
    if (one.config.type === "ByteFallback") one.decode_chain = joinBytes;
  backend.encode("a");
  return backend;
}

/** The number of tokens. The library's own count would go through all ids up to the largest. */
export const sizeOf = (backend: Backend): number =>
  (backend as unknown as Parts).model.tokens_to_ids.size;
