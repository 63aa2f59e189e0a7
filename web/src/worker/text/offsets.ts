// Where the tokens of a text are in it. @huggingface/tokenizers does not tell: what its normalizer
// and pre-tokenizer make of a text is aligned with the text, and the tokens with that.

import type { Tokenizer as Backend } from "@huggingface/tokenizers";

/** A token of a text: its id, the units [start, end) of the text, and the index of its word. */
export interface Token {
  id: number;
  text: string;
  start: number;
  end: number;
  word: number | undefined;
}

/** The parts of the library's tokenizer that are used here, some of which it declares private. */
interface Parts {
  normalizer: ((text: string) => string) | null;
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

/** Aligns a normalized text with its source. */
function normalized(text: string, base: number, normalize: (text: string) => string): Mapped {
  const whole = normalize(text);
  const from: number[] = [];
  const to: number[] = [];
  let at = base;
  const take = (until: number, start: number, end: number): void => {
    while (from.length < until) {
      from.push(start);
      to.push(end);
    }
  };
  // A mark can combine with the letter before it.
  for (const part of text.match(/\P{M}\p{M}*|\p{M}+/gsu) ?? []) {
    const end = at + part.length;
    const own = normalize(part);
    // A normalizer may put META before each text: here only before the whole.
    const short = own.replace(META, "");
    const p = from.length;
    const forms = [...(p ? [short, own] : [own, short]), own.trim()].filter(Boolean);
    // What was inserted before it, such as spaces around ideographs, has no source.
    const found = [0, 1, 2].flatMap((skip) =>
      forms.flatMap((form) => (whole.startsWith(form, p + skip) ? [{ form, skip }] : [])),
    )[0];
    if (found) {
      take(p + found.skip, at, at);
      take(p + found.skip + found.form.length, at, end);
    } else if (forms.length && part.trim())
      take(Math.min(whole.length, p + forms[0]!.length), at, end);
    at = end;
  }
  take(whole.length, at, at);
  return { text: whole, from: from.slice(0, whole.length), to: to.slice(0, whole.length) };
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
function inWords(source: Mapped, words: readonly string[]): [Mapped, number[]] {
  const made: Mapped = { text: words.join(""), from: [], to: [] };
  const word: number[] = [];
  let p = 0;
  words.forEach((one, index) => {
    for (const c of one.split("")) {
      const same = (q: number) => source.text[q] === c || (c === META && source.text[q] === " ");
      // A space that was inserted has the source of what follows.
      const inserted = (c === META || c === SPACE) && !same(p);
      if (!inserted) {
        let q = p;
        while (q < source.text.length && !same(q)) q++;
        if (q < source.text.length) p = q;
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

/** Divides words before each META, as SentencePiece does. */
function divided(words: readonly string[]): string[] {
  return words.flatMap((w) => (w.includes(META) ? w.split(/(?=\u2581)/) : [w]));
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
  const found: Token[] = [];
  let base = 0;
  let word = 0;
  sections.forEach((section, index) => {
    const at = found.length;
    const add = (i: number, start: number, end: number, w: number | undefined): void => {
      found.push({ id: ids[i]!, text: tokens[i]!, start, end, word: w });
    };
    if (parts.added_tokens_map.has(section)) {
      if (tokens[at] === section) add(at, base, base + section.length, word++);
    } else if (section) {
      const next = sections[index + 1];
      const end = next === undefined ? -1 : tokens.indexOf(next, at);
      const mine = tokens.slice(at, end < 0 ? undefined : end);
      const source = normalized(section, base, (t) => parts.normalizer?.(t) ?? t);
      const words = parts.pre_tokenizer?.(source.text, { section_index: index }) ?? [source.text];
      const [units, wordOf] = inWords(writing.bytes ? inBytes(source) : source, divided(words));
      locate(mine, units, wordOf, writing, parts.model.unk_token).forEach(([start, stop, w], i) => {
        add(at + i, start, stop, w === undefined ? undefined : word + w);
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
    const last = from.at(-1) ?? 0;
    return [from[start] ?? last, stop > start ? to[stop - 1]! : (from[start] ?? last), w];
  });
}
