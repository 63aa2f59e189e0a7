// What the sources of a model's bytes have in common: reading them as a stream.

import { type EdgewiseError, ModelError } from "../errors.ts";
import { megabytes } from "../words.ts";

/** A file's bytes, wherever they are. */
export interface ByteSource {
  /** For people and errors: a file name or an address. */
  readonly name: string;
  /** Bytes in all, where known before the first of them has arrived. */
  readonly size: number | undefined;
  /** What changes when the content does (an ETag, say). Undefined where nothing tells. */
  readonly validator: string | undefined;
  /**
   * Resolves once `size` and `validator` are known, if they can be. Throws where the source is not
   * there.
   */
  open(): Promise<void>;
  /**
   * The bytes from `offset` on, to the end. A chunk is good until the next one is asked for: it may
   * lie in the same memory.
   */
  stream(offset?: number): AsyncGenerator<Uint8Array<ArrayBuffer>>;
}

/** Gets bytes so far, and in all where that is known. */
export type OnBytes = (loaded: number, total: number | undefined) => void;

/** Whether it is an error of ours. */
export function isEdgewise(e: unknown): e is EdgewiseError {
  return e instanceof Error && "what" in e && "remedy" in e;
}

/** @throws ModelError: the bytes are not those that were to come */
export function checkDigest(found: string, wanted: string, where: string): void {
  if (found !== wanted)
    throw new ModelError(
      `its SHA-256 is ${found}, not ${wanted}`,
      where,
      "The file was damaged or replaced. Fetch it again, or correct the integrity option.",
    );
}

/** A stream's reader. */
export interface ChunkReader {
  read(): Promise<{ done: boolean; value?: Uint8Array<ArrayBuffer> | undefined }>;
  cancel(): Promise<void>;
}

export const PIECE = 1 << 20;

/**
 * Reads a response into one buffer again and again, where the browser can do that: chunks of their
 * own pile up by the hundreds of MB before they are collected.
 */
export function readerOf(body: ReadableStream<Uint8Array<ArrayBuffer>>): ChunkReader {
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
