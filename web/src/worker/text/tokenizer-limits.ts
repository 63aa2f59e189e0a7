// Limits on the contents of tokenizer.json. Equal to python/edgewise/compiler/tokenizers/limits.py.

import { COMPONENT_LISTS, INSERTED_TEXTS, TEXT_LIMITS } from "../../gen/text_limits.ts";
import { check_regex, may_not_end, RegexError } from "../../logic/text/regex_limits.ts";

/** A limit is exceeded. */
export class LimitError extends Error {}

/** The maximum factor by which a text grows. */
export interface Growth {
  encode: number;
  decode: number;
}

type JsonObject = Record<string, unknown>;

const isObject = (x: unknown): x is JsonObject =>
  typeof x === "object" && x !== null && !Array.isArray(x);
/** Length in Unicode code points, as Python counts. */
const lengthOf = (text: string): number => {
  let n = 0;
  for (const _ of text) n++;
  return n;
};

/**
 * Checks the contents of a tokenizer.json. Values of a wrong type are left to the tokenizer
 * library.
 * @throws LimitError if a limit is exceeded
 */
export function checkTokenizer(value: JsonObject): Growth {
  checkDepth(value);
  const growth: Growth = { encode: 1, decode: 1 };
  let count = 0;
  for (const part of ["normalizer", "pre_tokenizer", "post_processor", "decoder"]) {
    const side = part === "decoder" ? "decode" : "encode";
    for (const component of components(value[part])) {
      if (++count > TEXT_LIMITS.components)
        throw new LimitError(
          `it has more than ${TEXT_LIMITS.components} normalizers, pre-tokenizers, ` +
            "post-processors and decoders",
        );
      growth[side] *= checkComponent(component, part);
      if (growth[side] > TEXT_LIMITS.growth)
        throw new LimitError(
          `its ${part} makes a text more than ${TEXT_LIMITS.growth} times longer`,
        );
    }
  }
  checkAdded(value.added_tokens);
  checkModel(value.model);
  return growth;
}

/** Whether a tokenizer that `checkTokenizer` accepts may need exponential time for a text. */
export function mayTakeForever(value: JsonObject): boolean {
  for (const part of ["normalizer", "pre_tokenizer", "decoder"])
    for (const { pattern } of components(value[part]))
      if (
        isObject(pattern) &&
        typeof pattern.Regex === "string" &&
        may_not_end(pattern.Regex, TEXT_LIMITS.regex_depth)
      )
        return true;
  return false;
}

function checkDepth(value: JsonObject): void {
  let level: unknown[] = [value];
  for (let depth = 0; depth < TEXT_LIMITS.depth; depth++) {
    const next: unknown[] = [];
    for (const v of level)
      for (const x of Object.values(v as object))
        if (typeof x === "object" && x !== null) next.push(x);
    if (!next.length) return;
    level = next;
  }
  throw new LimitError(`its objects are nested more than ${TEXT_LIMITS.depth} deep`);
}

/** The components of a part, with those of sequences flattened, in order of execution. */
function* components(value: unknown): Generator<JsonObject> {
  if (!isObject(value)) return;
  const lists = COMPONENT_LISTS.map((name) => value[name]).filter(Array.isArray);
  if (!lists.length) yield value;
  for (const list of lists) for (const component of list) yield* components(component);
}

