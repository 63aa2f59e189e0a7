// Speech recognition of sound that arrives in pieces: text that is certain, and text that may still
// change. Mirrors python/edgewise/host/pipelines/speech/stream.py.

import { Agreement, type Word } from "../../../../logic/speech/agreement.ts";
import type { Ending } from "../../host.ts";
import type { Options } from "../../options.ts";
import type { TaskStream, Voice } from "../../runner.ts";
import { RATE } from "../../sounds/voice-port.ts";

const PROMPT = 200; // characters of committed text that precede what is transcribed
const LONG = 15; // seconds: then sound is forgotten up to the end of a committed sentence,
const LONGER = 22; // or, if there is none, of a committed word,
const LONGEST = 28; // or of what is not committed. A window has 30 s.
const BEFORE = 1; // seconds of silence that are kept: speech is noticed some time after it began
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
  /** Sound of a live stream that no transcript has, because it came too fast: seconds. */
  skipped?: [start: number, end: number];
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

/** How a stream is transcribed. */
export interface StreamWishes {
  /** Seconds between transcripts. */
  interval: number;
  /** Whether a call of `feed` makes at most one transcript, of the newest sound. */
  live?: boolean;
  /** Finds speech: silence is not transcribed, and ends what is committed. */
  voice?: Voice | undefined;
}

