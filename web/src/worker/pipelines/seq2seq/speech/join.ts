// The text of one or several windows of a recording, with its chunks. Mirrors
// python/edgewise/logic/speech/join.py.

import { type Decode, wordsOf } from "./words.ts";

type Span = [start: number, end: number];

/** The tokens of a window. */
export interface Window {
  /** Of text and times. */
  tokens: number[];
  /** When each was spoken, in seconds from the window's start; null: not known. */
  token_times: number[] | null;
  /** Length, left and right overlap in seconds; null: the window stands alone. */
  stride: [length: number, left: number, right: number] | null;
  /** Name; null: not known. */
  language: string | null;
}

/** A part of a transcript. `timestamp` in seconds. */
export interface Chunk {
  language: string | null;
  timestamp: [number | null, number | null];
  text: string;
  words?: Chunk[];
}

/** How windows are joined. */
export interface JoinOptions {
  decode: Decode;
  /** Id of the first special token. */
  eos: number;
  /** Id of the token of 0.00 s; ids from it on are times. */
  begin: number;
  /** Whether chunks are words. */
  words: boolean;
  /** Whether times were asked for. */
  times: boolean;
  /** Seconds between two tokens of times. */
  precision?: number;
  /** Positions of a window. */
  segment_size?: number;
}

/** Joins the windows of a recording. */
export class Joiner {
  /** What is complete. */
  private readonly chunks: Chunk[] = [];
  private readonly precision: number;
  private language: string | null = null;
  private chunk: Chunk = this.newChunk();
  private offset = 0;
  private skip = false;
  /** Of windows that overlap. */
  private texts: number[][] = [];
  private spans: Span[][] = [];
  private tokens: number[] = [];
  private tokenSpans: Span[] = [];

  constructor(private readonly options: JoinOptions) {
    this.precision = options.precision ?? 0.02;
  }

  /** Adds the next window. */
  add(window: Window): void {
    const { eos, begin, words, segment_size: size = 1500 } = this.options;
    const { precision } = this;
    this.changeLanguage(window.language);
    const [last, first] = this.overlap(window);
    this.tokens = [];
    this.tokenSpans = [];
    let [highest, before, lead] = [0, 0, 0];
    const { tokens } = window;
    tokens.forEach((token, i) => {
      if (token < begin) {
        if (token < eos) this.addText(window, i, token);
        return;
      }
      const time = (token - begin) * precision;
      if (time < highest) {
        // the next segment of a long recording
        if (i >= 2 && !(tokens[i - 1]! >= begin && tokens[i - 2]! >= begin))
          lead += precision * size;
        else {
          highest = before;
          lead += before;
        }
      }
      [before, highest] = [highest, time];
      this.addTime(token, rounded((token - begin) * precision + this.offset + lead), last, first);
    });
    if (window.stride) this.offset += window.stride[0] - window.stride[2];
    if (this.tokens.length) {
      this.texts.push(this.tokens);
      if (words) this.spans.push(this.tokenSpans);
    } else if (!this.texts.some((text) => text.length)) {
      this.chunk = this.newChunk();
      [this.texts, this.spans] = [[], []];
    }
  }

  /** The text and its chunks; with `words` those of words. */
  end(): [string, Chunk[]] {
    if (this.texts.length) this.finish();
    const text = this.chunks.map((chunk) => chunk.text).join("");
    return [text, this.options.words ? this.chunks.flatMap((c) => c.words!) : this.chunks];
  }

  private newChunk(): Chunk {
    return { language: this.language, timestamp: [null, null], text: "" };
  }

  private changeLanguage(language: string | null): void {
    if (language === null) return;
    const changed = this.language && language !== this.language;
    if (changed && !this.options.times && this.texts.length) {
      this.finish();
      this.chunk = this.newChunk();
    }
    this.language = this.chunk.language = language;
  }

