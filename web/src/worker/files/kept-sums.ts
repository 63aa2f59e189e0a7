// Sums of a downloaded file that is kept for the next visit: a digest for every PIECE of its bytes,
// computed beside the stream (by the browser, on a thread of its own), so that what was damaged
// where it is kept is noticed when it is read again.

import { PIECE } from "../../gen/manifest.ts";

const DIGITS = 32; // of each digest that are kept

/** The digests of a stream of bytes. */
export class PieceSums {
  private readonly piece = new Uint8Array(PIECE);
  private filled = 0;
  private readonly digests: Promise<ArrayBuffer>[] = [];

  /** Whether this page can compute any: without a secure context it cannot. */
  static get possible(): boolean {
    return globalThis.crypto?.subtle !== undefined;
  }

  /** Takes the next bytes. */
  add(chunk: Uint8Array): void {
    for (let at = 0; at < chunk.length; ) {
      const n = Math.min(chunk.length - at, PIECE - this.filled);
      if (n === PIECE)
        this.digest(chunk.subarray(at, at + n)); // a whole one need not be copied
      else {
        this.piece.set(chunk.subarray(at, at + n), this.filled);
        this.filled += n;
        if (this.filled === PIECE) this.flush();
      }
      at += n;
    }
  }

  /** The digests, in hexadecimal digits, of all bytes that were added. */
  async finish(): Promise<string[]> {
    if (this.filled) this.flush();
    return (await Promise.all(this.digests)).map((d) =>
      Array.from(new Uint8Array(d, 0, DIGITS / 2), (b) => b.toString(16).padStart(2, "0")).join(""),
    );
  }

  private flush(): void {
    this.digest(this.piece.subarray(0, this.filled));
    this.filled = 0;
  }

  /** The browser copies the bytes before it returns. */
  private digest(bytes: Uint8Array): void {
    const digest = crypto.subtle.digest("SHA-256", bytes as Uint8Array<ArrayBuffer>);
    digest.catch(() => undefined); // told by `finish`
    this.digests.push(digest);
  }
}
