// Checksums of a downloaded file in the cache: a digest per PIECE bytes, computed by the browser on
// another thread while streaming, so that damage in the cache is detected when the file is read.

import { PIECE } from "../../gen/manifest.ts";

const DIGITS = 32; // of each digest are stored

/** Computes the digests of a stream. */
export class PieceSums {
  private readonly piece = new Uint8Array(PIECE);
  private filled = 0;
  private readonly digests: Promise<ArrayBuffer>[] = [];

  /** Whether digests can be computed; this requires a secure context. */
  static get possible(): boolean {
    return globalThis.crypto?.subtle !== undefined;
  }

  /** Adds bytes. */
  add(chunk: Uint8Array): void {
    for (let at = 0; at < chunk.length; ) {
      const n = Math.min(chunk.length - at, PIECE - this.filled);
      if (n === PIECE)
        this.digest(chunk.subarray(at, at + n)); // a whole piece need not be copied
      else {
        this.piece.set(chunk.subarray(at, at + n), this.filled);
        this.filled += n;
        if (this.filled === PIECE) this.flush();
      }
      at += n;
    }
  }

  /** The digests of all bytes added, in hexadecimal digits. */
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

  /** Starts a digest. The browser copies the bytes before this returns. */
  private digest(bytes: Uint8Array): void {
    const digest = crypto.subtle.digest("SHA-256", bytes as Uint8Array<ArrayBuffer>);
    digest.catch(() => undefined); // reported by `finish`
    this.digests.push(digest);
  }
}
