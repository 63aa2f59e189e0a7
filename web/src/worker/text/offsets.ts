// Where the tokens of a text are in it. @huggingface/tokenizers does not tell: what its normalizer
// and pre-tokenizer make of a text is aligned with the text, and the tokens with that.

import type { Tokenizer as Backend } from "@huggingface/tokenizers";
import type { Token as Place } from "../../logic/text/encoding.ts";

/** A token of a text, as it is written; its place is in units of UTF-16. */
export interface Token extends Place {
  text: string;
}

/** The parts of the library's tokenizer that are used here, some of which it declares private. */
interface Normalizer {
  (text: string): string;
  config?: Json;
  normalizers?: Normalizer[];
  pattern?: unknown;
}
interface Parts {
  normalizer: Normalizer | null;
  pre_tokenizer: ((text: string, options: { section_index: number }) => string[]) | null;
  model: { unk_token?: string };
  added_tokens_map: Map<string, unknown>;
  splitter_unnormalized: { split(text: string): string[] };
}

/** What of a tokenizer.json decides how tokens are written. */
export interface Writing {
  /** Tokens consist of bytes, each written as a character. */
  bytes: boolean;
  /** The offsets of such tokens exclude white space. */
  trims: boolean;
  /** White space between words is left out before tokens get a mark for it. */
  drops: boolean;
  /** Prefix of tokens that continue a word, such as "##". */
  prefix: string;
  /** Suffix of tokens that end a word, such as "</w>". */
  suffix: string;
  /** An unknown token stands for a whole word. */
  wholeWords: boolean;
}

type Json = Record<string, unknown>;

/** @param json a tokenizer.json */
export function writingOf(json: Json): Writing {
  const text = (name: string) => JSON.stringify(json[name] ?? null);
  const model = (json.model ?? {}) as Json;
  const named = (value: unknown) => (typeof value === "string" ? value : "");
  const kind = String(model.type ?? "");
  return {
    bytes: text("pre_tokenizer").includes('"type":"ByteLevel"'),
    trims: /"trim_offsets":true/.test(text("post_processor")),
    drops: /"type":"Whitespace/.test(text("pre_tokenizer")),
    prefix: named(model.continuing_subword_prefix),
    suffix: named(model.end_of_word_suffix),
    wholeWords: kind === "WordPiece" || kind === "WordLevel",
  };
}

const META = "\u2581"; // replaces spaces in tokens of SentencePiece

/** A text whose units have a source: [from[i], to[i]) in the original text. */
interface Mapped {
  text: string;
  from: number[];
  to: number[];
}

/** A text whose characters are their own source, which begins at `base`. */
function unchanged(text: string, base: number): Mapped {
  const made: Mapped = { text, from: [], to: [] };
  let at = base;
  for (const char of text) {
    for (let i = 0; i < char.length; i++) {
      made.from.push(at);
      made.to.push(at + char.length);
    }
    at += char.length;
  }
  return made;
}

/** The normalizers of a tokenizer, in order. */
function stepsOf(normalizer: Normalizer | null): Normalizer[] {
  if (!normalizer) return [];
  return normalizer.normalizers ? normalizer.normalizers.flatMap(stepsOf) : [normalizer];
}

/** Joins texts, each with the units [start, end) of the source that it was made of. */
function made(source: Mapped, parts: Iterable<[text: string, start: number, end: number]>): Mapped {
  const found: Mapped = { text: "", from: [], to: [] };
  const { from, to } = source;
  for (const [text, start, end] of parts) {
    found.text += text;
    const begin = from[start] ?? to.at(-1) ?? 0;
    for (let i = 0; i < text.length; i++) {
      found.from.push(begin);
      found.to.push(end > start ? to[end - 1]! : begin);
    }
  }
  return found;
}

/** A part of a text that became another one: its characters are, in order, those of the part. */
function* inOrder(part: string, start: number, text: string): Generator<[string, number, number]> {
  const chars = [...part];
  let at = start;
  let i = 0;
  for (const char of text) {
    yield [char, at, at + chars[i]!.length];
    if (i < chars.length - 1) at += chars[i++]!.length;
  }
}

