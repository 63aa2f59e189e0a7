// Downloads of the compiler's worker: each received byte counts as progress, and each failure is
// reported.

import type { FromCompiler } from "../../protocol/compiler.ts";
import { plainError } from "../../protocol/errors.ts";
import { NotFound } from "../../shared/files/connection.ts";
import { bytesOf, HttpSource } from "../../shared/files/http.ts";
import { stalled, Watchdog, within } from "../../shared/watchdog.ts";

/** Posts a sign of progress. */
export const alive = (): void => postMessage({ alive: true } satisfies FromCompiler);

/** Posts an error of the start at once, since Pyodide may swallow or replace it. */
function reported(e: unknown): unknown {
  postMessage({
    error: { ...plainError(e), name: "EngineError" },
    missing: undefined,
  } satisfies FromCompiler);
  return e;
}

/**
 * The rest of an opened source as a stream; canceling it ends the download.
 * @param onError called with an error of the download; the stream ends with what it returns
 */
export function streamOf(
  source: HttpSource,
  onError: (e: unknown) => unknown,
): ReadableStream<Uint8Array<ArrayBuffer>> {
  const chunks = source.stream();
  return new ReadableStream({
    async pull(queue) {
      const { done, value } = await chunks.next().catch((e: unknown) => Promise.reject(onError(e)));
      if (done) queue.close();
      else queue.enqueue(value.slice());
    },
    async cancel() {
      await chunks.return(undefined);
    },
  });
}

/** Downloads a file of Python, whose hash has to be the given one. */
export function checked(
  url: string,
  plain: typeof fetch,
  integrity?: string,
): Promise<Uint8Array<ArrayBuffer>> {
  const remedy = "Check the network, and load the page again.";
  return bytesOf(url, "Python", remedy, { onBytes: alive, fetch: plain, integrity });
}

/** Stands for an archive without files; it is never asked for in the network. */
export const NO_LIBRARY = "edgewise:no-library.zip";
const END_OF_ZIP = [0x50, 0x4b, 5, 6];
const EMPTY_ZIP = new Uint8Array(22);
EMPTY_ZIP.set(END_OF_ZIP);

/**
 * Downloads and compiles a .wasm file. It is fetched as usual, since browsers cache compiled code
 * only for their own responses; a stalled download is an error.
 * @param integrity its SHA-256, if it is known
 */
export async function compileWasm(
  url: string,
  plain: typeof fetch,
  integrity?: string,
): Promise<WebAssembly.Module> {
  if (integrity) return WebAssembly.compile(await checked(url, plain, integrity));
  const controller = new AbortController();
  const silent = (): unknown => {
    controller.abort();
    return reported(stalled("the server", url, "Check the network, and load the page again."));
  };
  const response = await within(plain(url, { signal: controller.signal }), silent);
  alive();
  if (!response.ok) throw new Error(`${url}: HTTP ${response.status}`);
  void followed(response.clone(), silent);
  return WebAssembly.compileStreaming(response);
}

/**
 * A replacement of `fetch` while Pyodide starts. Interrupted or silent downloads are resumed.
 * @param compiled a file that `compileWasm` has downloaded already
 * @param digests the SHA-256 of files of which it is known, by their addresses
 */
export function watchedFetch(
  plain: typeof fetch,
  compiled: string,
  digests: Map<string, string>,
): typeof fetch {
  return async (input, init) => {
    const url = input instanceof Request ? input.url : String(input);
    if (url === NO_LIBRARY) return new Response(EMPTY_ZIP);
    if (url === compiled) return new Response(null);
    if ((init?.method ?? "GET") !== "GET" || !/^https?:/.test(url)) return plain(input, init);
    const integrity = digests.get(url);
    const source = new HttpSource(url, { onBytes: alive, fetch: plain, integrity });
    try {
      await source.open();
    } catch (e) {
      if (e instanceof NotFound)
        return new Response(null, { status: e.status >= 200 ? e.status : 500 });
      throw reported(e);
    }
    return new Response(streamOf(source, reported));
  };
}

/** Reads a copy of a response to watch its progress. */
async function followed(copy: Response, silent: () => void): Promise<void> {
  const reader = copy.body!.getReader();
  const dog = new Watchdog(silent);
  dog.wake();
  try {
    while (!(await reader.read()).done) {
      dog.feed();
      alive();
    }
  } catch {
    // the reader of the response itself gets the same error
  } finally {
    dog.stop();
  }
}
