// Calls of a session that runs without a worker.

import type { PlainError } from "./errors.ts";
import type { ProgressEvent } from "./loading.ts";
import type { Methods } from "./methods.ts";

/**
 * What a call gives: its value, or an error as data, since the page's classes are others than those
 * in here.
 */
export type InlineAnswer = { value: unknown } | { error: PlainError };

/** A session that runs without a worker, as the page calls it. */
export interface InlineCalls {
  /** Calls one of the worker's methods. Never rejects: errors are part of the answer. */
  call(
    method: keyof Methods,
    request: never,
    signal: AbortSignal | undefined,
    onProgress: ((event: ProgressEvent) => void) | undefined,
  ): Promise<InlineAnswer>;
  /** Ends the session and frees its memory. */
  end(): void;
}
