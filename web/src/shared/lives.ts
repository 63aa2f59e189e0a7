// Workers that end without a word (closed, or taken away by the browser) are noticed by a lock that
// each holds while it lives: whoever waits for an answer asks for the same lock, and gets it when
// the worker has ended. Where a page has no locks (no secure context), `error` events are all there
// is.

const GRACE_MS = 1000; // within which a worker's own farewell arrives

/**
 * The lock of this worker, and what reports those of its threads to the page: a thread's death
 * would leave this worker waiting for it.
 */
export const life = { name: "", report: (_name: string, _held: boolean): void => undefined };

/** A name for a worker's lock; empty where there are no locks. */
export function newLife(): string {
  return globalThis.navigator?.locks
    ? `edgewise ${Date.now().toString(36)}${Math.random().toString(36).slice(2)}`
    : "";
}

/** Holds a lock until this worker ends; `held` is called once it is held. */
export function holdLife(name: string, held: () => void): void {
  if (!name) return;
  const forever = new Promise<never>(() => undefined);
  navigator.locks.request(name, () => (held(), forever)).catch(() => undefined);
}

/**
 * Calls `ended` after the worker that holds this lock has ended. Returns what stops the watching.
 */
export function watchLife(name: string, ended: () => void): () => void {
  const controller = new AbortController();
  const { signal } = controller;
  navigator.locks
    .request(name, { signal }, () => void setTimeout(() => signal.aborted || ended(), GRACE_MS))
    .catch(() => undefined);
  return () => controller.abort();
}
