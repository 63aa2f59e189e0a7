// Entropy coding of bytes in segments: python/edgewise/release/entropy.py describes and writes it.

import { ReleaseError } from "./errors.ts";
import { inflate } from "./inflate.ts";

type Bytes = Uint8Array<ArrayBuffer>;

const BITS = 12;
const TOTAL = 1 << BITS;
const LOWEST = 1 << 16;
const MOST_LANES = 128;
const SPACING = 512;

/**
 * The bytes of all segments, one after the other.
 * @param sizes of the segments
 * @throws ReleaseError (mismatch) if it is damaged
 */
export async function decodeSegments(
  data: Bytes,
  sizes: readonly number[],
  where: string,
): Promise<Bytes> {
  const bad = (what: string) => new ReleaseError("mismatch", what, where);
  const number = (at: number) =>
    (data[at]! | (data[at + 1]! << 8) | (data[at + 2]! << 16) | (data[at + 3]! << 24)) >>> 0;
  const segments = sizes.filter((size) => size > 0);
  const head = 4 + number(0);
  const table = await inflate(data.slice(4, head), 512 * segments.length, where);
  const all = new Uint16Array(table.buffer);
  const lanes = number(head);
  let at = head + 4 * lanes + 4;
  if (!(lanes > 0 && lanes <= MOST_LANES && at <= data.length)) throw bad("its lanes are cut off");
  const states = Uint32Array.from({ length: lanes }, (_, i) => number(head + 4 * i + 4));
  const out = new Uint8Array(segments.reduce((sum, size) => sum + size, 0));
  const slots = new Uint8Array(TOTAL);
  const starts = new Uint16Array(256);
  let [to, lane, coded] = [0, 0, 0];
  for (const [i, size] of segments.entries()) {
    const frequencies = all.subarray(256 * i, 256 * i + 256);
    let sum = 0;
    for (let value = 0; value < 256; value++) {
      starts[value] = sum;
      slots.fill(value, sum, (sum += frequencies[value]!));
    }
    if (sum !== TOTAL) throw bad("its frequencies do not have the right sum");
    const end = to + size;
    if (frequencies[slots[0]!] === TOTAL) {
      out.fill(slots[0]!, to, end);
      to = end;
    }
    coded += end - to;
    for (; to < end; to++) {
      let x = states[lane]!;
      const slot = x & (TOTAL - 1);
      const value = slots[slot]!;
      x = frequencies[value]! * (x >>> BITS) + slot - starts[value]!;
      if (x < LOWEST) {
        x = x * LOWEST + (data[at]! | (data[at + 1]! << 8));
        at += 2;
      }
      states[lane] = x;
      out[to] = value;
      if (++lane === lanes) lane = 0;
    }
  }
  if (lanes < MOST_LANES && coded >= 2 * SPACING * lanes) throw bad("it has too few lanes");
  if (at !== data.length || states.some((x) => x !== LOWEST))
    throw bad("its words do not end where its bytes do");
  return out;
}
