// Timeouts for everything that is waited for. A watchdog counts timer ticks without progress
// instead of comparing clock times, so that a sleeping laptop, a frozen tab or an overloaded
// machine extend the timeout rather than end healthy work.

import { timerMs } from "./abort.ts";
import { type EdgewiseError, EngineError } from "./errors.ts";

const TICKS = 16;

let limit = 30_000;

/** Sets this thread's timeout for operations without progress, in ms (`Env.stallTimeout`). */
export function setStallTimeout(ms: number): void {
  if (ms > 0) limit = ms;
}

/** The timeout set by `setStallTimeout`, in milliseconds. */
export function stallTimeout(): number {
  return limit;
}

/** Formats a duration for error messages: `3 s`. */
export function seconds(ms: number): string {
  return `${ms < 10_000 ? Math.round(ms / 100) / 10 : Math.round(ms / 1000)} s`;
}

/**
 * Calls `onStall` once if `feed` is not called for `ms` milliseconds while it is running. Initially
 * stopped.
 */
export class Watchdog {
  private timer: ReturnType<typeof setInterval> | undefined;
  private ticks = 0;

  constructor(
    private readonly onStall: () => void,
    private readonly ms = limit,
  ) {}

  /** Starts or restarts waiting. */
  wake(): void {
    this.ticks = 0;
    this.timer ??= setInterval(
      () => {
        if (++this.ticks <= TICKS) return;
        this.stop();
        this.onStall();
      },
      timerMs(this.ms / TICKS),
    );
  }

  /** Reports progress. */
  feed(): void {
    this.ticks = 0;
  }

  /** Stops waiting. */
  stop(): void {
    clearInterval(this.timer);
    this.timer = undefined;
  }
}

/** Default remedy of {@link stalled}. */
export const STALLED_REMEDY =
  "Reload the page; if it happens again, close other tabs and restart the browser. " +
  "env.stallTimeout sets how long to wait.";

/** The error for `what` not answering in time. */
export function stalled(
  what: string,
  where = "",
  remedy = STALLED_REMEDY,
  ms = limit,
): EdgewiseError {
  return new EngineError(`${what} did not answer within ${seconds(ms)}`, where, remedy);
}

/**
 * Settles as `promise`, or rejects with `late()` if that does not settle within `ms`.
 * @param late makes the error, which should name what did not answer
 */
export function within<T>(promise: PromiseLike<T>, late: () => unknown, ms = limit): Promise<T> {
  return new Promise<T>((resolve, reject) => {
    const dog = new Watchdog(() => reject(late()), ms);
    dog.wake();
    promise.then(
      (value) => {
        dog.stop();
        resolve(value);
      },
      (e: unknown) => {
        dog.stop();
        reject(e);
      },
    );
  });
}
