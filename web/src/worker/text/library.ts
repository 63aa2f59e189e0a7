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
  model: Model;
  decoder: Decoder | null;
}
interface Model {
  tokens_to_ids: Map<string, number>;
  encode(words: string[]): string[];
}
interface WordPiece extends Model {
  unk_token: string;
  max_input_chars_per_word: number;
  config: { continuing_subword_prefix?: string };
}
interface Unigram extends Model {
  vocab: string[];
  scores: number[];
  unk_score: number;
  fuse_unk: boolean;
  trie: { root: TrieNode };
}
interface TrieNode {
  children: Map<string, TrieNode>;
  /** Of the token that ends here; set here. */
  id?: number;
}
interface Decoder {
  config: Json;
  decoders?: Decoder[];
  decode_chain(tokens: string[]): string[];
}

/** WordPiece in a time that grows with a word's length; the library's grows with its cube. */
function encodeByLongest(model: WordPiece): void {
  const { tokens_to_ids, unk_token, max_input_chars_per_word: most } = model;
  const prefix = model.config.continuing_subword_prefix ?? "##";
  let longest = 0;
  for (const token of tokens_to_ids.keys()) longest = Math.max(longest, token.length);
  const piecesOf = (word: string): string[] => {
    const chars = [...word];
    if (chars.length > most) return [unk_token];
    const found: string[] = [];
    for (let start = 0; start < chars.length; ) {
      let end = Math.min(chars.length, start + longest);
      let piece = (start ? prefix : "") + chars.slice(start, end).join("");
      while (end > start && !tokens_to_ids.has(piece))
        piece = piece.slice(0, -chars[--end]!.length);
      if (end === start) return [unk_token];
      found.push(piece);
      start = end;
    }
    return found;
  };
  model.encode = (words) => words.flatMap(piecesOf);
}

/** Unigram in a time that grows with a word's length; the library copies a lattice's nodes. */
function encodeByViterbi(model: Unigram): void {
  const { scores, unk_score, trie } = model;
  model.vocab.forEach((token, id) => {
    let node: TrieNode | undefined = trie.root;
    for (const char of token) node = node?.children.get(char);
    if (node) node.id = id;
  });
  const piecesOf = (word: string): string[] => {
    const chars = [...word];
    const best = new Float64Array(chars.length + 1).fill(Number.NEGATIVE_INFINITY);
    const from = new Int32Array(chars.length + 1);
    const known = new Uint8Array(chars.length + 1);
    best[0] = 0;
    for (let start = 0; start < chars.length; start++) {
      const take = (end: number, score: number, isToken: number): void => {
        if (!(best[start]! + score > best[end]!)) return;
        best[end] = best[start]! + score;
        [from[end], known[end]] = [start, isToken];
      };
      let node: TrieNode | undefined = trie.root;
      let hasSingle = false;
      for (let end = start + 1; end <= chars.length; end++) {
        node = node.children.get(chars[end - 1]!);
        if (!node) break;
        if (node.id === undefined) continue;
        take(end, scores[node.id]!, 1);
        if (end === start + 1) hasSingle = true;
      }
      if (!hasSingle) take(start + 1, unk_score, 0);
    }
    const found: string[] = [];
    for (let end = chars.length, last = -1; end > 0; last = end, end = from[end]!) {
      const piece = chars.slice(from[end], end).join("");
      // What is unknown becomes one token.
      if (last > 0 && !known[end] && !known[last]) found.push(piece + found.pop());
      else found.push(piece);
    }
    return found.reverse();
  };
  model.fuse_unk = false; // it joins those of different words
  model.encode = (words) => words.flatMap(piecesOf);
}

const byteToken = (byte: number): string =>
  `<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`;

/** Pieces that are not in the vocabulary become their bytes, if these are in it. */
function withBytes(model: Model): void {
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
  if ("trie" in model) {
    encodeByViterbi(model as Unigram);
    if ((json.model as Json).byte_fallback) withBytes(model);
  } else if ("max_input_chars_per_word" in model) encodeByLongest(model as WordPiece);
  for (const one of decoder ? [decoder, ...(decoder.decoders ?? [])] : [])
    if (one.config.type === "ByteFallback") one.decode_chain = joinBytes;
  backend.encode("a");
  return backend;
}

/** The number of tokens. The library's own count would go through all ids up to the largest. */
export const sizeOf = (backend: Backend): number =>
  (backend as unknown as Parts).model.tokens_to_ids.size;
