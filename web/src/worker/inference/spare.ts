// Buffers of feeds and outputs that travel between page and worker (page/inference/spare.ts).

import type { RunRequest, WireValue } from "../../protocol/inference.ts";
import type { NumberTensor } from "./values.ts";

/** Minimum size in bytes for which sending a buffer back is worth while. */
export const MIN_SPARE = 1 << 16;

/** The outputs of one run: small ones travel with the page's parcel, others in their buffers. */
export class Outgoing {
  private at: number;

  /**
   * @param transfer receives the buffers to transfer to the page
   * @param parcel that of the feeds
   */
  constructor(
    private readonly transfer: Transferable[],
    private readonly parcel: RunRequest["parcel"],
  ) {
    this.at = parcel?.used ?? 0;
  }

  /** Room for an output in the parcel; undefined if it has none. */
  room(bytes: number): Uint8Array<ArrayBuffer> | undefined {
    const { parcel, at } = this;
    const size = parcel?.buffer.byteLength ?? 0;
    // an output that fills a buffer is the page's, and the parcel is for the next run
    if (!parcel || at + bytes > size || bytes === size) return undefined;
    this.at += Math.ceil(bytes / 16) * 16;
    return new Uint8Array(parcel.buffer, at, bytes);
  }

  /** Data that nothing else refers to, on its way to the page. */
  move(data: Uint8Array<ArrayBuffer>): Uint8Array<ArrayBuffer> {
    const room = this.room(data.length);
    if (room) {
      room.set(data);
      return room;
    }
    this.transfer.push(data.buffer);
    return data;
  }
}

/**
 * Buffers of a run's feeds that can be sent back.
 * @param kept tensors that remain in use after the run
 */
export function spareBuffers(
  { feeds, parcel }: Pick<RunRequest, "feeds" | "parcel">,
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
  collect(Object.values(feeds));
  if (parcel) found.add(parcel.buffer);
  for (const { data } of kept) if (data) found.delete(data.buffer as ArrayBuffer);
  return [...found];
}
