// Sources of a model's bytes: an address (http.ts), a Blob (blobs.ts) or the page's memory, read as
// a stream from any offset. Truncated downloads and checksum mismatches are errors.

import { throwIfAborted } from "../abort.ts";
import { ModelError } from "../errors.ts";
import { stalled, within } from "../watchdog.ts";
import { BLOB_PIECE, BlobReader } from "./blobs.ts";
import { type ByteSource, type OnBytes, PIECE } from "./stream.ts";

/** A file that the user chose, or one in the browser's storage. */
export class BlobSource implements ByteSource {
  readonly size: number;
  readonly validator: undefined;

  constructor(
    readonly blob: Blob,
    readonly name: string,
    private readonly options: {
      signal?: AbortSignal | undefined;
      onBytes?: OnBytes | undefined;
    } = {},
  ) {
    this.size = blob.size;
  }

  async open(): Promise<void> {}

  async asFile(): Promise<Blob> {
    return this.blob;
  }

  async *stream(offset = 0): AsyncGenerator<Uint8Array<ArrayBuffer>> {
    const { signal, onBytes } = this.options;
    const reader = new BlobReader(this.blob, this.name, true);
    try {
      for (let at = offset; at < this.size; ) {
        throwIfAborted(signal);
        const piece = await reader.read(at, BLOB_PIECE);
        at += piece.length;
        onBytes?.(at, this.size);
        yield piece;
      }
    } finally {
      reader.close();
    }
  }

  /** Reads only the given ranges of the file. */
  async gather(extents: readonly Extent[]): Promise<void> {
    const { signal, onBytes } = this.options;
    await gather(this.blob, extents, this.name, { signal, onBytes });
    onBytes?.(this.size, this.size);
  }
}

/**
 * Serves bytes of the page's memory to a worker, piece by piece, in two buffers that are sent back
 * and forth. Posting the bytes would copy them twice and hold them three times; a Blob would pass
 * them through another process, which has room for about 500 MB in a private window.
 */
export function hand(bytes: Uint8Array, name: string): Handed {
  const { port1, port2 } = new MessageChannel();
  port1.onmessage = ({
    data: { at, buffer },
  }: MessageEvent<{ at: number; buffer: ArrayBuffer }>) => {
    // empty once its buffer has been transferred elsewhere
    const piece = bytes.length ? bytes.subarray(at, at + buffer.byteLength) : bytes;
    if (piece.length) new Uint8Array(buffer).set(piece);
    port1.postMessage({ buffer, length: piece.length }, [buffer]);
  };
  return { name, size: bytes.length, port: port2 };
}

/** The worker's side of `hand`. At most one stream at a time. */
export class HandedSource implements ByteSource {
  readonly size: number;
  readonly name: string;
  readonly validator: undefined;

  constructor(
    private readonly handed: Handed,
    private readonly options: {
      signal?: AbortSignal | undefined;
      onBytes?: OnBytes | undefined;
    } = {},
  ) {
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
        if (!arrived.length)
          await within(new Promise<void>((resolve) => (wake = resolve)), () =>
            stalled(
              "the page's thread, which has the file's bytes,",
              this.name,
              "Let the page's thread come to its event loop while a model loads.",
            ),
          );
        const { buffer, length } = arrived.shift()!;
        if (length < Math.min(PIECE, this.size - at))
          throw new ModelError(
            `its bytes end at ${at + length} of ${this.size}`,
            this.name,
            "The buffer was transferred to another thread while it was read: give one that " +
              "stays, or a copy.",
          );
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
const BLOB_PART = 8 << 20;

/** Copies a source to a Blob, which the browser may store outside of this thread's memory. */
export async function toBlob(source: ByteSource): Promise<Blob> {
  if (source instanceof BlobSource) return source.blob;
  const parts: Blob[] = [];
  const buffer = new Uint8Array(Math.max(1, Math.min(BLOB_PART, source.size ?? BLOB_PART)));
  let filled = 0;
  for await (const chunk of source.stream()) {
    for (let at = 0; at < chunk.length; ) {
      const n = Math.min(chunk.length - at, buffer.length - filled);
      buffer.set(chunk.subarray(at, at + n), filled);
      at += n;
      filled += n;
      if (filled < buffer.length) continue;
      parts.push(new Blob([buffer]));
      filled = 0;
    }
  }
  return new Blob([...parts, buffer.subarray(0, filled)]);
}

/** A destination for a range of a stream, which begins at offset `start`. */
export interface Extent {
  start: number;
  bytes: number;
  write(chunk: Uint8Array, at: number): void;
}

/**
 * Distributes the bytes of a stream, which begins at offset `from`, to extents. Reads the stream to
 * its end, so that checksums and caches see all of it.
 * @returns the offset reached
 */
export async function scatter(
  stream: AsyncIterable<Uint8Array>,
  from: number,
  extents: Extent[],
  limit = Infinity,
): Promise<number> {
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
    if (at > limit)
      throw new ModelError(`more than ${limit} bytes arrived`, "", "Fetch the file again.");
  }
  return at;
}

/**
 * Reads ranges of a Blob to their destinations, in ascending order.
 * @throws ModelError if the Blob ends too early, or cannot be read
 */
export async function gather(
  blob: Blob,
  extents: readonly Extent[],
  name: string,
  { signal, onBytes }: { signal?: AbortSignal | undefined; onBytes?: OnBytes | undefined } = {},
): Promise<void> {
  const end = extents.reduce((most, e) => Math.max(most, e.start + e.bytes), 0);
  if (end > blob.size) throw endsEarly(name, end);
  const reader = new BlobReader(blob, name, true);
  try {
    for (const { start, bytes, write } of [...extents].sort((a, b) => a.start - b.start))
      for (let at = 0; at < bytes; ) {
        throwIfAborted(signal);
        const piece = await reader.read(start + at, bytes - at);
        write(piece, at);
        at += piece.length;
        onBytes?.(start + at, blob.size);
      }
  } finally {
    reader.close();
  }
}

/** The error for a truncated model file. */
export function endsEarly(file: string, end: number): ModelError {
  return new ModelError(
    `it ends too early: its weights reach to byte ${end}`,
    file,
    "The file is truncated; fetch it again.",
  );
}

/** Bytes in the page's memory, which are sent on request (`hand`). */
export interface Handed {
  name: string;
  size: number;
  port: MessagePort;
}
