// Deltas between two versions of a chunk of numbers: python/edgewise/release/codec.py describes and
// writes them.

import { ReleaseError } from "./errors.ts";

export const CHUNK = 1 << 20;
const BLOCK = 64;
const LEVELS = 7;
const WIDTHS = { float32: 4, float16: 2, int8: 1, int4: 1, "float32-q4": 4 };
export type DeltaCodec = keyof typeof WIDTHS;
export const CODECS = Object.keys(WIDTHS) as DeltaCodec[];

const PIECE = 1 << 12; // of what is inflated: at most a thousand times as much comes out at once

type Bytes = Uint8Array<ArrayBuffer>;

/** Bytes of a delta before it is deflated. */
function payloadBytes(codec: DeltaCodec, bytes: number): number {
  if (codec === "int4") return 2 * bytes;
  return codec === "float32-q4" ? Math.ceil(bytes / (4 * BLOCK)) * 2 + bytes / 4 : bytes;
}

/**
 * Unpacks exactly `size` bytes of zlib's format.
 * @throws ReleaseError if there are more or fewer; no more are unpacked
 */
export async function inflate(data: Bytes, size: number, where: string): Promise<Bytes> {
  const out = new Uint8Array(size);
  let [at, given] = [0, 0];
  const pieces = new ReadableStream<Bytes>({
    pull: (to) => {
      if (given < data.length) to.enqueue(data.subarray(given, (given += PIECE)));
      else to.close();
    },
  });
  try {
    const reader = pieces.pipeThrough(new DecompressionStream("deflate")).getReader();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      if (at + value.length > size) {
        reader.cancel().catch(() => undefined);
        at = -1;
        break;
      }
      out.set(value, at);
      at += value.length;
    }
  } catch (e) {
    throw new ReleaseError("mismatch", `it cannot be unpacked (${String(e)})`, where);
  }
  if (at !== size) throw new ReleaseError("mismatch", `it does not unpack to ${size} bytes`, where);
  return out;
}

const unzigzag = (z: number): number => (z >>> 1) ^ -(z & 1);

/** Numbers of 2 or 4 bytes, by their ordinals. */
function floats(base: Bytes, planes: Bytes, parts: number): Bytes {
  const old = new Uint16Array(base.slice().buffer);
  const count = old.length / parts;
  const starts = new Uint32Array(257); // by exponent
  for (let i = parts - 1; i < old.length; i += parts) starts[((old[i]! & 0x7fff) >> 7) + 1]!++;
  for (let e = 0; e < 256; e++) starts[e + 1]! += starts[e]!;
  const out = new Uint16Array(old.length);
  const top = (2 * parts - 2) * count; // planes of the upper halves
  for (let i = parts - 1; i < old.length; i += parts) {
    const bits = old[i]!;
    const k = starts[(bits & 0x7fff) >> 7]!++;
    const negative = bits > 0x7fff;
    const next = step(negative ? bits ^ 0x7fff : bits, planes[top + k]!, planes[top + count + k]!);
    const flipped = next > 0x7fff;
    out[i] = flipped ? next ^ 0x7fff : next;
    if (parts === 1) continue;
    const low = old[i - 1]! ^ (negative ? 0xffff : 0);
    out[i - 1] = step(low, planes[k]!, planes[count + k]!) ^ (flipped ? 0xffff : 0);
  }
  return new Uint8Array(out.buffer);
}

/** An ordinal, moved by a zigzag coded difference in two bytes. */
function step(ordinal: number, low: number, high: number): number {
  return (ordinal + unzigzag(low | (high << 8))) & 0xffff;
}

/** The value of a float16 that is not negative; NaN if it is, or not finite. */
function scaleOf(bits: number): number {
  const [exponent, fraction] = [bits >> 10, bits & 0x3ff];
  if (exponent > 30) return Number.NaN;
  return exponent ? (1024 + fraction) * 2 ** (exponent - 25) : fraction * 2 ** -24;
}

/** The base plus changes in 4 bits. */
function approximate(base: Bytes, payload: Bytes, where: string): Bytes {
  const out = new Float32Array(base.slice().buffer);
  const first = payload.length - out.length;
  let scale = 0;
  for (let i = 0; i < out.length; i++) {
    const block = Math.floor(i / BLOCK);
    if (i % BLOCK === 0) scale = scaleOf(payload[2 * block]! | (payload[2 * block + 1]! << 8));
    const level = unzigzag(payload[first + i]!);
    if (Number.isNaN(scale) || Math.abs(level) > LEVELS)
      throw new ReleaseError("format", "its scales or integers are outside their range", where);
    out[i] = out[i]! + Math.fround(scale * level);
  }
  return new Uint8Array(out.buffer);
}

/**
 * The new version of a chunk.
 * @param base the old one; it is not changed
 * @throws ReleaseError if the delta is damaged, or of another chunk
 */
export async function decode(
  codec: DeltaCodec,
  base: Bytes,
  delta: Bytes,
  where: string,
): Promise<Bytes> {
  if (base.length > CHUNK || base.length % WIDTHS[codec])
    throw new ReleaseError("format", `${codec} is no codec for ${base.length} bytes`, where);
  const payload = await inflate(delta, payloadBytes(codec, base.length), where);
  if (codec === "float32" || codec === "float16") return floats(base, payload, WIDTHS[codec] / 2);
  if (codec === "float32-q4") return approximate(base, payload, where);
  const out = new Uint8Array(base.length);
  for (let i = 0; i < out.length; i++) {
    const x = base[i]!;
    if (codec === "int8") out[i] = x + unzigzag(payload[i]!);
    else {
      const low = ((x & 15) + unzigzag(payload[2 * i]!)) & 15;
      out[i] = low | (((x >> 4) + unzigzag(payload[2 * i + 1]!)) << 4);
    }
  }
  return out;
}
