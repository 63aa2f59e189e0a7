// Detects workers that die silently (closed, or killed by the browser): each worker holds a Web
// Lock while it lives; whoever waits for an answer requests the same lock and obtains it when the
// worker has ended. Pages without locks (no secure context) rely on `error` events alone.

const GRACE_MS = 1000; // time for a last message of the ended worker to arrive

/**
 * The lock of this worker, and a callback that reports the locks of its threads to the page, since
 * the worker would wait forever for a thread that died.
 */
export const life = { name: "", report: (_name: string, _held: boolean): void => undefined };

/** A new lock name for a worker; empty if locks are not available. */
export function newLife(): string {
  return globalThis.navigator?.locks
    ? `edgewise ${Date.now().toString(36)}${Math.random().toString(36).slice(2)}`
    : "";
}

/** Holds a lock until this worker ends; calls `held` once it is acquired. */
export function holdLife(name: string, held: () => void): void {
  if (!name) return;
  const forever = new Promise<never>(() => undefined);
  const hold = (): Promise<never> => {
    held();
    return forever;
  };
  navigator.locks.request(name, hold).catch(() => undefined);
}

/**
 * Calls `ended` after the worker that holds the lock has ended. A lock that is not seen to be held
 * says nothing: when a site's data is cleared, Chromium gives new workers other locks than a page
 * that is open.
 * @returns a function that stops watching
 */
export function watchLife(name: string, ended: () => void): () => void {
  const controller = new AbortController();
  const { signal } = controller;
  const { locks } = navigator;
  const watch = async (): Promise<void> => {
    const { held } = await locks.query();
    if (held?.some((lock) => lock.name === name))
      await locks.request(
        name,
        { signal },
        () => void setTimeout(() => signal.aborted || ended(), GRACE_MS),
      );
  };
  watch().catch(() => undefined);
  return () => controller.abort();
}
