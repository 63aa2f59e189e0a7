// A spoken conversation: what was said is heard, answered and spoken, each stage while the one
// before goes on, and all of it stops at once when somebody speaks again.

import {
  Aborted,
  type GenerateOptions,
  type Message,
  type SpeechRecognitionPipeline,
  type TextGenerationPipeline,
  type TextToSpeechPipeline,
} from "edgewise";
import type { Player } from "./player.ts";
import { type Clip, copyOf } from "./sounds.ts";

/** The models. Without one that hears, words are written. */
export interface Parts {
  listen?: SpeechRecognitionPipeline | undefined;
  write: TextGenerationPipeline;
  speak: TextToSpeechPipeline;
  phonemizer: ((text: string) => string) | undefined;
}

/** What the conversation is doing. */
export type State = "ready" | "thinking" | "speaking";

/** Milliseconds from the end of what was said; undefined: not yet. */
export interface Times {
  /** The pause after which it counted as the end. */
  pause: number;
  heard?: number;
  /** The first words that can be spoken are written. */
  written?: number;
  /** The first sound is heard. */
  sound?: number;
}

/** What a page shows of it. */
export interface View {
  state(state: State): void;
  /** Adds a line; returns a function that replaces its words, and without any removes it. */
  line(role: "user" | "assistant", words: string): (words?: string) => void;
  times(times: Times): void;
  /** Whether the model reads the first messages no more. */
  leftOut(is: boolean): void;
}

/** What was said: a sound or words, and when it ended (performance.now). */
export interface Said {
  clip?: Clip | Blob;
  words?: string;
  ended: number;
}

const SYSTEM =
  "You are a friendly voice assistant. Answer in one or two short sentences, without lists.";
const MAX_MESSAGES = 8; // that are read again
const FIRST_WORDS = 24; // characters that are spoken before their sentence has ended
const ANSWER: GenerateOptions = {
  max_new_tokens: 90,
  do_sample: true,
  temperature: 0.2,
  top_p: 0.9,
  repetition_penalty: 1.1,
};

/** Texts that are taken while they arrive. */
class Arriving implements AsyncIterable<string> {
  private readonly waiting: string[] = [];
  private done = false;
  private wake = (): void => undefined;

  push(text: string): void {
    this.waiting.push(text);
    this.wake();
  }

  end(): void {
    this.done = true;
    this.wake();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<string, void> {
    for (;;) {
      const text = this.waiting.shift();
      if (text !== undefined) yield text;
      else if (this.done) return;
      else
        await new Promise<void>((done) => {
          this.wake = done;
        });
    }
  }
}

/**
 * Ends the first part of an answer at a comma, so that its sound begins before the sentence has
 * ended. A line is spoken by itself.
 */
export function firstBreak(before: string, piece: string): string {
  const text = before + piece;
  const found = /[,;:]\s/g;
  found.lastIndex = FIRST_WORDS;
  const match = /[.!?\n]\s/.test(before) ? null : found.exec(text);
  const at = match ? match.index + 2 - before.length : 0;
  return at > 0 ? `${piece.slice(0, at)}\n${piece.slice(at)}` : piece;
}

/** A conversation. One turn goes on at a time; another one, or `stop`, ends it. */
export class Conversation {
  private messages: Message[] = [];
  private turn: AbortController | undefined;
  /** The end of the latest turn, also of one that was stopped. */
  private over: Promise<unknown> = Promise.resolve();

  constructor(
    private readonly parts: () => Parts,
    private readonly player: Player,
    private readonly view: View,
  ) {}

  /** Whether a turn goes on. */
  get busy(): boolean {
    return this.turn !== undefined;
  }

  /** Whether an answer is heard. */
  get speaks(): boolean {
    return this.player.busy;
  }

  /** Ends the turn, silently and at once. */
  stop(): void {
    this.turn?.abort();
    this.turn = undefined;
    this.player.stop();
    this.view.state("ready");
  }

  /** Forgets what was said. */
  clear(): void {
    this.stop();
    this.messages = [];
    this.view.leftOut(false);
  }

