// Buffers that feeds travel to the worker in. The worker sends them back when it has read them, so
// that the next run's feeds are copied into memory that is there already: taking new memory from
// the system, and collecting it later, takes several times as long as the copy.

import type { NumberTensor } from "./values.ts";
import type { WireValue } from "./wire.ts";

/** Bytes from which on a buffer is worth its way back. */
export const MIN_SPARE = 1 << 16;

/** The page's end: buffers of the last run, by size. */
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

/**
 * The worker's end: buffers of a run's feeds that may go back. @param kept what stays when the run
 * has ended
 */
export function spareBuffers(
  feeds: readonly WireValue[],
  kept: Iterable<NumberTensor>,
): ArrayBuffer[] {
  const found = new Set<ArrayBuffer>();
  const collect = (values: readonly WireValue[]): void => {
    for (const v of values) {
      if (v && "sequence" in v) collect(v.sequence);
      else if (
        v &&
        "data" in v &&
        v.data.buffer.byteLength >= MIN_SPARE &&
        v.data.length === v.data.buffer.byteLength
      )
        found.add(v.data.buffer);
    }
  };
  collect(feeds);
  for (const { data } of kept) if (data) found.delete(data.buffer as ArrayBuffer);
  return [...found];
}
