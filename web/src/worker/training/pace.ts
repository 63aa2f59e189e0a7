// How fast a run is.

const STEPS = 16; // number of steps over which the speed is averaged

/** The time that updates took. */
export class Pace {
  /** Of all updates. */
  seconds = 0;
  private readonly latest: { seconds: number; tokens: number }[] = [];

  /** Counts an update. */
  add(seconds: number, tokens: number): void {
    this.seconds += seconds;
    this.latest.push({ seconds, tokens });
    if (this.latest.length > STEPS) this.latest.shift();
  }

  /** Tokens per second, and seconds per update, lately. */
  get speed(): { tokens: number; update: number } {
    const [seconds, tokens] = this.latest.reduce(
      ([s, t], one) => [s + one.seconds, t + one.tokens],
      [0, 0],
    );
    return { tokens: tokens / Math.max(seconds, 1e-9), update: seconds / this.latest.length };
  }
}
