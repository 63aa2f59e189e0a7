// A request whose server may fall silent.

import { aborted } from "../abort.ts";
import { seconds, stallTimeout, Watchdog } from "../watchdog.ts";

/** The server does not have the file, or refuses it. */
export class NotFound extends Error {
  constructor(
    readonly url: string,
    readonly status: number,
  ) {
    super(`HTTP ${status}`);
  }
}

/**
 * The server stopped sending. Counts as two broken connections, since each takes long to detect.
 */
export class Silence extends Error {}

/** An open request, which is aborted when the server stops sending. */
export interface Connection {
  response: Response;
  /** Awaits a promise, aborting the request if it does not settle in time. */
  wait<T>(promise: Promise<T>): Promise<T>;
  close(): void;
}

/**
 * Sends a request and waits for the response's headers.
 * @param fetcher the global fetch, or a substitute
 * @throws NotFound, Aborted, Silence; what `fetch` rejects with
 */
export async function connect(
  url: string,
  init: RequestInit,
  signal: AbortSignal | undefined,
  fetcher: typeof fetch,
): Promise<Connection> {
  const controller = new AbortController();
  let silent: Silence | undefined;
  const dog = new Watchdog(() => {
    silent = new Silence(`the server sent nothing for ${seconds(stallTimeout())}`);
    controller.abort();
  });
  const stop = () => controller.abort(signal?.reason);
  if (signal?.aborted) throw aborted(signal);
  signal?.addEventListener("abort", stop, { once: true });
  const wait = async <T>(promise: Promise<T>): Promise<T> => {
    dog.wake();
    try {
      return await promise;
    } catch (e) {
      throw silent ?? e;
    } finally {
      dog.stop();
    }
  };
  const close = () => {
    signal?.removeEventListener("abort", stop);
    controller.abort();
  };
  try {
    const response = await wait(fetcher(url, { ...init, signal: controller.signal }));
    return { response, wait, close };
  } catch (e) {
    close();
    // Other schemes (such as an extension's own files) have no status: a failed fetch means that
    // the file does not exist.
    if (e instanceof TypeError && !/^https?:/.test(url)) throw new NotFound(url, 404);
    throw e;
  }
}

/** Whether an address has another origin than the page. */
export function isForeign(url: string): boolean {
  const { origin } = globalThis.location ?? {};
  return origin !== undefined && new URL(url).origin !== origin;
}
