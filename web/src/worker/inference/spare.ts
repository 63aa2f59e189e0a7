// Buffers of feeds that are sent back to the page (page/inference/spare.ts).

import type { WireValue } from "../../protocol/inference.ts";
import type { NumberTensor } from "./values.ts";

/** Minimum size in bytes for which sending a buffer back is worth while. */
export const MIN_SPARE = 1 << 16;

/**
 * Buffers of a run's feeds that can be sent back.
 * @param kept tensors that remain in use after the run
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