  /** The first time token in the right overlap, and the end of the left one. */
  private overlap(window: Window): [number | undefined, number] {
    const { begin } = this.options;
    let last: number | undefined;
    let first = begin;
    if (!window.stride) return [last, first];
    const [length, left, right] = window.stride;
    this.offset -= left;
    if (left) first = left / this.precision + begin;
    if (right)
      for (const token of [...window.tokens].reverse()) {
        if (token < begin) continue;
        // The last one is always skipped.
        if (last !== undefined && (token - begin) * this.precision < length - right) break;
        last = token;
      }
    return [last, first];
  }

  private addText({ token_times: times }: Window, i: number, token: number): void {
    this.tokens.push(token);
    if (!this.options.words || !times) return;
    const [start, end] = [i ? times[i - 1]! : 0, times[i]!];
    this.tokenSpans.push([rounded(start + this.offset), rounded(end + this.offset)]);
  }

  private addTime(token: number, at: number, last: number | undefined, first: number): void {
    const { timestamp } = this.chunk;
    if (last && token >= last)
      this.skip = true; // in the overlap: the next window decides, its pair included
    else if (this.skip || (this.texts.length && token < first)) this.skip = false;
    else if (timestamp[0] === null) timestamp[0] = at;
    else if (at !== timestamp[0]) {
      // a repeated start is no end
      timestamp[1] = at;
      this.texts.push(this.tokens);
      if (this.options.words) this.spans.push(this.tokenSpans);
      this.finish();
      [this.tokens, this.tokenSpans] = [[], []];
      this.chunk = this.newChunk();
    }
  }

  /** Completes the current chunk. */
  private finish(): void {
    const { decode, eos, words } = this.options;
    const [tokens, spans] = mergeSequences(this.texts, this.spans);
    const { chunk, language } = this;
    chunk.text = decode(tokens);
    if (words) {
      const [texts, indices] = wordsOf(tokens, decode, eos, language);
      chunk.words = texts.map((text, i) => {
        const at = indices[i]!;
        return { text, timestamp: [spans[at[0]!]![0], spans[at.at(-1)!]![1]], language };
      });
    }
    this.chunks.push(chunk);
    [this.texts, this.spans] = [[], []];
  }
}

/**
 * Joins sequences, the end of each of which is about the beginning of the next.
 * @param spans of each id; an id only matches one of the next sequence that is not earlier
 */
export function mergeSequences(
  sequences: readonly number[][],
  spans: readonly Span[][] = [],
): [number[], Span[]] {
  let left = sequences[0] ?? [];
  let leftSpans = spans[0] ?? [];
  const total: number[] = [];
  const totalSpans: Span[] = [];
  sequences.slice(1).forEach((right, n) => {
    const here = spans[n + 1] ?? [];
    let best = 0;
    let found = [left.length, left.length, 0, 0] as [number, number, number, number];
    for (let i = 1; i < left.length + right.length; i++) {
      const [a, b] = [Math.max(0, left.length - i), left.length + Math.min(0, right.length - i)];
      const [c, d] = [Math.max(0, i - left.length), Math.min(right.length, i)];
      let matches = 0;
      for (let j = 0; j < b - a; j++)
        matches += +(
          left[a + j] === right[c + j] &&
          (!spans.length || notAfter(leftSpans[a + j]!, here[c + j]!))
        );
      const score = matches / i + i / 10000; // prefers long matches
      if (matches > 1 && score > best) [best, found] = [score, [a, b, c, d]];
    }
    // The left one is trusted for the left half of what both have, the right one for the right.
    const [a, b, c, d] = found;
    const [middle, start] = [(a + b) >> 1, (c + d) >> 1];
    total.push(...left.slice(0, middle));
    totalSpans.push(...leftSpans.slice(0, middle));
    [left, leftSpans] = [right.slice(start), here.slice(start)];
  });
  return [
    [...total, ...left],
    [...totalSpans, ...leftSpans],
  ];
}

function notAfter(a: Span, b: Span): boolean {
  return a[0] < b[0] || (a[0] === b[0] && a[1] <= b[1]);
}

/** To two decimals, halves to even as in Python. */
function rounded(x: number): number {
  // the only halves are odd multiples of 1/8; toFixed rounds what a number exactly is
  if ((x * 8) % 2 !== 1) return Number(x.toFixed(2));
  const low = Math.floor(x * 100);
  return (low + (low % 2)) / 100;
}
