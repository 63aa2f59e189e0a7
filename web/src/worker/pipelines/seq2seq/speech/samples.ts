// Samples of a recording for transcription: a piece at a time, so that memory does not grow with
// its length.

import type { TaskSound } from "../../../../protocol/tasks.ts";
import type { Ending, TaskHost } from "../../host.ts";
import { checkFinite, soundLength, soundPieces } from "../../sounds/read.ts";
import type { Samples } from "./features.ts";

/** The samples of a sound at a rate, from files and at other rates piece by piece. */
export class SoundSamples implements Samples {
  readonly length: number;
  private pieces: AsyncGenerator<Float32Array<ArrayBuffer>> | undefined;
  /** Samples [at, at + held.length). */
  private held = new Float32Array(0);
  private at = 0;

  constructor(
    private readonly host: TaskHost,
    private readonly sound: TaskSound,
    private readonly rate: number,
    private readonly ending: Ending,
  ) {
    this.length = soundLength(sound, rate);
  }

  async read(start: number, end: number): Promise<Float32Array<ArrayBuffer>> {
    if (start < this.at) this.again();
    const stop = Math.min(end, this.length);
    this.pieces ??= soundPieces(this.host.device, this.sound, this.rate, this.ending);
    while (this.at + this.held.length < stop) {
      const { done, value } = await this.pieces.next();
      if (done) break;
      const kept = this.held.subarray(Math.min(start - this.at, this.held.length));
      this.at += this.held.length - kept.length;
      const joined = new Float32Array(kept.length + value.length);
      joined.set(kept);
      joined.set(value, kept.length);
      this.held = joined;
    }
    return this.held.slice(start - this.at, stop - this.at);
  }

  again(): void {
    void this.pieces?.return(undefined);
    this.pieces = undefined;
    this.held = new Float32Array(0);
    this.at = 0;
  }
}

/**
 * The samples of a sound at a rate.
 * @throws InputError if they are in memory and not finite
 */
export function samplesOf(host: TaskHost, sound: TaskSound, rate: number, ending: Ending): Samples {
  if (!("samples" in sound) || (sound.sampling_rate || rate) !== rate)
    return new SoundSamples(host, sound, rate, ending);
  checkFinite(sound.samples, sound.name);
  return new HeldSamples(sound.samples);
}

/** Samples that are in memory. */
export class HeldSamples implements Samples {
  constructor(private readonly values: Float32Array<ArrayBuffer>) {}

  get length(): number {
    return this.values.length;
  }

  async read(start: number, end: number): Promise<Float32Array<ArrayBuffer>> {
    return this.values.slice(start, end);
  }

  again(): void {
    // anything can be read at any time
  }
}