/** The options `interval` and `live` of a stream. */
export function wishesOf(options: Options, voice: Voice | undefined): StreamWishes {
  const interval = options.number("interval", 1, 0.1, 10);
  return { interval, live: options.flag("live", false), voice };
}

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
  /** Sample up to which there is a transcript. */
  private seen = 0;
  /** Sample with which speech ended that is still to commit. */
  private ended: number | undefined;
  /** Samples since the last transcript was due. */
  private fresh = 0;
  private shown = "";

  constructor(
    private readonly transcribe: Transcribe,
    private readonly wishes: StreamWishes,
  ) {
    this.step = Math.max(1, Math.round(wishes.interval * RATE));
  }

  async feed(samples: Float32Array<ArrayBuffer>, ending: Ending): Promise<SpeechEvent[]> {
    const { live, voice } = this.wishes;
    const events: SpeechEvent[] = [];
    for (let at = 0; at < samples.length; ) {
      // unless live, results do not depend on how the sound is divided
      const size = live ? samples.length : Math.max(1, this.step - this.fresh);
      const piece = samples.subarray(at, at + size);
      at += piece.length;
      this.hear(piece);
      if (voice) events.push(...(await this.listen(voice, piece, ending)));
      if (this.ended !== undefined) events.push(...(await this.endSpeech(ending)));
      else if (this.fresh >= this.step) {
        if (voice?.speaking ?? true) events.push(...(await this.next(ending)));
        this.fresh = 0;
      }
    }
    return events;
  }

  async end(ending: Ending): Promise<SpeechEvent[]> {
    if (!(this.wishes.voice?.speaking ?? true)) return [];
    return this.finish(this.heard.length, ending);
  }

  private hear(piece: Float32Array): void {
    const heard = new Float32Array(this.heard.length + piece.length);
    heard.set(this.heard);
    heard.set(piece, this.heard.length);
    this.heard = heard;
    this.fresh += piece.length;
  }

  /** Finds speech in what was just heard; silence is forgotten but for its last second. */
  private async listen(
    voice: Voice,
    piece: Float32Array<ArrayBuffer>,
    ending: Ending,
  ): Promise<SpeechEvent[]> {
    const events: SpeechEvent[] = [];
    let spoke = voice.speaking;
    for (const { start = 0, end } of await voice.feed(piece, ending)) {
      spoke = end === undefined;
      if (end !== undefined) {
        this.ended = end;
        if (!this.wishes.live) events.push(...(await this.endSpeech(ending)));
      } else if (this.ended === undefined) this.drop(start - this.first);
    }
    if (!spoke && !voice.speaking && this.ended === undefined)
      this.drop(this.heard.length - BEFORE * RATE);
    return events;
  }

  /** Commits the text of speech that has ended. */
  private async endSpeech(ending: Ending): Promise<SpeechEvent[]> {
    const end = this.ended!;
    this.ended = undefined;
    const events = this.skip(end - this.first);
    return [...events, ...(await this.finish(end - this.first, ending))];
  }

  /** Commits the text of the first samples, and forgets them. */
  private async finish(count: number, ending: Ending): Promise<SpeechEvent[]> {
    const found = await this.words(this.heard.slice(0, Math.max(count, 0)), ending);
    const committed = [...this.agreement.add(found), ...this.agreement.end()];
    this.say(this.agreement.last);
    this.drop(count);
    return this.event(committed);
  }

  /**
   * In a live stream forgets all but the newest window of the first samples. What the last
   * transcript had of it is committed.
   */
  private skip(length: number): SpeechEvent[] {
    const count = length - LONGEST * RATE;
    if (!this.wishes.live || count <= 0) return [];
    const committed = this.agreement.end();
    const start = Math.max(this.seen, this.first);
    this.say(this.agreement.last);
    this.drop(count);
    return this.event(
      committed,
      start < this.first ? [start / RATE, this.first / RATE] : undefined,
    );
  }

  /** Transcribes what is heard, and forgets what is committed where it is long. */
  private async next(ending: Ending): Promise<SpeechEvent[]> {
    const events = this.skip(this.heard.length);
    let committed = this.agreement.add(await this.words(this.heard.slice(), ending));
    const seconds = this.heard.length / RATE;
    if (seconds > LONGEST && !this.agreement.committed.length) committed = this.agreement.end();
    if (seconds > LONG) this.shorten(seconds);
    return [...events, ...this.event(committed)];
  }

  private async words(heard: Float32Array<ArrayBuffer>, ending: Ending): Promise<Word[]> {
    this.seen = this.first + heard.length;
    if (heard.length < SHORT * RATE) return [];
    const seconds = heard.length / RATE;
    const found = await this.transcribe(heard, this.said, ending);
    const first = this.first / RATE;
    return found.map(({ text, timestamp: [start, end] }) => ({
      start: first + start,
      end: first + (end ?? seconds),
      text,
    }));
  }

  /** Forgets sound up to the end of a committed sentence or word. */
  private shorten(seconds: number): void {
    const { committed } = this.agreement;
    const sentence = committed.findLast(({ text }) => SENTENCE_END.test(text));
    const last = sentence ?? (seconds > LONGER ? committed.at(-1) : undefined);
    if (!last) {
      // Silence: nothing is committed, and its last second may be the beginning of a word.
      if (seconds > LONGEST) this.drop(this.heard.length - RATE);
      return;
    }
    this.say(last.end);
    this.drop(Math.round(last.end * RATE) - this.first);
  }

  /** Makes committed words up to a time part of the prompt. */
  private say(time: number): void {
    const words = this.agreement.committed.filter(({ end }) => end <= time);
    const text = (this.said + textOf(words)).slice(-PROMPT);
    this.said = text.length === PROMPT ? text.slice(Math.max(text.indexOf(" "), 0)) : text;
    this.agreement.forget(time);
  }

  private drop(count: number): void {
    const most = Math.min(Math.max(count, 0), this.heard.length);
    this.heard = this.heard.slice(most);
    this.first += most;
  }

  private event(committed: readonly Word[], skipped?: [number, number]): SpeechEvent[] {
    const partial = textOf(this.agreement.partial);
    if (!committed.length && partial === this.shown && !skipped) return [];
    this.shown = partial;
    const timestamp: SpeechEvent["timestamp"] = committed.length
      ? [committed[0]!.start, committed.at(-1)!.end]
      : null;
    return [{ committed: textOf(committed), partial, timestamp, ...(skipped && { skipped }) }];
  }
}

function textOf(words: readonly Word[]): string {
  return words.map(({ text }) => text).join("");
}