  /**
   * Answers. What was being said ends.
   * @returns whether it was answered; false: it was stopped, or there were no words
   */
  answer(said: Said, pause = 0): Promise<boolean> {
    this.stop();
    const turn = this.take(said, pause, this.over);
    this.over = turn.catch(() => undefined);
    return turn;
  }

  /** A turn, after the one before. */
  private async take(said: Said, pause: number, before: Promise<unknown>): Promise<boolean> {
    const own = new AbortController();
    this.turn = own;
    const times: Times = { pause };
    this.view.state("thinking");
    try {
      const words = said.words ?? (await this.hear(said, own.signal));
      await before; // what was heard of it belongs to the messages
      if (own.signal.aborted || !words) return false;
      times.heard = performance.now() - said.ended;
      this.view.times(times);
      const show = this.view.line("user", words);
      const answered = await this.say(words, said.ended, times, own.signal);
      if (!answered) show(); // more words come, or somebody is not interested
      return !own.signal.aborted;
    } catch (e) {
      const stopped = own.signal.aborted || e instanceof Aborted;
      own.abort(); // a voice that fails ends the writing, too
      if (stopped) return false;
      this.player.stop();
      throw e;
    } finally {
      if (this.turn === own) {
        this.turn = undefined;
        this.view.state("ready");
      }
    }
  }

  /** The words of a sound. */
  private async hear({ clip }: Said, signal: AbortSignal): Promise<string> {
    const { listen } = this.parts();
    const { text } = await listen!(copyOf(clip!), { signal });
    // what Whisper writes for noises, such as [BLANK_AUDIO]
    return text.replace(/\[[^\]]*\]|\([^)]*\)/g, "").trim();
  }

  /** Writes an answer, and speaks it meanwhile. Returns whether it, or a part, was heard. */
  private async say(
    words: string,
    ended: number,
    times: Times,
    signal: AbortSignal,
  ): Promise<boolean> {
    const said = { role: "user", content: words };
    this.messages.push(said);
    const show = this.view.line("assistant", "");
    const arriving = new Arriving();
    let text = "";
    const writing = this.write(words, signal, (piece) => {
      if (signal.aborted) return;
      arriving.push(firstBreak(text, piece));
      text += piece;
      show(text.trim());
    }).finally(() => arriving.end());
    writing.catch(() => undefined); // it is waited for below
    const spoken: string[] = [];
    let whole = false;
    try {
      for await (const part of this.voice(arriving, signal)) {
        if (signal.aborted) break;
        times.written ??= performance.now() - ended;
        const clip = { array: part.audio, sampling_rate: part.sampling_rate };
        const wait = this.player.add(clip, () => {
          spoken.push(part.text);
          this.view.state("speaking");
        });
        times.sound ??= performance.now() - ended + wait;
        this.view.times(times);
      }
      await writing;
      if (!signal.aborted) await this.player.ended();
      whole = !signal.aborted;
    } finally {
      // what was not heard was not said
      const content = signal.aborted ? spoken.join(" ") : text.trim();
      const at = this.messages.indexOf(said);
      if (at >= 0 && content) this.messages.splice(at + 1, 0, { role: "assistant", content });
      else if (at >= 0) this.messages.splice(at, 1);
      if (!content) show();
      else if (!whole) show(`${content} …`);
    }
    return spoken.length > 0 || !signal.aborted;
  }

  /** Writes an answer; of a model that is none for chats, what follows the words. */
  private write(words: string, signal: AbortSignal, streamer: (piece: string) => void) {
    const { write } = this.parts();
    const options = { ...ANSWER, streamer, signal };
    if (!write.info.hasChatTemplate) return write(words, options);
    let from = Math.max(0, this.messages.length - MAX_MESSAGES);
    if (this.messages[from]?.role === "assistant") from++; // whose question is left out
    this.view.leftOut(from > 0);
    return write([{ role: "system", content: SYSTEM }, ...this.messages.slice(from)], options);
  }

  private voice(text: AsyncIterable<string>, signal: AbortSignal) {
    const { speak, phonemizer } = this.parts();
    return speak.stream(text, { signal, ...(phonemizer ? { phonemizer } : {}) });
  }
}
