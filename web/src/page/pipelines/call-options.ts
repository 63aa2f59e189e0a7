// Options that the calls and streams of all pipelines take.

/** Options of every call. */
export interface CallOptions {
  /** Cancels the call: the promise rejects with {@link Aborted}. */
  signal?: AbortSignal;
}
