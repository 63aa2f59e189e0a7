// Downloads a file as a stream from any offset. An interrupted or silent connection is resumed
// where it stopped, provided that the server confirms that it continues the same file. A large file
// of known size arrives over several connections (parts.ts).

import { aborted, sleep, throwIfAborted } from "../abort.ts";
import { type EdgewiseError, EngineError, ModelError } from "../errors.ts";
import { Sha256 } from "../sha256.ts";
import { megabytes, message, networkRemedy } from "../words.ts";
import { type Connection, connect, NotFound, Silence } from "./connection.ts";
import { inOrder, NoContinuation, PART } from "./parts.ts";
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

/** Smallest number of bytes that are worth several connections. */
const PARALLEL_FROM = 32 << 20;

/** What is known of a file before it is requested. */
export interface KnownFile {
  /** Size in bytes. */
  size: number;
  /** Identifies the content: `sha256-` or `git-` and the digest in hexadecimal digits. */
  version: string;
}

/** Options of a download. */
export interface HttpOptions {
  signal?: AbortSignal | undefined;
  onBytes?: OnBytes | undefined;
  /** Expected SHA-256 in hexadecimal digits. */
  integrity?: string | undefined;
  fetchOptions?: RequestInit | undefined;
  /** Default: the global fetch. */
  fetch?: typeof fetch;
  /** Of a file of which this is known, `open` requests nothing. */
  known?: KnownFile | undefined;
  /** Number of attempts without progress. Default: 5. */
  attempts?: number;
}

/** A file at an address. */
export class HttpSource implements ByteSource {
  size: number | undefined;
  validator: string | undefined;
  private etag: string | null | undefined;
  /** The server has answered. */
  private answered = false;
  private modified: string | null = null;
  /** An open connection for the bytes from `at` on, up to `end` if that is given. */
  private first: { at: number; end?: number | undefined; connection: Connection } | undefined;
  /** Do not use range requests: the server's ranges are not reliable. */
  private whole = false;
  /** Do not use several connections. */
  private single = false;

  constructor(
    readonly url: string,
    private readonly options: HttpOptions = {},
  ) {
    this.size = options.known?.size;
    this.validator = options.known?.version;
  }

  get name(): string {
    return decodeURIComponent(new URL(this.url).pathname.split("/").pop() || this.url);
  }

  async open(): Promise<void> {
    if (this.first || this.validator !== undefined || this.size !== undefined) return;
    for (let failures = 0; ; ) {
      try {
        this.first = { at: 0, connection: await this.request(0) };
        return;
      } catch (e) {
        failures = await this.retryOrThrow(e, failures, 0);
      }
    }
  }

  /**
   * Opens a file whose first `have` bytes are available, to be read from there on.
   * @param have bytes that are available, less than `size`
   * @param validator of the version that they belong to, likewise `size`
   * @returns whether the server has this version; else the file is open from its beginning on
   */
  async resume(have: number, validator: string, size: number): Promise<boolean> {
    const tag = validator.includes('"');
    this.etag = tag ? validator : null;
    if (!tag) this.modified = validator;
    this.validator = validator;
    this.size = size;
    for (let failures = 0; ; ) {
      try {
        this.first = await this.begin(have);
        return true;
      } catch (e) {
        throwIfAborted(this.options.signal);
        try {
          failures = await this.retryOrThrow(e, failures, have);
        } catch (last) {
          if (!(last instanceof ModelError) || !this.answered) throw last;
          [this.etag, this.modified, this.validator, this.size] = [
            undefined,
            null,
            undefined,
            undefined,
          ];
          await this.open();
          return false;
        }
      }
    }
  }

  /** Closes a connection that `open` made and that was not read. */
  cancel(): void {
    this.first?.connection.close();
    this.first = undefined;
  }

  async *stream(offset = 0): AsyncGenerator<Uint8Array<ArrayBuffer>> {
    const { signal, integrity } = this.options;
    const hash = integrity && offset === 0 ? new Sha256() : undefined;
    let at = offset;
    for (let failures = 0; ; ) {
      try {
        throwIfAborted(signal);
        for await (const chunk of this.attempt(at)) {
          at += chunk.length;
          failures = 0;
          hash?.update(chunk);
          yield chunk;
        }
        this.size ??= at;
        if (hash) checkDigest(hash.hex(), integrity!, this.url);
        return;
      } catch (e) {
        failures = await this.retryOrThrow(e, failures, at);
      }
    }
  }

