// Deltas of floating-point numbers: python/edgewise/extras/release/floats.py describes and writes
// them.

import { decodeSegments } from "./entropy.ts";
import { ReleaseError } from "./errors.ts";

type Bytes = Uint8Array<ArrayBuffer>;

const HEAD = 12;
const MIN = 2048;
const MAX_RANK = 32;
const MAX_SHIFT = 8;
const PAIR = 2 ** 32;

export const unzigzag = (z: number): number => (z >>> 1) ^ -(z & 1);

/** Sizes of the segments of a plane, given how many numbers have each exponent. */
function sizesOf(counts: Int32Array): number[] {
  const sizes: number[] = [];
  let run = 0;
  for (const count of counts) {
    run += count;
    if (run < MIN) continue;
    sizes.push(run);
    run = 0;
  }
  if (sizes.length) sizes[sizes.length - 1]! += run;
  return sizes.length ? sizes : [run];
}

/**
 * The product of two factors, (rank, rows) and (rank, columns). Sums of 32 products of bytes have
 * 20 bits, so that one of doubles holds those of two columns.
 */
function product(factors: Int8Array, rank: number, rows: number, columns: number): Int32Array {
  const [out, width] = [new Int32Array(rows * columns + 1), (columns + 1) >> 1];
  const none = new Float64Array(width);
  const pairs = Array.from({ length: rank + 3 }, (_, k) => {
    if (k >= rank) return none;
    const [own, at] = [new Float64Array(width), rank * rows + k * columns];
    for (let c = 0; c < columns; c++) own[c >> 1]! += factors[at + c]! * (c & 1 ? PAIR : 1);
    return own;
  });
  const row = new Float64Array(width);
  for (let i = 0; i < rows; i++) {
    row.fill(0);
    for (let k = 0; k < rank; k += 4) {
      const by = [0, 1, 2, 3].map((n) => factors[(k + n) * rows + i] ?? 0);
      add(row, pairs.slice(k), by);
    }
    for (let j = 0, to = i * columns; j < width; j++, to += 2) {
      const both = row[j]!;
      const first = both | 0;
      out[to] = first;
      out[to + 1] = (both - first) / PAIR; // the next row overwrites what is after an odd one
    }
  }
  return out;
}

/** Adds the first four rows, each multiplied by its factor. */
function add(row: Float64Array, [p, q, r, s]: Float64Array[], factors: number[]): void {
  const [a, b, c, d] = factors as [number, number, number, number];
  for (let j = 0; j < row.length; j++) row[j]! += a * p![j]! + b * q![j]! + c * r![j]! + d * s![j]!;
}

/**
 * The new version of numbers. It has no branches on their bits, which no processor could foresee.
 * @param places in the planes, by exponent; they are moved on
 * @param powers of 2 by which products are multiplied, by exponent
 */
function moved(
  old: Uint16Array,
  parts: number,
  shift: number,
  places: Int32Array,
  products: Int32Array | undefined,
  powers: Int32Array,
  planes: Bytes,
): Uint16Array<ArrayBuffer> {
  const out = new Uint16Array(old.length);
  const count = old.length / parts;
  const lower = planes.subarray(count);
  const upper = planes.subarray((2 * parts - 2) * count);
  const top = upper.subarray(count);
  for (let i = parts - 1, n = 0; i < old.length; i += parts, n++) {
    const bits = old[i]!;
    const exponent = (bits & 0x7fff) >> shift;
    const k = places[exponent]!++;
    let ordinal = (bits ^ (((bits << 16) >> 31) & 0x7fff)) + unzigzag(upper[k]! | (top[k]! << 8));
    if (products) {
      const power = powers[exponent]!;
      ordinal += power < 0 ? (products[n]! + (1 << ~power)) >> -power : products[n]! << power;
    }
    const flipped = (ordinal << 16) >> 31; // all bits or none
    out[i] = ordinal ^ (flipped & 0x7fff);
    if (parts === 1) continue;
    const low = old[i - 1]! ^ ((bits << 16) >> 31);
    out[i - 1] = (low + unzigzag(planes[k]! | (lower[k]! << 8))) ^ flipped;
  }
  return out;
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
  const fits = !rank || (rank <= MAX_RANK && phase < columns && rank * (rows + columns) <= count);
  if ((shift !== 7 && shift !== 10) || !fits)
    throw new ReleaseError("mismatch", "it is damaged", where);
  const old = new Uint16Array(base.slice().buffer);
  const counts = new Int32Array(256); // by exponent
  for (let i = parts - 1; i < old.length; i += parts) counts[(old[i]! & 0x7fff) >> shift]!++;
  const plane = sizesOf(counts);
  const sizes = [rank * rows, rank * columns, ...Array<number[]>(width).fill(plane).flat()];
  const bytes = await decodeSegments(delta.slice(HEAD), sizes, where);
  const planes = bytes.subarray(rank * (rows + columns));
  const factors = new Int8Array(rank * (rows + columns));
  for (let i = 0; i < factors.length; i++) factors[i] = unzigzag(bytes[i]!);
  // products have 20 bits: a shift by more gives 0
  const power = (e: number) => Math.max(-31, Math.min(scale - Math.max(e, 1), MAX_SHIFT));
  const powers = counts.map((_, e) => power(e));
  let begin = 0;
  const places = counts.map((own) => (begin += own) - own);
  const products = rank ? product(factors, rank, rows, columns).subarray(phase) : undefined;
  const out = moved(old, parts, shift, places, products, powers, planes);
  return new Uint8Array(out.buffer);
}
