// Entropy coding of bytes in segments: python/edgewise/extras/release/entropy.py describes and
// writes it.

import { ReleaseError } from "./errors.ts";
import { inflate } from "./inflate.ts";

type Bytes = Uint8Array<ArrayBuffer>;

const BITS = 12;
const TOTAL = 1 << BITS;
const LOWEST = 1 << 16;
const MAX_LANES = 128;
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
  const bad = () => new ReleaseError("mismatch", "it is damaged", where);
  const number = (at: number) =>
    (data[at]! | (data[at + 1]! << 8) | (data[at + 2]! << 16) | (data[at + 3]! << 24)) >>> 0;
  const segments = sizes.filter((size) => size > 0);
  const head = 4 + number(0);
  const table = await inflate(data.slice(4, head), 512 * segments.length, where);
  const all = new Uint16Array(table.buffer);
  const lanes = number(head);
  const at = head + 4 * lanes + 4;
  if (!(lanes > 0 && lanes <= MAX_LANES && at <= data.length)) throw bad();
  const states = Int32Array.from({ length: lanes }, (_, i) => number(head + 4 * i + 4));
  const words = new Uint16Array(data.slice(at).buffer, 0, (data.length - at) >> 1);
  const out = new Uint8Array(segments.reduce((sum, size) => sum + size, 0));
  // of each slot: its value, its distance from the value's first slot, and the frequency less 1
  const slots = new Int32Array(TOTAL);
  let [to, word, lane, coded] = [0, 0, 0, 0];
  for (const [i, size] of segments.entries()) {
    const frequencies = all.subarray(256 * i, 256 * i + 256);
    let sum = 0;
    for (let value = 0; value < 256; value++) {
      const frequency = frequencies[value]!;
      const entry = value | ((frequency - 1) << 20);
      for (let i = 0; i < frequency; i++) slots[sum++] = entry | (i << 8);
    }
    if (sum !== TOTAL) throw bad();
    const end = to + size;
    if (slots[0]! >>> 20 === TOTAL - 1) {
      out.fill(slots[0]!, to, end);
      to = end;
    }
    coded += end - to;
    for (; to < end; to++) {
      let x = states[lane]!;
      const slot = slots[x & (TOTAL - 1)]!;
      x = (Math.imul((slot >>> 20) + 1, x >>> BITS) + ((slot >>> 8) & (TOTAL - 1))) | 0;
      // without a branch, which no processor could foresee
      const low = ((x >>> 16) - 1) >> 31;
      x = (x << (16 & low)) | (words[word]! & low);
      word -= low;
      states[lane] = x;
      out[to] = slot;
      if (++lane === lanes) lane = 0;
    }
  }
  if (lanes < MAX_LANES && coded >= 2 * SPACING * lanes) throw bad();
  if (at + 2 * word !== data.length || states.some((x) => x !== LOWEST)) throw bad();
  return out;
}
