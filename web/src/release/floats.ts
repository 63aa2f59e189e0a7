// Deltas of floating-point numbers: python/edgewise/release/floats.py describes and writes them.

import { decodeSegments } from "./entropy.ts";
import { ReleaseError } from "./errors.ts";

type Bytes = Uint8Array<ArrayBuffer>;

const HEAD = 12;
const LEAST = 2048;
const MOST_RANK = 32;
const MOST_SHIFT = 8;

export const unzigzag = (z: number): number => (z >>> 1) ^ -(z & 1);

/** Sizes of the segments of a plane, given how many numbers have each exponent. */
function sizesOf(counts: Uint32Array): number[] {
  const sizes: number[] = [];
  let run = 0;
  for (const count of counts) {
    run += count;
    if (run < LEAST) continue;
    sizes.push(run);
    run = 0;
  }
  if (sizes.length) sizes[sizes.length - 1]! += run;
  return sizes.length ? sizes : [run];
}

/** The product of two factors, number by number. */
function product(
  factors: Int8Array,
  [rank, rows, columns]: readonly [number, number, number],
  phase: number,
): () => number {
  const row = new Int32Array(columns);
  const others = Array.from({ length: rank }, (_, k) =>
    factors.slice(rank * rows + k * columns, rank * rows + (k + 1) * columns),
  );
  let [i, j] = [0, columns];
  return () => {
    if (j === columns) {
      row.fill(0);
      for (let k = 0; k < rank; k += 2) {
        // two at once, which is faster; of an odd rank the last one twice, and once by nothing
        const last = Math.min(k + 1, rank - 1);
        const [a, b] = [factors[k * rows + i]!, last > k ? factors[last * rows + i]! : 0];
        const [x, y] = [others[k]!, others[last]!];
        for (let c = 0; c < columns; c++) row[c]! += Math.imul(a, x[c]!) + Math.imul(b, y[c]!);
      }
      j = i++ ? 0 : phase;
    }
    return row[j++]!;
  };
}

/** An ordinal, moved by a zigzag coded difference in two bytes. */
function step(ordinal: number, low: number, high: number): number {
  return (ordinal + unzigzag(low | (high << 8))) & 0xffff;
}

/**
 * The new version of a chunk of numbers of 2 or 4 bytes.
 * @param base the old one; it is not changed
 * @throws ReleaseError if the delta is damaged, or of another chunk
 */
export async function decodeFloats(
  base: Bytes,
  delta: Bytes,
  width: number,
  where: string,
): Promise<Bytes> {
  const [parts, count] = [width / 2, base.length / width];
  const head = new DataView(delta.slice(0, HEAD).buffer);
  const whole = head.byteLength === HEAD;
  const [rank, shift, scale] = whole ? [delta[0]!, delta[1]!, head.getInt16(2, true)] : [0, 0, 0];
  const [columns, phase] = rank ? [head.getUint32(4, true), head.getUint32(8, true)] : [0, 0];
  const rows = rank && Math.ceil((phase + count) / columns);
  const fits = !rank || (rank <= MOST_RANK && phase < columns && rank * (rows + columns) <= count);
  if ((shift !== 7 && shift !== 10) || !fits)
    throw new ReleaseError("mismatch", "it is of another matrix", where);
  const old = new Uint16Array(base.slice().buffer);
  const counts = new Uint32Array(256); // by exponent
  for (let i = parts - 1; i < old.length; i += parts) counts[(old[i]! & 0x7fff) >> shift]!++;
  const plane = sizesOf(counts);
  const sizes = [rank * rows, rank * columns, ...Array<number[]>(width).fill(plane).flat()];
  const bytes = await decodeSegments(delta.slice(HEAD), sizes, where);
  const planes = bytes.subarray(rank * (rows + columns));
  const factors = Int8Array.from(bytes.subarray(0, rank * (rows + columns)), unzigzag);
  const next = product(factors, [rank, rows, columns], phase);
  const powers = Array.from(counts, (_, e) => 2 ** Math.min(scale - Math.max(e, 1), MOST_SHIFT));
  let begin = 0;
  for (let e = 0; e < 256; e++) {
    const own = counts[e]!;
    counts[e] = begin;
    begin += own;
  }
  const out = new Uint16Array(old.length);
  const top = (width - 2) * count; // planes of the upper halves
  for (let i = parts - 1; i < old.length; i += parts) {
    const bits = old[i]!;
    const exponent = (bits & 0x7fff) >> shift;
    const k = counts[exponent]!++;
    const negative = bits > 0x7fff;
    const ahead = rank && Math.floor(next() * powers[exponent]! + 0.5);
    const ordinal = (negative ? bits ^ 0x7fff : bits) + ahead;
    const found = step(ordinal, planes[top + k]!, planes[top + count + k]!);
    const flipped = found > 0x7fff;
    out[i] = flipped ? found ^ 0x7fff : found;
    if (parts === 1) continue;
    const low = old[i - 1]! ^ (negative ? 0xffff : 0);
    out[i - 1] = step(low, planes[k]!, planes[count + k]!) ^ (flipped ? 0xffff : 0);
  }
  return new Uint8Array(out.buffer);
}