/** A text after a replacement, which has the source of all that it replaces. */
function* replaced(text: string, pattern: RegExp, by: string): Generator<[string, number, number]> {
  let before = 0;
  for (const match of text.matchAll(pattern)) {
    yield* inOrder(text.slice(before, match.index), before, text.slice(before, match.index));
    before = match.index + match[0].length;
    yield [by, match.index, before];
  }
  yield* inOrder(text.slice(before), before, text.slice(before));
}

/** What a normalizer makes of a text, aligned with the text's source. */
function step(source: Mapped, normalize: Normalizer): Mapped {
  const { text, from, to } = source;
  const whole = normalize(text);
  if (whole === text) return source;
  const { pattern, config } = normalize;
  if (config?.type === "Replace" && pattern instanceof RegExp) {
    const found = made(source, replaced(text, pattern, String(config.content ?? "")));
    if (found.text === whole) return found;
  }
  if (config?.type === "Prepend") {
    const first = String.fromCodePoint(text.codePointAt(0) ?? 32).length;
    return made(source, [[String(config.prepend), 0, first], ...inOrder(text, 0, text)]);
  }
  // A mark can combine with the letter before it.
  const parts = text.match(/\P{M}\p{M}*|\p{M}+/gsu) ?? [];
  const own = parts.map((part) => normalize(part));
  if (own.join("") === whole) {
    let at = 0;
    const all = parts.flatMap((part, i) => {
      const start = at;
      at += part.length;
      return [...inOrder(part, start, own[i]!)];
    });
    return made(source, all);
  }
  const kept = text.indexOf(whole);
  if (kept >= 0) {
    const end = kept + whole.length;
    return { text: whole, from: from.slice(kept, end), to: to.slice(kept, end) };
  }
  // What is equal at both ends; what is between has the source of what it replaces.
  let first = 0;
  while (first < Math.min(text.length, whole.length) && text[first] === whole[first]) first++;
  let last = 0;
  const most = Math.min(text.length, whole.length) - first;
  while (last < most && text.at(-1 - last) === whole.at(-1 - last)) last++;
  const between = text.slice(first, text.length - last);
  const inserted = whole.slice(first, whole.length - last);
  return made(source, [
    ...inOrder(text.slice(0, first), 0, text.slice(0, first)),
    ...(between ? inOrder(between, first, inserted) : [[inserted, first, first] as const]),
    ...inOrder(text.slice(text.length - last), text.length - last, text.slice(text.length - last)),
  ] as [string, number, number][]);
}

/** GPT-2's characters for bytes: printable ones stand for themselves, others follow 255. */
const BYTE_CHARS: readonly string[] = (() => {
  const printable = (b: number) => (b > 32 && b < 127) || (b > 160 && b !== 173);
  let next = 256;
  return Array.from({ length: 256 }, (_, b) => String.fromCharCode(printable(b) ? b : next++));
})();
const SPACE = BYTE_CHARS[32]!;

/** A text with a character for each of its bytes. */
function inBytes({ text, from, to }: Mapped): Mapped {
  const made: Mapped = { text: "", from: [], to: [] };
  const encoder = new TextEncoder();
  let i = 0;
  for (const char of text) {
    for (const byte of encoder.encode(char)) {
      made.text += BYTE_CHARS[byte]!;
      made.from.push(from[i]!);
      made.to.push(to[i + char.length - 1]!);
    }
    i += char.length;
  }
  return made;
}

/** A text in words, as the model's pre-tokenizer divides it. */
function inWords(source: Mapped, words: readonly string[], dropped: boolean): [Mapped, number[]] {
  const made: Mapped = { text: words.join(""), from: [], to: [] };
  const word: number[] = [];
  const missing = new Set<string>(); // from p on, which only grows
  let p = 0;
  words.forEach((one, index) => {
    for (const c of one.split("")) {
      const same = (q: number) =>
        source.text[q] === c || (c === META && !dropped && source.text[q] === " ");
      // A space that was inserted has the source of what follows.
      const inserted = (c === META || c === SPACE) && !same(p);
      if (inserted && dropped) while (/\s/.test(source.text[p] ?? "")) p++;
      if (!inserted && !missing.has(c)) {
        let q = p;
        while (q < source.text.length && !same(q)) q++;
        if (q < source.text.length) p = q;
        else missing.add(c);
      }
      const end = source.to.at(-1) ?? 0;
      made.from.push(source.from[p] ?? end);
      made.to.push(source.to[p] ?? end);
      word.push(index);
      if (!inserted) p++;
    }
  });
  return [made, word];
}

