// Encodings of texts and pairs of texts: truncation, overlapping parts, special tokens, offsets.
// Mirrors python/edgewise/host/text/encoding.py; offsets are in UTF-16 units, as JavaScript's
// strings.

import { InputError } from "../../shared/errors.ts";
import { type Token, tokensOf, writingOf } from "./offsets.ts";
import type { Tokenizer } from "./tokenizer.ts";

/** A token of an encoding. */
export interface EncodedToken extends Token {
  /** 0 for the first text, 1 for the second, undefined for tokens that the tokenizer added. */
  sequence: number | undefined;
  /** Value for `token_type_ids`. */
  type: number;
}

/** A text or a pair, or a part of it, as a model reads it. */
export type Encoding = EncodedToken[];

/** How texts are cut to a length, as in transformers. */
export type Truncation = "longest_first" | "only_first" | "only_second" | "do_not_truncate";

type Piece = [what: "A" | "B" | readonly number[], type: number];

/** Where special tokens are put around a text and around a pair. */
export interface Template {
  single: Piece[];
  pair: Piece[];
}

type Json = Record<string, unknown>;

const PLAIN: Template = {
  single: [["A", 0]],
  pair: [
    ["A", 0],
    ["B", 1],
  ],
};

/** The template of Llama's tokenizers: ids before and after a text; a second text follows. */
export function surrounding(first: readonly number[], last: readonly number[]): Template {
  const single: Piece[] = [
    [first, 0],
    ["A", 0],
    [last, 0],
  ];
  return { single, pair: [...single, ["B", 1]] };
}

/**
 * Reads the member `post_processor` of a tokenizer.json.
 * @throws Error if it is malformed, or several processors add tokens
 */
export function readTemplate(value: unknown): Template {
  const all = processors(value).map(templateOf);
  const adding = all.filter((t) => t !== PLAIN);
  if (adding.length > 1) throw new Error("several post-processors add tokens");
  return adding[0] ?? PLAIN;
}

function processors(value: unknown): Json[] {
  if (value === null || value === undefined) return [];
  const one = value as Json;
  return one.type === "Sequence" ? (one.processors as unknown[]).flatMap(processors) : [one];
}

function templateOf(one: Json): Template {
  const special = (name: string): number[] => [Number((one[name] as [string, number])[1])];
  if (one.type === "BertProcessing" || one.type === "RobertaProcessing") {
    const [first, last] = [special("cls"), special("sep")];
    const { single } = surrounding(first, last);
    const pair: Piece[] =
      one.type === "BertProcessing"
        ? [
            ["B", 1],
            [last, 1],
          ]
        : [
            [last, 0],
            ["B", 0],
            [last, 0],
          ];
    return { single, pair: [...single, ...pair] };
  }
  if (one.type !== "TemplateProcessing") return PLAIN;
  const tokens = Object.values((one.special_tokens ?? {}) as Record<string, Json>);
  const pieces = (list: unknown): Piece[] =>
    (list as Record<"Sequence" | "SpecialToken", { id: string; type_id?: number }>[]).map(
      ({ Sequence: text, SpecialToken: token }): Piece => {
        if (text) return [text.id === "B" ? "B" : "A", text.type_id ?? 0];
        const ids = tokens.find((t) => t.id === token.id)?.ids;
        if (!Array.isArray(ids)) throw new Error(`there are no ids of ${token.id}`);
        return [ids.map(Number), token.type_id ?? 0];
      },
    );
  return { single: pieces(one.single), pair: one.pair ? pieces(one.pair) : PLAIN.pair };
}

function assemble(
  { single, pair }: Template,
  first: readonly Token[],
  second: readonly Token[] | undefined,
  special: boolean,
  name: (id: number) => string,
): Encoding {
  return (second ? pair : single).flatMap(([what, type]): EncodedToken[] => {
    if (typeof what !== "string")
      return (special ? what : []).map((id) => ({
        ...{ id, text: name(id), start: 0, end: 0 },
        ...{ word: undefined, sequence: undefined, type },
      }));
    const tokens = what === "A" ? first : (second ?? []);
    return tokens.map((token) => ({ ...token, sequence: what === "A" ? 0 : 1, type }));
  });
}

