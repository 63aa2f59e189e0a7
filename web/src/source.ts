// Where the bytes of a model come from: an address or a Blob, read as a stream from any offset. A connection that breaks is taken up
// again where it broke; a download that ends early, or that is not what its checksum says, is an error and never a short result.

import { Aborted, ModelError, type EdgewiseError } from "./errors.ts";
import { megabytes, message } from "./engine.ts";
import { Sha256 } from "./sha256.ts";

/** A file's bytes, wherever they are. */
export interface ByteSource {
  /** For people and errors: a file name or an address. */
  readonly name: string;
  /** Bytes in all, where known before the first of them has arrived. */
  readonly size: number | undefined;
  /** What changes when the content does (an ETag, say). Undefined where nothing tells. */
  readonly validator: string | undefined;
  /** Resolves once `size` and `validator` are known, if they can be. Throws where the source is not there. */
  open(): Promise<void>;
  /** The bytes from `offset` on, to the end. A chunk is good until the next one is asked for: it may lie in the same memory. */
  stream(offset?: number): AsyncGenerator<Uint8Array<ArrayBuffer>>;
}

/** Gets bytes so far, and in all where that is known. */
export type OnBytes = (loaded: number, total: number | undefined) => void;

/** Why an attempt failed for good. */
export class NotFound extends Error {
  constructor(readonly url: string, readonly status: number) {
    super(`HTTP ${status}`);
  }
}

const ATTEMPTS = 5;
const FIRST_PAUSE_MS = 150;

/** The Aborted for a signal, with its reason's words. */
export function aborted(signal: AbortSignal | undefined): Aborted {
  const reason: unknown = signal?.reason;
  const words = reason instanceof Error && reason.name !== "AbortError" ? reason.message : typeof reason === "string" ? reason : "the work was stopped";
  return new Aborted(words, "", "");
}

/** @throws Aborted */
export function throwIfAborted(signal: AbortSignal | undefined): void {
  if (signal?.aborted) throw aborted(signal);
}

function sleep(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    const stop = () => (clearTimeout(timer), reject(aborted(signal)));
    const timer = setTimeout(() => (signal?.removeEventListener("abort", stop), resolve()), ms);
    signal?.addEventListener("abort", stop, { once: true });
  });
}

/** A file at an address. */
export class HttpSource implements ByteSource {
  size: number | undefined;
  validator: string | undefined;
  private strong: string | undefined;
  private first: Response | undefined;

  constructor(
    readonly url: string,
    private readonly options: { signal?: AbortSignal | undefined; onBytes?: OnBytes | undefined; integrity?: string | undefined; fetchOptions?: RequestInit | undefined } = {},
  ) {}

  get name(): string {
    return decodeURIComponent(new URL(this.url).pathname.split("/").pop() || this.url);
  }

  async open(): Promise<void> {
    if (this.first || this.validator !== undefined || this.size !== undefined) return;
    for (let attempt = 1; ; attempt++) {
      try {
        this.first = await this.request(0);
        return;
      } catch (e) {
        await this.retryOrThrow(e, attempt, 0);
      }
    }
  }

  /** Lets go of a connection that `open` made and nobody read. */
  cancel(): void {
    void this.first?.body?.cancel().catch(() => undefined);
    this.first = undefined;
  }

  async *stream(offset = 0): AsyncGenerator<Uint8Array<ArrayBuffer>> {
    const { signal, onBytes, integrity } = this.options;
    const hash = integrity && offset === 0 ? new Sha256() : undefined;
    let at = offset;
    let failures = 0;
    for (;;) {
      let reader: ChunkReader | undefined;
      try {
        throwIfAborted(signal);
        let response = at === 0 ? this.first : undefined;
        this.first = at === 0 ? undefined : this.first;
        response ??= await this.request(at);
        // A server without ranges sends all again: what we have is passed over.
        let skip = response.status === 206 ? 0 : at;
        reader = readerOf(response.body!);
        for (;;) {
          const { done, value } = await reader.read();
          if (done) break;
          let chunk = value!;
          if (skip > 0) {
            const n = Math.min(skip, chunk.length);
            skip -= n;
            chunk = chunk.subarray(n);
          }
          if (!chunk.length) continue;
          at += chunk.length;
          failures = 0;
          hash?.update(chunk);
          onBytes?.(at, this.size);
          yield chunk;
        }
        if (this.size !== undefined && at < this.size) throw new Error(`the connection ended after ${at} of ${this.size} bytes`);
        this.size ??= at;
        if (hash) checkDigest(hash.hex(), integrity!, this.url);
        return;
      } catch (e) {
        await this.retryOrThrow(e, ++failures, at);
      } finally {
        void reader?.cancel().catch(() => undefined);
      }
    }
  }