/**
 * The tokens of a text, without special tokens around it.
 * @param backend the library's tokenizer
 * @param writing of its file
 */
export function tokensOf(backend: Backend, writing: Writing, text: string): Token[] {
  const parts = backend as unknown as Parts;
  const { ids, tokens } = backend.encode(text, { add_special_tokens: false });
  const sections = parts.splitter_unnormalized.split(text);
  const steps = stepsOf(parts.normalizer);
  const found: Token[] = [];
  let base = 0;
  let word = 0;
  sections.forEach((section, index) => {
    const at = found.length;
    const add = (i: number, start: number, end: number, w: number | null): void => {
      found.push({ id: ids[i]!, text: tokens[i]!, start, end, word: w });
    };
    if (parts.added_tokens_map.has(section)) {
      if (tokens[at] === section) add(at, base, base + section.length, word++);
    } else if (section) {
      const next = sections[index + 1];
      const end = next === undefined ? -1 : tokens.indexOf(next, at);
      const mine = tokens.slice(at, end < 0 ? undefined : end);
      const source = steps.reduce(step, unchanged(section, base));
      const words = parts.pre_tokenizer?.(source.text, { section_index: index }) ?? [source.text];
      const [units, wordOf] = inWords(
        writing.bytes ? inBytes(source) : source,
        words,
        writing.drops,
      );
      locate(mine, units, wordOf, writing, parts.model.unk_token).forEach(([start, stop, w], i) => {
        add(at + i, start, stop, w === undefined ? null : word + w);
      });
      word += (wordOf.at(-1) ?? -1) + 1;
    }
    base += section.length;
  });
  return found;
}

/** [start, end, word] of the tokens of a section. */
function locate(
  tokens: readonly string[],
  { text, from, to }: Mapped,
  wordOf: readonly number[],
  { bytes, trims, prefix, suffix, wholeWords }: Writing,
  unknown: string | undefined,
): [number, number, number | undefined][] {
  let p = 0;
  const wordEnd = (): number => {
    let q = p;
    while (q < text.length && wordOf[q] === wordOf[p]) q++;
    return q;
  };
  const surface = (token: string): string => {
    const plain =
      prefix && token.startsWith(prefix) && !text.startsWith(token, p)
        ? token.slice(prefix.length)
        : token;
    return suffix && plain.endsWith(suffix) ? plain.slice(0, -suffix.length) : plain;
  };
  let left = 0; // bytes that remain of a character whose bytes are tokens
  return tokens.map((token, i) => {
    const here = surface(token);
    let end = p;
    if (text.startsWith(here, p)) end = p + here.length;
    else if (token === unknown && tokens[i + 1] === unknown && !wholeWords)
      end = p + String.fromCodePoint(text.codePointAt(p) ?? 32).length;
    else if (token === unknown) {
      const next = tokens[i + 1] === undefined ? -1 : text.indexOf(surface(tokens[i + 1]!), p + 1);
      end = wholeWords || next < 0 || next > wordEnd() ? wordEnd() : next;
    } else if (/^<0x[0-9A-F]{2}>$/.test(token)) {
      const char = String.fromCodePoint(text.codePointAt(p) ?? 32);
      left ||= new TextEncoder().encode(char).length;
      if (--left) return [from[p] ?? 0, to[p + char.length - 1] ?? from[p] ?? 0, wordOf[p]];
      end = p + char.length;
    }
    let start = p;
    let stop = end;
    p = end;
    const w = wordOf[start];
    if (bytes && trims) {
      while (start < stop && text[start] === SPACE) start++;
      while (stop > start && text[stop - 1] === SPACE) stop--;
    }
    const last = to.at(-1) ?? 0;
    return [from[start] ?? last, stop > start ? to[stop - 1]! : (from[start] ?? last), w];
  });
}