/** Parts of at most `most` tokens, of which neighbors share `stride`. */
function partsOf(tokens: readonly Token[], most: number, stride: number): (readonly Token[])[] {
  if (tokens.length <= most) return [tokens];
  if (most <= 0) return [[]];
  if (!(stride >= 0 && stride < most))
    throw new InputError(
      `it is ${stride}, but a part has ${most} tokens`,
      "stride",
      "Lower the stride.",
    );
  const parts: (readonly Token[])[] = [];
  for (let start = 0; ; start += most - stride) {
    parts.push(tokens.slice(start, start + most));
    if (start + most >= tokens.length) return parts;
  }
}

/** Lengths to keep of two texts, as the `tokenizers` library chooses them. */
function longestFirst(one: number, two: number, room: number): [number, number] {
  let short = Math.min(one, two);
  let long = short > room ? short : Math.max(short, room - short);
  if (short + long > room) {
    short = Math.floor(room / 2);
    long = short + (room % 2);
  }
  return one <= two ? [short, long] : [long, short];
}

function left(length: number, remove: number): number {
  if (length > remove) return length - remove;
  throw new InputError(
    `${remove} tokens have to be cut from a text of ${length}`,
    "truncation",
    "Shorten the other text, or use a model that takes longer ones.",
  );
}

/** Options of `encodings`. */
export interface EncodeOptions {
  truncation?: Truncation;
  /** Of an encoding in tokens, with special tokens. Default: no limit. */
  max_length?: number;
  /** Tokens that neighboring parts share. Default: 0. */
  stride?: number;
  /** Default: true. */
  add_special_tokens?: boolean;
}

/**
 * The encodings of one or two tokenized texts, cut to a length.
 * @param name the token of an id
 * @returns what truncation keeps, followed by the parts that it cuts off; only the former for
 *   `longest_first` with a pair, which has no parts
 * @throws InputError if the text that may be cut is shorter than what has to go
 */
export function truncated(
  template: Template,
  first: readonly Token[],
  second: readonly Token[] | undefined,
  options: EncodeOptions,
  name: (id: number) => string,
): Encoding[] {
  const { truncation = "longest_first", max_length: most, stride = 0 } = options;
  const special = options.add_special_tokens ?? true;
  let firsts = [first];
  let seconds: (readonly Token[] | undefined)[] = [second];
  const length = first.length + (second?.length ?? 0);
  if (most !== undefined && truncation !== "do_not_truncate") {
    const around = assemble(template, [], second && [], special, name).length;
    const room = Math.max(most - around, 0);
    if (length > room) {
      if (!second) firsts = partsOf(first, room, stride);
      else if (truncation === "longest_first") {
        const keep = longestFirst(first.length, second.length, room);
        [firsts, seconds] = [[first.slice(0, keep[0])], [second.slice(0, keep[1])]];
      } else if (truncation === "only_first")
        firsts = partsOf(first, left(first.length, length - room), stride);
      else seconds = partsOf(second, left(second.length, length - room), stride);
    }
  }
  return seconds.flatMap((b) => firsts.map((a) => assemble(template, a, b, special, name)));
}

/**
 * The encodings of a text or a pair of texts, cut to a length.
 * @returns one encoding, and those of the parts of the text that it lacks
 * @throws TokenizerError, InputError
 */
export function encodingsOf(
  tokenizer: Tokenizer,
  text: string,
  pair: string | undefined,
  options: EncodeOptions,
): Encoding[] {
  return tokenizer.use(text.length + (pair?.length ?? 0), (backend, json, around) => {
    const writing = writingOf(json);
    const template = around
      ? surrounding(around.prefix, around.suffix)
      : readTemplate(json.post_processor);
    const second = pair === undefined ? undefined : tokensOf(backend, writing, pair);
    const name = (id: number): string => backend.id_to_token(id) ?? "";
    return truncated(template, tokensOf(backend, writing, text), second, options, name);
  });
}

/** Whether a tokenizer marks tokens that continue a word, as by "##". */
export function marksContinuations(tokenizer: Tokenizer): boolean {
  return tokenizer.use(0, (_, json) => writingOf(json).prefix !== "");
}
