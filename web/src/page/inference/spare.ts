// Buffers in which feeds travel to the worker. The worker returns them after reading, so that the
// next run copies its feeds into existing memory: allocating new buffers and collecting them later
// takes several times as long as the copy.

/** The buffers of the last run, by size. */
export class SpareBuffers {
  private readonly bySize = new Map<number, ArrayBuffer[]>();

  /** A copy of `bytes`, in a spare buffer of exactly this size if there is one. */
  copy(bytes: Uint8Array<ArrayBuffer>): Uint8Array<ArrayBuffer> {
    const spare = this.bySize.get(bytes.length)?.pop();
    if (!spare) return bytes.slice();
    const copy = new Uint8Array(spare);
    copy.set(bytes);
    return copy;
  }

  /** Replaces the spare buffers by those of the latest run. */
  renew(buffers: readonly ArrayBuffer[]): void {
    this.bySize.clear();
    for (const buffer of buffers) {
      const same = this.bySize.get(buffer.byteLength);
      if (same) same.push(buffer);
      else this.bySize.set(buffer.byteLength, [buffer]);
    }
  }
}
