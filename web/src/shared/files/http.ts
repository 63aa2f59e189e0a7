// Downloads a file as a stream from any offset. An interrupted or silent connection is resumed
// where it stopped, provided that the server confirms that it continues the same file.

import { aborted, sleep, throwIfAborted } from "../abort.ts";
import { type EdgewiseError, EngineError, ModelError } from "../errors.ts";
import { Sha256 } from "../sha256.ts";
import { megabytes, message, networkRemedy } from "../words.ts";
import { type Connection, connect, isForeign, NotFound, Silence } from "./connection.ts";
import {
  type ByteSource,
  type ChunkReader,
  checkDigest,
  isEdgewise,
  type OnBytes,
  readAll,
  readerOf,
} from "./stream.ts";

const ATTEMPTS = 5;
const FIRST_PAUSE_MS = 150;

/** A response to a range request that does not continue what has arrived. */
class NoContinuation extends Error {}

/** Options of a download. */
export interface HttpOptions {
  signal?: AbortSignal | undefined;
  onBytes?: OnBytes | undefined;
  /** Expected SHA-256 in hexadecimal digits. */
  integrity?: string | undefined;
  fetchOptions?: RequestInit | undefined;
  /** Default: the global fetch. */
  fetch?: typeof fetch;
}

/** A file at an address. */
export class HttpSource implements ByteSource {
  size: number | undefined;
  validator: string | undefined;
  private etag: string | null | undefined;
  private modified: string | null = null;
  private first: Connection | undefined;
  /**
   * Whether some response came from another origin. `If-Range` would then need the consent (CORS)
   * of every server involved, which CDNs do not give.
   */
  private foreign: boolean;
  /** Do not use range requests: the server's ranges are not reliable. */
  private whole = false;

  constructor(
    readonly url: string,
    private readonly options: HttpOptions = {},
  ) {
    this.foreign = isForeign(url);
  }

  get name(): string {
    return decodeURIComponent(new URL(this.url).pathname.split("/").pop() || this.url);
  }

  async open(): Promise<void> {
    if (this.first || this.validator !== undefined || this.size !== undefined) return;
    for (let failures = 0; ; ) {
      try {
        this.first = await this.request(0);
        return;
      } catch (e) {
        failures = await this.retryOrThrow(e, failures, 0);
      }
    }
  }

  /** Closes a connection that `open` made and that was not read. */
  cancel(): void {
    this.first?.close();
    this.first = undefined;
  }

  async *stream(offset = 0): AsyncGenerator<Uint8Array<ArrayBuffer>> {
    const { signal, onBytes, integrity } = this.options;
    const hash = integrity && offset === 0 ? new Sha256() : undefined;
    let at = offset;
    let failures = 0;
    for (;;) {
      let connection: Connection | undefined;
      let reader: ChunkReader | undefined;
      try {
        throwIfAborted(signal);
        connection = at === 0 ? this.first : undefined;
        if (at === 0) this.first = undefined;
        connection ??= await this.request(at);
        // A server without ranges sends the whole file again: skip what has arrived.
        let skip = connection.response.status === 206 ? 0 : at;
        reader = readerOf(connection.response.body!);
        for (;;) {
          const { done, value } = await connection.wait(reader.read());
          if (done) break;
          let chunk = value!;
          if (skip > 0) {
            const n = Math.min(skip, chunk.length);
            skip -= n;
            chunk = chunk.subarray(n);
          }
          if (!chunk.length) continue;
          at += chunk.length;
          if (this.size !== undefined && at > this.size)
            throw new ModelError(
              `the server sent more than its ${this.size} bytes`,
              this.url,
              "Load it again; if that does not help, the server is at fault.",
            );
          failures = 0;
          hash?.update(chunk);
          onBytes?.(at, this.size);
          yield chunk;
        }
        if (this.size !== undefined && at < this.size)
          throw new Error(`the connection ended after ${at} of ${this.size} bytes`);
        this.size ??= at;
        if (hash) checkDigest(hash.hex(), integrity!, this.url);
        return;
      } catch (e) {
        failures = await this.retryOrThrow(e, failures, at);
      } finally {
        void reader?.cancel().catch(() => undefined);
        connection?.close();
      }
    }
  }

  private async request(from: number): Promise<Connection> {
    const { fetchOptions } = this.options;
    const headers = new Headers(fetchOptions?.headers);
    if (from > 0 && !this.whole) {
      headers.set("Range", `bytes=${from}-`);
      const strong = this.etag && !this.etag.startsWith("W/") ? this.etag : this.modified;
      if (strong && !this.foreign) headers.set("If-Range", strong);
    }
    const connection = await connect(
      this.url,
      { ...fetchOptions, headers },
      this.options.signal,
      this.options.fetch ?? fetch,
    );
    try {
      const { response } = connection;
      if (response.url) this.foreign ||= isForeign(response.url);
      if (!response.ok || !response.body) throw new NotFound(this.url, response.status);
      if (response.status === 206) this.continues(response, from);
      else this.begins(response, from);
      return connection;
    } catch (e) {
      connection.close();
      throw e;
    }
  }

