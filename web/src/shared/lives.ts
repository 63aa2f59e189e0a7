// Detects workers that die silently (closed, or killed by the browser): each worker holds a Web
// Lock while it lives; whoever waits for an answer requests the same lock and obtains it when the
// worker has ended. Pages without locks (no secure context) rely on `error` events alone.

const GRACE_MS = 1000; // time for a last message of the ended worker to arrive

/**
 * The lock of this worker, and a callback that reports the locks of its threads to the page, since
 * the worker would wait forever for a thread that died.
 */
export const life = { name: "", report: (_name: string, _held: boolean): void => undefined };

const unique = (): string => `${Date.now().toString(36)}${Math.random().toString(36).slice(2)}`;
const forever = new Promise<never>(() => undefined);
/**
 * A lock that this realm holds until it ends, and whose name begins those of its workers. None in
 * Deno: nothing clears a site's data there, and a lock that is held keeps the process alive.
 */
let own = "";
const NO_SITE = "edgewise";

/** A new lock name for a worker; empty if locks are not available. */
export function newLife(): string {
  const { locks } = globalThis.navigator ?? {};
  if (!locks) return "";
  if (!own && !navigator.storage) own = NO_SITE;
  if (!own) {
    own = `edgewise-${unique()}`;
    locks.request(own, () => forever).catch(() => undefined);
  }
  return `${own} ${unique()}`;
}

const LOOKS = 3;
const PAUSE_MS = 50;

/**
 * Whether the locks of this worker are those of the realm that named its lock. They are not where a
 * site's data was cleared since the page was opened: Chromium then gives new workers locks of their
 * own, and whoever waits for one of them obtains it at once.
 */
async function shared(name: string): Promise<boolean> {
  const [realm] = name.split(" ");
  if (realm === NO_SITE) return true;
  for (let looks = LOOKS; looks; looks--) {
    const { held } = await navigator.locks.query();
    if (held?.some((lock) => lock.name === realm)) return true;
    await new Promise((done) => setTimeout(done, PAUSE_MS));
  }
  return false;
}

/**
 * Holds a lock until this worker ends.
 * @param held is told once it is acquired whether whoever made the name can wait for it
 */
export function holdLife(name: string, held: (watched: boolean) => void): void {
  if (!name) return;
  const hold = async (): Promise<never> => {
    held(await shared(name).catch(() => false));
    return forever;
  };
  navigator.locks.request(name, hold).catch(() => undefined);
}

/**
 * Calls `ended` after the worker that holds the lock has ended.
 * @returns a function that stops watching
 */
export function watchLife(name: string, ended: () => void): () => void {
  const controller = new AbortController();
  const { signal } = controller;
  navigator.locks
    .request(name, { signal }, () => void setTimeout(() => signal.aborted || ended(), GRACE_MS))
    .catch(() => undefined);
  return () => controller.abort();
}