/** Checks a component and returns the maximum factor by which it grows a text. */
function checkComponent(component: JsonObject, part: string): number {
  const kind = component.type;
  const { pattern } = component;
  let narrow = 0; // minimum number of characters of a match
  if (isObject(pattern)) {
    if (typeof pattern.Regex === "string") narrow = regexWidth(pattern.Regex);
    else if (typeof pattern.String === "string") narrow = lengthOf(pattern.String);
  }
  let longest = 0;
  for (const name of INSERTED_TEXTS) {
    const text = component[name];
    if (typeof text !== "string") continue;
    const length = lengthOf(text);
    if (length > TEXT_LIMITS.content_chars)
      throw new LimitError(`'${name}' of a ${String(kind)} has ${length} characters`);
    longest = Math.max(longest, length);
  }
  if (kind === "Replace") return narrow ? Math.max(1, longest / narrow) : 1 + longest;
  if (kind === "Prepend") return 1 + longest / 64; // once, at the beginning of the text
  if (kind === "Precompiled" && part === "normalizer")
    return charsmapGrowth(component.precompiled_charsmap);
  for (const name of ["single", "pair"]) {
    const pieces = component[name];
    if (
      kind === "TemplateProcessing" &&
      Array.isArray(pieces) &&
      pieces.length > TEXT_LIMITS.components
    )
      throw new LimitError(`'${name}' of its TemplateProcessing has ${pieces.length} pieces`);
  }
  return 1;
}

/**
 * The factor by which sentencepiece's normalization grows a text: the length of its longest
 * replacement. Replacements are NUL-terminated.
 */
function charsmapGrowth(data: unknown): number {
  let raw: string;
  try {
    raw =
      typeof data === "string"
        ? atob(data)
        : Array.isArray(data)
          ? data.map((b) => String.fromCharCode(Number(b))).join("")
          : "";
  } catch {
    return 1; // the tokenizer library reports the problem
  }
  if (raw.length < 4) return 1;
  const trie =
    (raw.charCodeAt(0) |
      (raw.charCodeAt(1) << 8) |
      (raw.charCodeAt(2) << 16) |
      (raw.charCodeAt(3) << 24)) >>>
    0;
  let longest = 0;
  for (const text of raw.slice(4 + trie).split("\0")) longest = Math.max(longest, text.length);
  if (longest > TEXT_LIMITS.content_chars)
    throw new LimitError(`a replacement of its precompiled_charsmap has ${longest} bytes`);
  return longest < 64 ? 1 + longest / 64 : longest; // long replacements are rare
}

function checkAdded(added: unknown): void {
  if (!Array.isArray(added)) return;
  if (added.length > TEXT_LIMITS.added_tokens)
    throw new LimitError(`it has ${added.length} added tokens`);
  for (const token of added as unknown[]) {
    const content = isObject(token) ? token.content : undefined;
    if (typeof content === "string" && lengthOf(content) > TEXT_LIMITS.added_token_chars)
      throw new LimitError(`an added token has ${lengthOf(content)} characters`);
  }
}

function checkModel(model: unknown): void {
  if (!isObject(model)) return;
  for (const name of ["unk_token", "continuing_subword_prefix", "end_of_word_suffix"]) {
    const text = model[name];
    if (typeof text === "string" && lengthOf(text) > TEXT_LIMITS.content_chars)
      throw new LimitError(`'${name}' of its model has ${lengthOf(text)} characters`);
  }
  const most = model.max_input_chars_per_word;
  if (typeof most === "number" && most > TEXT_LIMITS.word_chars)
    throw new LimitError(`max_input_chars_per_word is ${most}`);
  const { vocab } = model;
  const tokens: unknown[] = isObject(vocab)
    ? Object.keys(vocab)
    : Array.isArray(vocab)
      ? vocab.map((entry: unknown) => (Array.isArray(entry) ? entry[0] : undefined))
      : [];
  for (const token of tokens)
    if (
      typeof token === "string" &&
      token.length > TEXT_LIMITS.token_chars &&
      lengthOf(token) > TEXT_LIMITS.token_chars
    )
      throw new LimitError(`a token of its vocabulary has ${lengthOf(token)} characters`);
}

function regexWidth(pattern: string): number {
  try {
    return check_regex(
      pattern,
      TEXT_LIMITS.regex_chars,
      TEXT_LIMITS.regex_depth,
      TEXT_LIMITS.regex_states,
    );
  } catch (e) {
    if (!(e instanceof RegexError)) throw e;
    throw new LimitError(
      "its regular expression " +
        `'${pattern.length <= 80 ? pattern : `${pattern.slice(0, 77)}...`}' ${e.message}`,
    );
  }
}