  /** Checks a response with the whole file: the first one, or the same file again. */
  private begins({ headers }: Response, from: number): void {
    const length = headers.has("Content-Encoding") ? null : headers.get("Content-Length");
    const size = length !== null && /^\d+$/.test(length) ? Number(length) : undefined;
    if (from > 0 && !this.same(headers, size)) throw this.changed();
    this.size ??= size;
    if (this.etag !== undefined) return;
    this.etag = headers.get("ETag");
    this.modified = headers.get("Last-Modified");
    this.validator ??= this.etag ?? (this.modified || undefined);
  }

  /** Checks a partial response: it must state that it continues the same file. */
  private continues({ headers }: Response, from: number): void {
    const range = /^bytes (\d+)-(\d+)\/(\d+|\*)$/.exec(headers.get("Content-Range") ?? "");
    const size = range && range[3] !== "*" ? Number(range[3]) : undefined;
    if (from === 0)
      throw new NoContinuation("the server sent a part of the file that nobody asked for");
    if (
      range &&
      Number(range[1]) === from &&
      Number(range[2]) >= from &&
      (size === undefined || Number(range[2]) < size)
    ) {
      if (this.same(headers, size)) {
        this.size ??= size;
        return;
      }
      const tells =
        headers.has("ETag") ||
        (!this.etag && headers.has("Last-Modified")) ||
        (size !== undefined && this.size !== undefined && size !== this.size);
      if (tells) throw this.changed();
    }
    throw new NoContinuation(
      `the server's answer does not say that it continues the file from byte ${from} on`,
    );
  }

  /** Whether a response is of the same version as the first one. */
  private same(headers: Headers, size: number | undefined): boolean {
    if (size !== undefined && this.size !== undefined && size !== this.size) return false;
    if (this.etag) return headers.get("ETag") === this.etag;
    return !this.modified || headers.get("Last-Modified") === this.modified;
  }

  private changed(): ModelError {
    return new ModelError(
      "the file changed on the server while it was downloaded",
      this.url,
      "Load it again.",
    );
  }

  /** Waits before the next attempt, or throws. Returns the number of failures so far. */
  private async retryOrThrow(e: unknown, before: number, at: number): Promise<number> {
    const { signal } = this.options;
    if (signal?.aborted) throw aborted(signal);
    if (e instanceof NotFound) {
      if (e.status === 416 && at > 0) throw truncated(this.url, at, this.size);
      if (e.status < 500 && e.status !== 408 && e.status !== 429) throw e;
    } else if (isEdgewise(e)) throw e;
    if (e instanceof NoContinuation) this.whole = true;
    const failures = before + (e instanceof Silence ? 2 : 1);
    if (failures >= ATTEMPTS) {
      if (e instanceof NotFound) throw e;
      if (at > 0) throw truncated(this.url, at, this.size, message(e));
      throw new ModelError(
        `it could not be fetched (${message(e)})`,
        this.url,
        networkRemedy(
          "Check the address and the network; a file from another site needs CORS headers there.",
        ),
      );
    }
    await sleep(FIRST_PAUSE_MS * 2 ** (failures - 1), signal);
    return failures;
  }
}

/**
 * Downloads one of Edgewise's own files, or of Pyodide's.
 * @param what its name for errors
 * @throws EngineError
 */
export async function bytesOf(
  url: string,
  what: string,
  remedy: string,
  options: HttpOptions = {},
): Promise<Uint8Array<ArrayBuffer>> {
  try {
    return await readAll(new HttpSource(url, options));
  } catch (e) {
    if (e instanceof NotFound || e instanceof ModelError)
      throw new EngineError(
        `${what} could not be fetched (${e instanceof NotFound ? `HTTP ${e.status}` : e.what})`,
        url,
        e instanceof NotFound ? remedy : networkRemedy(remedy),
      );
    throw e;
  }
}

function truncated(url: string, at: number, size: number | undefined, why = ""): EdgewiseError {
  return new ModelError(
    `the download broke off after ${megabytes(at)}` +
      (size === undefined ? "" : ` of ${megabytes(size)}`) +
      `${why && ` (${why})`}, several times`,
    url,
    "Check the network and load it again; if it always stops at the same place, the file on " +
      "the server is truncated.",
  );
}