  /** Streams the bytes from `at` on until something fails. */
  private async *attempt(at: number): AsyncGenerator<Uint8Array<ArrayBuffer>> {
    const first = this.first?.at === at ? this.first : undefined;
    if (!first) this.cancel();
    this.first = undefined;
    const { connection, end } = first ?? (await this.begin(at));
    // a server without ranges answers with the whole file
    if (end === undefined || connection.response.status !== 206) yield* this.chunks(connection, at);
    else
      yield* inOrder(at, this.size!, connection, {
        request: (from, to) => this.request(from, to),
        retry: (e, failures, from) => this.retryOrThrow(e, failures, from),
        onBytes: (received) => this.options.onBytes?.(received, this.size),
      });
  }

  /** Requests the bytes from `at` on: a part of them, if several connections are to be used. */
  private async begin(at: number): Promise<NonNullable<HttpSource["first"]>> {
    const many =
      !this.whole && !this.single && this.size !== undefined && this.size - at >= PARALLEL_FROM;
    const end = many ? at + PART : undefined;
    try {
      return { at, end, connection: await this.request(at, end) };
    } catch (e) {
      // the server may be one that browsers do not allow to be asked for ranges
      if (end !== undefined && e instanceof TypeError) this.single = true;
      throw e;
    }
  }

  /** Reads one connection to its end. */
  private async *chunks(
    connection: Connection,
    from: number,
  ): AsyncGenerator<Uint8Array<ArrayBuffer>> {
    let at = from;
    // A server without ranges sends the whole file again: skip what has arrived.
    let skip = connection.response.status === 206 ? 0 : at;
    let reader: ChunkReader | undefined;
    try {
      reader = readerOf(connection.response.body!);
      for (;;) {
        const { done, value } = await connection.wait(reader.read());
        if (done) break;
        const skipped = Math.min(skip, value!.length);
        const chunk = value!.subarray(skipped);
        skip -= skipped;
        if (!chunk.length) continue;
        at += chunk.length;
        if (this.size !== undefined && at > this.size)
          throw new ModelError(
            `the server sent more than its ${this.size} bytes`,
            this.url,
            "Load it again; if that does not help, the server is at fault.",
          );
        this.options.onBytes?.(at, this.size);
        yield chunk;
      }
      if (this.size !== undefined && at < this.size)
        throw new Error(`the connection ended after ${at} of ${this.size} bytes`);
    } finally {
      void reader?.cancel().catch(() => undefined);
      connection.close();
    }
  }

  /** Requests the bytes from `from` on, up to `to` if that is given. */
  private async request(from: number, to?: number): Promise<Connection> {
    const { fetchOptions } = this.options;
    const headers = new Headers(fetchOptions?.headers);
    const ranged = (from > 0 || to !== undefined) && !this.whole;
    // Without If-Range, which CDNs do not allow (CORS): `continues` compares the versions.
    if (ranged) headers.set("Range", `bytes=${from}-${to === undefined ? "" : to - 1}`);
    const connection = await connect(
      this.url,
      // the HTTP cache of Chromium would serve ranges of one file one after the other
      { ...fetchOptions, headers, ...(to === undefined ? {} : { cache: "no-store" }) },
      this.options.signal,
      this.options.fetch ?? fetch,
    );
    try {
      const { response } = connection;
      this.answered = true;
      if (!response.ok || !response.body) throw new NotFound(this.url, response.status);
      if (response.status === 206) this.continues(response, from, ranged);
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
    if ((from > 0 || this.etag === undefined) && !this.same(headers, size)) throw this.changed();
    this.identify(headers, size);
  }

  /** Notes the version of the first response. */
  private identify(headers: Headers, size: number | undefined): void {
    this.size ??= size;
    if (this.etag !== undefined) return;
    this.etag = headers.get("ETag");
    this.modified = headers.get("Last-Modified");
    this.validator ??= this.etag ?? (this.modified || undefined);
  }

  /** Checks a partial response: it must state that it continues the same file. */
  private continues({ headers }: Response, from: number, asked: boolean): void {
    const range = /^bytes (\d+)-(\d+)\/(\d+|\*)$/.exec(headers.get("Content-Range") ?? "");
    const size = range && range[3] !== "*" ? Number(range[3]) : undefined;
    if (!asked)
      throw new NoContinuation("the server sent a part of the file that nobody asked for");
    if (
      range &&
      Number(range[1]) === from &&
      Number(range[2]) >= from &&
      (size === undefined || Number(range[2]) < size)
    ) {
      if (this.same(headers, size)) {
        this.identify(headers, size);
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
    if (failures >= (this.options.attempts ?? ATTEMPTS)) {
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