  private async request(from: number): Promise<Response> {
    const { signal, fetchOptions } = this.options;
    const headers = new Headers(fetchOptions?.headers);
    if (from > 0) {
      headers.set("Range", `bytes=${from}-`);
      if (this.strong) headers.set("If-Range", this.strong);
    }
    const response = await fetch(this.url, { ...fetchOptions, headers, signal: signal ?? null });
    if (!response.ok || !response.body) {
      void response.body?.cancel().catch(() => undefined);
      throw new NotFound(this.url, response.status);
    }
    const encoded = response.headers.has("Content-Encoding");
    const etag = response.headers.get("ETag");
    let size: number | undefined;
    if (response.status === 206) {
      const range = /^bytes (\d+)-\d+\/(\d+|\*)$/.exec(response.headers.get("Content-Range") ?? "");
      if (range && Number(range[1]) !== from) throw new Error(`asked for bytes from ${from}, got them from ${range[1]}`);
      if (range && range[2] !== "*") size = Number(range[2]);
    } else if (!encoded) {
      const length = response.headers.get("Content-Length");
      if (length !== null && /^\d+$/.test(length)) size = Number(length);
    }
    const validator = etag ?? (response.headers.get("Last-Modified") || undefined);
    if (from > 0 && ((size !== undefined && this.size !== undefined && size !== this.size) || (validator && this.validator && validator !== this.validator))) {
      void response.body.cancel().catch(() => undefined);
      throw new ModelError("the file changed on the server while it was downloaded", this.url, "Load it again.");
    }
    this.size ??= size;
    this.validator ??= validator;
    this.strong ??= etag && !etag.startsWith("W/") ? etag : (response.headers.get("Last-Modified") ?? undefined);
    return response;
  }

  private async retryOrThrow(e: unknown, failures: number, at: number): Promise<void> {
    const { signal } = this.options;
    if (signal?.aborted) throw aborted(signal);
    if (e instanceof NotFound) {
      if (e.status === 416 && at > 0) throw truncated(this.url, at, this.size);
      if (e.status < 500 && e.status !== 408 && e.status !== 429) throw e;
    } else if (isEdgewise(e)) throw e;
    if (failures >= ATTEMPTS) {
      if (e instanceof NotFound) throw e;
      if (at > 0) throw truncated(this.url, at, this.size, message(e));
      throw new ModelError(`it could not be fetched (${message(e)})`, this.url,
        "Check the address and the network; a file from another site needs CORS headers there.");
    }
    await sleep(FIRST_PAUSE_MS * 2 ** (failures - 1), signal);
  }
}

function truncated(url: string, at: number, size: number | undefined, why = ""): EdgewiseError {
  return new ModelError(
    `the download broke off after ${megabytes(at)}${size === undefined ? "" : ` of ${megabytes(size)}`}${why && ` (${why})`}, ${ATTEMPTS} times`, url,
    "Check the network and load it again; if it always stops at the same place, the file on the server is cut off.");
}

/** Whether it is an error of ours. */
export function isEdgewise(e: unknown): e is EdgewiseError {
  return e instanceof Error && "what" in e && "remedy" in e;
}

/** @throws ModelError: the bytes are not those that were to come */
export function checkDigest(found: string, wanted: string, where: string): void {
  if (found !== wanted)
    throw new ModelError(`its SHA-256 is ${found}, not ${wanted}`, where, "The file was damaged or replaced. Fetch it again, or correct the integrity option.");
}

