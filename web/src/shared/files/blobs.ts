// Reads Blobs by `arrayBuffer()` in pieces of some megabytes. Blob streams are not used: Chromium
// 156 stops delivering after about sixty streams with a BYOB reader, and each is a round trip to
// another process.

import { ModelError } from "../errors.ts";
import { seconds, stallTimeout, Watchdog } from "../watchdog.ts";

/** Size of a read, in bytes. */
export const BLOB_PIECE = 4 << 20;

/**
 * Reads ranges of a Blob. Consecutive small ranges are served from a buffer: reading in ascending
 * order takes one round trip per 4 MB of the file, however many ranges there are. At most one
 * `read` may be pending.
 */
export class BlobReader {
  private start = 0;
  private window: Uint8Array<ArrayBuffer> = new Uint8Array(0);
  private ahead: { start: number; bytes: Promise<ArrayBuffer> } | undefined;
  private late: (() => void) | undefined;
  private copies: Promise<unknown> = Promise.resolve();
  private readonly dog = new Watchdog(() => this.late?.());

  /**
   * @param blob the file
   * @param name name for errors
   * @param sequential prefetch the next piece, for files that are read from start to end
   */
  constructor(
    private readonly blob: Blob,
    private readonly name: string,
    private readonly sequential = false,
  ) {}

  /**
   * Reads at most `bytes` bytes from `offset` on; at least one, except at the end of the file.
   * @returns a view that is valid until the next call
   * @throws ModelError if the file can no longer be read
   */
  async read(offset: number, bytes: number): Promise<Uint8Array<ArrayBuffer>> {
    if (offset < this.start || offset >= this.start + this.window.length) await this.move(offset);
    return this.window.subarray(offset - this.start, offset - this.start + bytes);
  }

  /**
   * Copies a range, after the copies that were asked for before: each moves the buffer on.
   * @throws ModelError if the file can no longer be read, or ends before the range does
   */
  copy(offset: number, bytes: number): Promise<Uint8Array<ArrayBuffer>> {
    const copied = this.copies.then(() => this.copyNow(offset, bytes));
    this.copies = copied.catch(() => undefined);
    return copied;
  }

  private async copyNow(offset: number, bytes: number): Promise<Uint8Array<ArrayBuffer>> {
    if (offset + bytes > this.blob.size)
      throw new ModelError(
        `it ends at byte ${this.blob.size}, ${offset + bytes} are required`,
        this.name,
        "The file is truncated; fetch it again.",
      );
    const out = new Uint8Array(bytes);
    for (let at = 0; at < bytes; ) {
      const piece = await this.read(offset + at, bytes - at);
      out.set(piece, at);
      at += piece.length;
    }
    return out;
  }

  /** Frees the buffers. */
  close(): void {
    this.release();
    this.ahead?.bytes.then(free, () => undefined);
    this.ahead = undefined;
  }

  private async move(offset: number): Promise<void> {
    this.release();
    const { ahead } = this;
    const fits = ahead && offset >= ahead.start && offset < ahead.start + BLOB_PIECE;
    const start = fits ? ahead.start : offset;
    const next = fits ? ahead.bytes : this.fetch(offset);
    this.ahead = undefined;
    const bytes = await this.waited(next);
    this.start = start;
    this.window = new Uint8Array(bytes);
    if (!bytes.byteLength && offset < this.blob.size)
      throw new ModelError(
        `it ends at byte ${offset}, before its ${this.blob.size} bytes`,
        this.name,
        "It was changed since it was chosen: choose it again.",
      );
    const after = start + bytes.byteLength;
    if (!this.sequential || after >= this.blob.size || !bytes.byteLength) return;
    this.ahead = { start: after, bytes: this.fetch(after) };
    this.ahead.bytes.catch(() => undefined);
  }

  private fetch(offset: number): Promise<ArrayBuffer> {
    return this.blob.slice(offset, Math.min(offset + BLOB_PIECE, this.blob.size)).arrayBuffer();
  }

  private waited(bytes: Promise<ArrayBuffer>): Promise<ArrayBuffer> {
    return new Promise((resolve, reject) => {
      const fail = (why: string) =>
        reject(
          new ModelError(
            `the file could not be read (${why})`,
            this.name,
            "It may have been changed, moved or deleted since it was chosen: choose it again.",
          ),
        );
      this.late = () => fail(`the browser did not deliver it within ${seconds(stallTimeout())}`);
      this.dog.wake();
      bytes
        .finally(() => this.dog.stop())
        .then(resolve, (e: unknown) => fail(e instanceof Error ? e.message : String(e)));
    });
  }

  private release(): void {
    if (this.window.length) free(this.window.buffer);
    this.window = new Uint8Array(0);
    this.start = 0;
  }
}

let nowhere: MessagePort | undefined;

/**
 * Frees a buffer immediately: left to the garbage collector, pieces of large files would accumulate
 * to as much as the file. A message that no one receives takes it along; `transfer(0)` detaches it
 * but leaves its memory to the collector, in Chromium.
 */
export function free(buffer: ArrayBuffer): void {
  if (!nowhere) {
    const { port1, port2 } = new MessageChannel();
    port2.close();
    nowhere = port1;
  }
  nowhere.postMessage(undefined, [buffer]);
}
