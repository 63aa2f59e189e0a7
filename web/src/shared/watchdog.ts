// Nothing is waited for without an end. A watchdog counts the time in which this thread ran and
// nothing happened: ticks of a timer, not the clock. So a laptop that slept, a tab that was frozen
// and a machine with too much to do make it wait longer, and never end healthy work.

import { type EdgewiseError, EngineError } from "./errors.ts";

const TICKS = 16;

let limit = 30_000;

/**
 * Sets for how long this thread waits for something that gives no sign of life
 * (`Env.stallTimeout`), in milliseconds.
 */
export function setStallTimeout(ms: number): void {
  if (ms > 0) limit = ms;
}

/** Milliseconds, as `setStallTimeout` set them. */
export function stallTimeout(): number {
  return limit;
}

/** `3 s`, for errors. */
export function seconds(ms: number): string {
  return `${ms < 10_000 ? Math.round(ms / 100) / 10 : Math.round(ms / 1000)} s`;
}

/**
 * Calls `onStall` once when `feed` has not been called for `ms` while it was awake. Asleep at
 * first.
 */
export class Watchdog {
  private timer: ReturnType<typeof setInterval> | undefined;
  private ticks = 0;

  constructor(
    private readonly onStall: () => void,
    private readonly ms = limit,
  ) {}

  /** Something is being waited for from now on. */
  wake(): void {
    this.ticks = 0;
    this.timer ??= setInterval(() => {
      if (++this.ticks <= TICKS) return;
      this.stop();
      this.onStall();
    }, this.ms / TICKS);
  }

  /** There was progress. */
  feed(): void {
    this.ticks = 0;
  }

  /** Nothing is waited for any more. */
  stop(): void {
    clearInterval(this.timer);
    this.timer = undefined;
  }
}

/** What to do about an answer that does not come, where there is nothing better to say. */
export const STALLED_REMEDY =
  "Reload the page; if it happens again, close other tabs and restart the browser. " +
  "env.stallTimeout sets how long to wait.";

/** What did not answer, as an error. */
export function stalled(
  what: string,
  where = "",
  remedy = STALLED_REMEDY,
  ms = limit,
): EdgewiseError {
  return new EngineError(`${what} did not answer within ${seconds(ms)}`, where, remedy);
}

/**
 * A promise that ends: it rejects with `late()` when `promise` has not settled for `ms`.
 * @param late makes the error, which names what did not answer
 */
export function within<T>(promise: PromiseLike<T>, late: () => unknown, ms = limit): Promise<T> {
  return new Promise<T>((resolve, reject) => {
    const dog = new Watchdog(() => reject(late()), ms);
    dog.wake();
    promise.then(
      (value) => (dog.stop(), resolve(value)),
      (e: unknown) => (dog.stop(), reject(e)),
    );
  });
}