/** A file the visitor gave, or one in the browser's storage. */
export class BlobSource implements ByteSource {
  readonly size: number;
  readonly validator: undefined;

  constructor(readonly blob: Blob, readonly name: string, private readonly options: { signal?: AbortSignal | undefined; onBytes?: OnBytes | undefined } = {}) {
    this.size = blob.size;
  }

  async open(): Promise<void> {}

  async *stream(offset = 0): AsyncGenerator<Uint8Array<ArrayBuffer>> {
    const { signal, onBytes } = this.options;
    const reader = readerOf(this.blob.slice(offset).stream());
    try {
      for (let at = offset; ; ) {
        throwIfAborted(signal);
        let piece;
        try {
          piece = await reader.read();
        } catch (e) {
          throw new ModelError(`the file could not be read (${message(e)})`, this.name, "It may have been changed, moved or deleted since it was chosen: choose it again.");
        }
        if (piece.done) break;
        at += piece.value!.length;
        onBytes?.(at, this.size);
        yield piece.value!;
      }
    } finally {
      void reader.cancel().catch(() => undefined);
    }
  }
}

/** Bytes that lie in this thread's memory. */
export class BytesSource implements ByteSource {
  readonly size: number;
  readonly validator: undefined;

  constructor(private readonly bytes: Uint8Array<ArrayBuffer>, readonly name: string, private readonly options: { signal?: AbortSignal | undefined; onBytes?: OnBytes | undefined } = {}) {
    this.size = bytes.length;
  }

  async open(): Promise<void> {}

  async *stream(offset = 0): AsyncGenerator<Uint8Array<ArrayBuffer>> {
    for (let at = offset; at < this.size; ) {
      throwIfAborted(this.options.signal);
      const piece = this.bytes.subarray(at, at + PIECE);
      at += piece.length;
      this.options.onBytes?.(at, this.size);
      yield piece;
    }
  }
}

/** Bytes of another thread's memory, which sends them when they are asked for (`hand`). */
export interface Handed { name: string; size: number; port: MessagePort }

/**
 * Lets a worker read bytes that stay here: piece by piece, in two buffers that go to and fro. Sent as they are they would be copied twice in one piece and be in memory three times; as a
 * Blob they would go to another process and back, which has room for some 500 MB in a private window.
 */
export function hand(bytes: Uint8Array, name: string): Handed {
  const { port1, port2 } = new MessageChannel();
  port1.onmessage = ({ data: { at, buffer } }: MessageEvent<{ at: number; buffer: ArrayBuffer }>) => {
    const piece = bytes.length ? bytes.subarray(at, at + buffer.byteLength) : bytes; // none, once its buffer has been given away
    if (piece.length) new Uint8Array(buffer).set(piece);
    port1.postMessage({ buffer, length: piece.length }, [buffer]);
  };
  return { name, size: bytes.length, port: port2 };
}

/** The worker's end of `hand`. One stream at a time. */
export class HandedSource implements ByteSource {
  readonly size: number;
  readonly name: string;
  readonly validator: undefined;

  constructor(private readonly handed: Handed, private readonly options: { signal?: AbortSignal | undefined; onBytes?: OnBytes | undefined } = {}) {
    ({ size: this.size, name: this.name } = handed);
  }

  async open(): Promise<void> {}

  async *stream(offset = 0): AsyncGenerator<Uint8Array<ArrayBuffer>> {
    const { signal, onBytes } = this.options;
    const { port } = this.handed;
    const arrived: { buffer: ArrayBuffer; length: number }[] = [];
    let wake = (): void => undefined;
    port.onmessage = ({ data }: MessageEvent<{ buffer: ArrayBuffer; length: number }>) => {
      arrived.push(data);
      wake();
    };
    let asked = offset;
    const ask = (buffer: ArrayBuffer) => {
      if (asked < this.size) port.postMessage({ at: asked, buffer }, [buffer]);
      asked += PIECE;
    };
    ask(new ArrayBuffer(PIECE));
    ask(new ArrayBuffer(PIECE));
    try {
      for (let at = offset; at < this.size; ) {
        throwIfAborted(signal);
        if (!arrived.length) await new Promise<void>((resolve) => (wake = resolve));
        const { buffer, length } = arrived.shift()!;
        if (length < Math.min(PIECE, this.size - at)) throw new ModelError(`its bytes end at ${at + length} of ${this.size}`, this.name, "The buffer was transferred to another thread while it was read: give one that stays, or a copy.");
        at += length;
        onBytes?.(at, this.size);
        yield new Uint8Array(buffer, 0, length);
        ask(buffer);
      }
    } finally {
      port.onmessage = null;
    }
  }
}

