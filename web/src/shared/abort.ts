// Signals that stop work.

import { Aborted } from "./errors.ts";

/** The Aborted for a signal, with its reason's words. */
export function aborted(signal: AbortSignal | undefined): Aborted {
  const reason: unknown = signal?.reason;
  const words =
    reason instanceof Error && reason.name !== "AbortError"
      ? reason.message
      : typeof reason === "string"
        ? reason
        : "the work was stopped";
  return new Aborted(words, "", "");
}

/** @throws Aborted */
export function throwIfAborted(signal: AbortSignal | undefined): void {
  if (signal?.aborted) throw aborted(signal);
}

/** A pause. @throws Aborted */
export function sleep(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    const stop = () => (clearTimeout(timer), reject(aborted(signal)));
    const timer = setTimeout(() => (signal?.removeEventListener("abort", stop), resolve()), ms);
    signal?.addEventListener("abort", stop, { once: true });
  });
}
