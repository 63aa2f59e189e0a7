// Sounds that are played one after the other, without gaps, while more are made.

import type { Clip } from "./sounds.ts";

const AHEAD_S = 0.03; // from the call to the first sample, so that none is late

/** Plays sounds in the order in which they are added. */
export class Player {
  private context: AudioContext | undefined;
  private readonly playing = new Set<AudioBufferSourceNode>();
  private timers = new Set<ReturnType<typeof setTimeout>>();
  /** Time of the context at which the last sound ends. */
  private until = 0;
  private settle = (): void => undefined;
  private quiet: Promise<void> = Promise.resolve();

  /** Whether a sound is played, or will be. */
  get busy(): boolean {
    return this.playing.size > 0;
  }

  /** Lets the page make sounds: called where a user presses something. */
  async allow(): Promise<void> {
    this.context ??= new AudioContext();
    // without a gesture it never resumes
    await Promise.race([this.context.resume(), new Promise((done) => setTimeout(done, 500))]);
  }

  /**
   * Plays a sound after those before.
   * @param begins is called when it is heard, with its seconds
   * @returns milliseconds from now to its first sample
   */
  add({ array, sampling_rate }: Clip, begins?: () => void): number {
    const context = (this.context ??= new AudioContext());
    void context.resume();
    if (!array.length) return 0;
    const buffer = context.createBuffer(1, array.length, sampling_rate);
    buffer.copyToChannel(array as Float32Array<ArrayBuffer>, 0);
    const source = new AudioBufferSourceNode(context, { buffer });
    source.connect(context.destination);
    const start = Math.max(this.until, context.currentTime + AHEAD_S);
    this.until = start + buffer.duration;
    if (!this.playing.size)
      this.quiet = new Promise((done) => {
        this.settle = done;
      });
    this.playing.add(source);
    source.onended = () => this.drop(source);
    source.start(start);
    const late = context.outputLatency || 0;
    const wait = 1000 * (start - context.currentTime + late);
    const timer = setTimeout(() => {
      this.timers.delete(timer);
      begins?.();
    }, wait);
    this.timers.add(timer);
    return wait;
  }

  /** Waits for the end of all sounds, or for `stop`. */
  ended(): Promise<void> {
    return this.quiet;
  }

  /** Is silent at once. */
  stop(): void {
    for (const timer of this.timers) clearTimeout(timer);
    this.timers.clear();
    for (const source of this.playing) {
      source.onended = null;
      source.stop();
      source.disconnect();
    }
    this.playing.clear();
    this.until = 0;
    this.settle();
  }

  private drop(source: AudioBufferSourceNode): void {
    this.playing.delete(source);
    if (!this.playing.size) this.settle();
  }
}

/** Sounds as one. Those of other rates than the first one's are left out. */
export function joined(clips: readonly Clip[]): Clip {
  const sampling_rate = clips[0]?.sampling_rate ?? 16_000;
  const same = clips.filter((clip) => clip.sampling_rate === sampling_rate);
  const array = new Float32Array(same.reduce((n, clip) => n + clip.array.length, 0));
  let at = 0;
  for (const clip of same) {
    array.set(clip.array, at);
    at += clip.array.length;
  }
  return { array, sampling_rate };
}