interface ChunkReader {
  read(): Promise<{ done: boolean; value?: Uint8Array<ArrayBuffer> | undefined }>;
  cancel(): Promise<void>;
}

const PIECE = 1 << 20;

/** Reads a stream into one buffer again and again, where the browser can do that: chunks of their own pile up by the hundreds of MB before they are collected. */
function readerOf(body: ReadableStream<Uint8Array<ArrayBuffer>>): ChunkReader {
  let reader: ReadableStreamBYOBReader;
  try {
    reader = body.getReader({ mode: "byob" });
  } catch {
    return body.getReader(); // no stream of bytes
  }
  let buffer = new ArrayBuffer(PIECE);
  return {
    async read() {
      const { done, value } = await reader.read(new Uint8Array(buffer));
      if (value) buffer = value.buffer;
      return { done, value };
    },
    cancel: () => reader.cancel(),
  };
}

/** All bytes of a source, for files that are small. */
export async function readAll(source: ByteSource, limit = 1 << 30): Promise<Uint8Array<ArrayBuffer>> {
  await source.open();
  const parts: Uint8Array<ArrayBuffer>[] = [];
  let total = 0;
  for await (const chunk of source.stream()) {
    total += chunk.length;
    if (total > limit) throw new ModelError(`it is larger than ${megabytes(limit)}`, source.name, "Is it the right file?");
    parts.push(chunk.slice());
  }
  if (parts.length === 1) return parts[0]!;
  const all = new Uint8Array(total);
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

/** A source's bytes in a Blob, which the browser may keep outside of this thread's memory. */
export async function toBlob(source: ByteSource): Promise<Blob> {
  if (source instanceof BlobSource) return source.blob;
  const parts: Blob[] = [];
  let pending: Uint8Array<ArrayBuffer>[] = [];
  let bytes = 0;
  for await (const chunk of source.stream()) {
    pending.push(chunk.slice());
    bytes += chunk.length;
    if (bytes > 8 << 20) {
      parts.push(new Blob(pending));
      [pending, bytes] = [[], 0];
    }
  }
  return new Blob([...parts, ...pending]);
}

/** A place for bytes of a stream: `start` is where they lie in it. */
export interface Extent {
  start: number;
  bytes: number;
  write(chunk: Uint8Array, at: number): void;
}

/** Hands the bytes of a stream, which begins at `from`, to the extents that want them. Reads it to its end, so that checksums and caches see all of it. Returns the offset that was reached. */
export async function scatter(stream: AsyncIterable<Uint8Array>, from: number, extents: Extent[], limit = Infinity): Promise<number> {
  const waiting = extents.filter((e) => e.bytes > 0).sort((a, b) => a.start - b.start);
  let active: Extent[] = [];
  let next = 0;
  let at = from;
  for await (const chunk of stream) {
    const end = at + chunk.length;
    while (next < waiting.length && waiting[next]!.start < end) active.push(waiting[next++]!);
    for (const e of active) {
      const lo = Math.max(at, e.start);
      const hi = Math.min(end, e.start + e.bytes);
      if (lo < hi) e.write(chunk.subarray(lo - at, hi - at), lo - e.start);
    }
    active = active.filter((e) => e.start + e.bytes > end);
    at = end;
    if (at > limit) throw new ModelError(`more than ${limit} bytes arrived`, "", "Fetch the file again.");
  }
  return at;
}
