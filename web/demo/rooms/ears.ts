// The microphone of a conversation: what it hears is divided where somebody pauses.

import { InputError, microphone, type VoiceActivityPipeline } from "edgewise";
import type { Clip } from "./sounds.ts";

const PAUSE_MS = 320; // of silence after which an answer begins, which more words take back
const BEFORE_S = 0.3; // before the beginning of speech that are heard, too
const KEPT_S = 29; // of what is said; a window of Whisper has 30
const SHORT_S = 0.25; // of sound that is no speech

export interface Heard {
  /** Somebody begins to speak, or goes on. */
  begins(): void;
  /** Somebody has paused: all that was said since the last answer, and when it ended. */
  pauses(clip: Clip, ended: number, pause: number): void;
  /** It was a short sound, no speech. */
  nothing(): void;
  /** The newest sound, of each piece. */
  sound(piece: Float32Array, sampling_rate: number): void;
}

/** Listens until `signal` fires. */
export class Ears {
  private pieces: Float32Array[] = [];
  private rate = 48_000;
  /** Samples before the pieces that are kept. */
  private gone = 0;
  private count = 0;
  /** Where what is said begins, in samples of the microphone. */
  private from: number | undefined;
  private arrivals: number[] = [];

  constructor(
    private readonly detect: VoiceActivityPipeline,
    private readonly heard: Heard,
    /** Whether an answer is heard already, so that new words belong to a new turn. */
    private readonly answered: () => boolean,
  ) {}

  /** @throws InputError if there is no microphone */
  async run(signal: AbortSignal): Promise<void> {
    const options = { min_silence_duration_ms: PAUSE_MS, speech_pad_ms: 0 };
    for await (const event of this.detect.stream(this.sound(signal), options)) {
      if (signal.aborted) return;
      const at = Math.round(("start" in event ? event.start : event.end) * (this.rate / 16_000));
      if ("start" in event) {
        if (this.from === undefined || this.answered()) this.from = at;
        this.heard.begins();
      } else this.end(at);
    }
    if (!signal.aborted)
      throw new InputError("it was removed", "the microphone", "Connect it, and press again.");
  }

  private end(at: number): void {
    if (this.from === undefined) return;
    if (at - this.from < SHORT_S * this.rate) {
      this.from = undefined;
      this.heard.nothing();
      return;
    }
    const around = BEFORE_S * this.rate;
    const clip = this.clip(Math.max(0, this.from - around), Math.min(this.count, at + around));
    const ended = this.arrivals[Math.floor((at - this.gone) / 1024)] ?? performance.now();
    this.heard.pauses(clip, ended, performance.now() - ended);
  }

  private async *sound(signal: AbortSignal) {
    const constraints = { echoCancellation: true, noiseSuppression: true, autoGainControl: true };
    for await (const piece of microphone({ signal, constraints })) {
      this.rate = piece.sampling_rate;
      this.keep(piece.array);
      this.heard.sound(piece.array, piece.sampling_rate);
      yield { array: piece.array.slice(), sampling_rate: piece.sampling_rate }; // which is moved
    }
  }

  private keep(piece: Float32Array): void {
    this.pieces.push(piece);
    this.arrivals.push(performance.now());
    this.count += piece.length;
    while (this.count - this.gone > KEPT_S * this.rate) {
      this.gone += this.pieces.shift()!.length;
      this.arrivals.shift();
    }
  }

  /** Samples of the microphone, as far as they are kept. */
  private clip(from: number, to: number): Clip {
    const start = Math.max(Math.round(from), this.gone);
    const array = new Float32Array(Math.max(0, Math.round(to) - start));
    let at = this.gone - start;
    for (const piece of this.pieces) {
      const first = Math.max(0, -at);
      const part = piece.subarray(first, Math.max(first, array.length - at));
      if (part.length) array.set(part, at + first);
      at += piece.length;
      if (at >= array.length) break;
    }
    return { array, sampling_rate: this.rate };
  }
}
