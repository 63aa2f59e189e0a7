// Abort signals.

import { Aborted } from "./errors.ts";

/** The Aborted error of a signal, with the text of its reason. */
export function aborted(signal: AbortSignal | undefined): Aborted {
  const reason: unknown = signal?.reason;
  if (reason instanceof Aborted) return reason;
  const words =
    reason instanceof Error && reason.name !== "AbortError"
      ? reason.message
      : typeof reason === "string"
        ? reason
        : "the work was stopped";
  return new Aborted(words, "", "");
}

/** @throws Aborted if the signal has fired */
export function throwIfAborted(signal: AbortSignal | undefined): void {
  if (signal?.aborted) throw aborted(signal);
}

const LONGEST = 2 ** 31 - 1; // milliseconds

/**
 * A time limit in milliseconds as browsers' timers take it: longer ones, such as Infinity, would
 * fire at once. The longest is 24 days.
 */
export const timerMs = (ms: number): number => Math.min(ms, LONGEST);

/**
 * Waits for `ms` milliseconds, 24 days at most.
 * @throws Aborted when the signal fires
 */
export function sleep(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    const stop = () => {
      clearTimeout(timer);
      reject(aborted(signal));
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, timerMs(ms));
    signal?.addEventListener("abort", stop, { once: true });
  });
}
