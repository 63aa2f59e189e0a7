// Buffers that feeds travel to the worker in. The worker sends them back when it has read them, so
// that the next run's feeds are copied into memory that is there already: allocating new memory and
// collecting it later takes several times as long as the copy.

/** Buffers of the last run, by size. */
export class SpareBuffers {
  private readonly bySize = new Map<number, ArrayBuffer[]>();

  /** A copy of `bytes`, in a spare buffer where there is one of just this size. */
  copy(bytes: Uint8Array<ArrayBuffer>): Uint8Array<ArrayBuffer> {
    const spare = this.bySize.get(bytes.length)?.pop();
    if (!spare) return bytes.slice();
    const copy = new Uint8Array(spare);
    copy.set(bytes);
    return copy;
  }

  /** Takes back the buffers of a run; those that it did not use are let go. */
  renew(buffers: readonly ArrayBuffer[]): void {
    this.bySize.clear();
    for (const buffer of buffers) {
      const same = this.bySize.get(buffer.byteLength);
      if (same) same.push(buffer);
      else this.bySize.set(buffer.byteLength, [buffer]);
    }
  }
}
