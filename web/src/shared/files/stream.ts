// The interface of sources of a model's bytes.

import { type EdgewiseError, ModelError } from "../errors.ts";
import { megabytes } from "../words.ts";

/** A source of a file's bytes. */
export interface ByteSource {
  /** File name or address, for display and errors. */
  readonly name: string;
  /** Total size in bytes; undefined if unknown before the end. */
  readonly size: number | undefined;
  /** Identifies the version of the content (such as an ETag); undefined if unknown. */
  readonly validator: string | undefined;
  /**
   * Determines `size` and `validator`, if possible.
   * @throws if the source does not exist
   */
  open(): Promise<void>;
  /**
   * Streams the bytes from `offset` on. A chunk is valid until the next one is requested: chunks
   * may share memory.
   */
  stream(offset?: number): AsyncGenerator<Uint8Array<ArrayBuffer>>;
  /**
   * The whole file, of sources that keep it; undefined while it is not there, or not verified. It
   * is after `stream` has been read, unless it could not be kept.
   */
  asFile?(): Promise<Blob | undefined>;
}

/** Receives the bytes loaded so far, and the total if known. */
export type OnBytes = (loaded: number, total: number | undefined) => void;

/** Whether `e` is an EdgewiseError, possibly of another copy of this module. */
export function isEdgewise(e: unknown): e is EdgewiseError {
  return e instanceof Error && "what" in e && "remedy" in e;
}

/** @throws ModelError if the digests differ */
export function checkDigest(
  found: string,
  wanted: string,
  where: string,
  algorithm = "SHA-256",
): void {
  if (found !== wanted)
    throw new ModelError(
      `its ${algorithm} is ${found}, not ${wanted}`,
      where,
      "The file was damaged or replaced. Fetch it again, or correct the integrity option.",
    );
}

/** Reads a stream chunk by chunk. */
export interface ChunkReader {
  read(): Promise<{ done: boolean; value?: Uint8Array<ArrayBuffer> | undefined }>;
  cancel(): Promise<void>;
}

export const PIECE = 1 << 20;

/**
 * Makes a reader of a response that reuses one buffer where the browser supports BYOB readers;
 * separately allocated chunks accumulate to hundreds of megabytes before they are collected.
 */
export function readerOf(body: ReadableStream<Uint8Array<ArrayBuffer>>): ChunkReader {
  let reader: ReadableStreamBYOBReader;
  try {
    reader = body.getReader({ mode: "byob" });
  } catch {
    return body.getReader(); // not a byte stream
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

/**
 * Reads a small source completely.
 * @throws ModelError if it is larger than `limit` bytes
 */
export async function readAll(
  source: ByteSource,
  limit = 1 << 30,
): Promise<Uint8Array<ArrayBuffer>> {
  await source.open();
  const parts: Uint8Array<ArrayBuffer>[] = [];
  let total = 0;
  for await (const chunk of source.stream()) {
    total += chunk.length;
    if (total > limit)
      throw new ModelError(
        `it is larger than ${megabytes(limit)}`,
        source.name,
        "Is it the right file?",
      );
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
