// Calls of a session that runs without a worker.

import type { PlainError } from "./errors.ts";
import type { ProgressEvent } from "./loading.ts";
import type { Methods } from "./methods.ts";

/**
 * Result of a call: its value, or an error as data, since inline.js has error classes of its own.
 */
export type InlineAnswer = { value: unknown } | { error: PlainError };

/** A session without a worker, as the page calls it. */
export interface InlineCalls {
  /** Calls a method of the worker. Never rejects: errors are part of the answer. */
  call(
    method: keyof Methods,
    request: never,
    signal: AbortSignal | undefined,
    onProgress: ((event: ProgressEvent) => void) | undefined,
  ): Promise<InlineAnswer>;
  /** Ends the session and frees its memory. */
  end(): void;
}
