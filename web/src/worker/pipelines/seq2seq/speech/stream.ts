// Speech recognition of sound that arrives in pieces: text that is certain, and text that may still
// change. Mirrors python/edgewise/pipelines/speech/stream.py.

import type { Ending } from "../../host.ts";
import type { TaskStream } from "../../runner.ts";
import { Agreement, type Word } from "./agreement.ts";

const RATE = 16000; // Hz
const PROMPT = 200; // characters of committed text that precede what is transcribed
const LONG = 15; // seconds: then sound is forgotten up to the end of a committed sentence,
const LONGER = 22; // or, if there is none, of a committed word,
const LONGEST = 28; // or of what is not committed. A window has 30 s.
const SHORT = 0.3; // what is shorter has no words
const SENTENCE_END = /[.?!。？！]\s*$/;

/** What is known after another transcript. */
export interface SpeechEvent {
  /** Text that is certain. All of it joined is the transcript. */
  committed: string;
  /** Text behind it that may change. */
  partial: string;
  /** Of what is committed, in seconds of the stream. */
  timestamp: [start: number, end: number] | null;
}

/** A word, with its times in seconds. */
export interface Spoken {
  text: string;
  timestamp: readonly [start: number, end: number | null];
}

/** Words of sound, with times in seconds from its beginning; `before` is the text before it. */
export type Transcribe = (
  samples: Float32Array<ArrayBuffer>,
  before: string,
  ending: Ending,
) => Promise<Spoken[]>;

/** Transcribes a stream again every `interval` seconds. */
export class SpeechStream implements TaskStream {
  readonly sampling_rate = RATE;
  private readonly step: number;
  private readonly agreement = new Agreement();
  /** The end of the text of sound that is forgotten. */
  private said = "";
  private heard = new Float32Array(0);
  /** Sample of the stream with which `heard` begins. */
  private first = 0;
  /** Samples since the last transcript was due. */
  private fresh = 0;
  private shown = "";

  constructor(
    private readonly transcribe: Transcribe,
    interval: number,
  ) {
    this.step = Math.max(1, Math.round(interval * RATE));
  }

  async feed(samples: Float32Array<ArrayBuffer>, ending: Ending): Promise<SpeechEvent[]> {
    const events: SpeechEvent[] = [];
    for (let at = 0; at < samples.length; ) {
      const piece = samples.subarray(at, at + this.step - this.fresh);
      at += piece.length;
      this.fresh += piece.length;
      const heard = new Float32Array(this.heard.length + piece.length);
      heard.set(this.heard);
      heard.set(piece, this.heard.length);
      this.heard = heard;
      if (this.fresh < this.step) continue;
      this.fresh = 0;
      events.push(...(await this.next(ending)));
    }
    return events;
  }

  async end(ending: Ending): Promise<SpeechEvent[]> {
    const committed = this.agreement.add(await this.words(ending));
    return this.event([...committed, ...this.agreement.end()]);
  }

  /** Transcribes what is heard, and forgets what is committed where it is long. */
  private async next(ending: Ending): Promise<SpeechEvent[]> {
    let committed = this.agreement.add(await this.words(ending));
    const seconds = this.heard.length / RATE;
    if (seconds > LONGEST && !this.agreement.committed.length) committed = this.agreement.end();
    if (seconds > LONG) this.shorten(seconds);
    return this.event(committed);
  }

  private async words(ending: Ending): Promise<Word[]> {
    const { heard } = this;
    if (heard.length < SHORT * RATE) return [];
    const found = await this.transcribe(heard.slice(), this.said, ending);
    const first = this.first / RATE;
    return found.map(({ text, timestamp: [start, end] }) => [
      first + start,
      first + (end ?? heard.length / RATE),
      text,
    ]);
  }

  /** Forgets sound up to the end of a committed sentence or word. */
  private shorten(seconds: number): void {
    const { committed } = this.agreement;
    const sentence = committed.findLast(([, , text]) => SENTENCE_END.test(text));
    const last = sentence ?? (seconds > LONGER ? committed.at(-1) : undefined);
    if (!last) {
      // Silence: nothing is committed, and its last second may be the beginning of a word.
      if (seconds > LONGEST) this.drop(this.heard.length - RATE);
      return;
    }
    const words = committed.filter(([, end]) => end <= last[1]).map(([, , text]) => text);
    const text = (this.said + words.join("")).slice(-PROMPT);
    this.said = text.length === PROMPT ? text.slice(Math.max(text.indexOf(" "), 0)) : text;
    this.agreement.forget(last[1]);
    const count = Math.min(Math.max(Math.round(last[1] * RATE) - this.first, 0), this.heard.length);
    this.drop(count);
  }

  private drop(count: number): void {
    this.heard = this.heard.slice(count);
    this.first += count;
  }

  private event(committed: readonly Word[]): SpeechEvent[] {
    const partial = this.agreement.partial.map(([, , text]) => text).join("");
    if (!committed.length && partial === this.shown) return [];
    this.shown = partial;
    const text = committed.map(([, , word]) => word).join("");
    const timestamp: SpeechEvent["timestamp"] = committed.length
      ? [committed[0]![0], committed.at(-1)![1]]
      : null;
    return [{ committed: text, partial, timestamp }];
  }
}
