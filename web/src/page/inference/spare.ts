// Buffers in which feeds travel to the worker. The worker returns them after reading, so that the
// next run copies its feeds into existing memory: allocating new buffers and collecting them later
// takes several times as long as the copy.

import type { WireValue } from "../../protocol/inference.ts";

/** Size of the buffer in which small feeds and outputs travel: each buffer more costs 5 µs. */
const PARCEL = 1 << 16;
/** A feed of at most so many bytes is small. */
const SMALL = 1 << 13;

/** The buffers of the last run, by size. */
export class SpareBuffers {
  private readonly bySize = new Map<number, ArrayBuffer[]>();

  /** A spare buffer of exactly this size, if there is one. */
  take(bytes: number): ArrayBuffer | undefined {
    return this.bySize.get(bytes)?.pop();
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

/** The copies of one run's feeds. */
export class Parcel {
  /** Buffers to be transferred. */
  readonly transfer: ArrayBuffer[] = [];
  private small: Uint8Array<ArrayBuffer> | undefined;
  private used = 0;

  constructor(private readonly spare = new SpareBuffers()) {}

  /** Replaces the bytes of a value with a copy. */
  pack(v: WireValue): void {
    if (v && "sequence" in v) for (const x of v.sequence) this.pack(x);
    else if (v && "data" in v) v.data = this.copy(v.data);
  }

  private copy(bytes: Uint8Array<ArrayBuffer>): Uint8Array<ArrayBuffer> {
    const { length } = bytes;
    if (length > SMALL || this.used + length > PARCEL / 2) {
      const spare = this.spare.take(length);
      const copy = spare ? new Uint8Array(spare) : bytes.slice();
      if (spare) copy.set(bytes);
      this.transfer.push(copy.buffer);
      return copy;
    }
    if (!this.small) {
      this.small = new Uint8Array(this.spare.take(PARCEL) ?? new ArrayBuffer(PARCEL));
      this.transfer.push(this.small.buffer);
    }
    const copy = this.small.subarray(this.used, this.used + length);
    copy.set(bytes);
    this.used += Math.ceil(length / 16) * 16;
    return copy;
  }

  /** The buffer with the small feeds, for {@link RunRequest.parcel}. */
  get packed(): { buffer: ArrayBuffer; used: number } | undefined {
    return this.small && { buffer: this.small.buffer, used: this.used };
  }
}
