// Deltas between two versions of a chunk of numbers: python/edgewise/extras/release/codec.py
// describes and writes them. A part that is loaded with the first one.

import { ReleaseError } from "./errors.ts";
import { decodeFloats, unzigzag } from "./floats.ts";
import { inflate } from "./inflate.ts";
import { CHUNK, type DeltaCodec } from "./manifest.ts";

const BLOCK = 64;
const LEVELS = 7;
const WIDTHS = { float32: 4, float16: 2, int8: 1, int4: 1, "float32-q4": 4 };

type Bytes = Uint8Array<ArrayBuffer>;

/** Bytes of a delta of integers before it is deflated. */
function payloadBytes(codec: DeltaCodec, bytes: number): number {
  if (codec === "int4") return 2 * bytes;
  return codec === "float32-q4" ? Math.ceil(bytes / (4 * BLOCK)) * 2 + bytes / 4 : bytes;
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
      throw new ReleaseError("format", "it is damaged", where);
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
  if (codec === "float32" || codec === "float16")
    return decodeFloats(base, delta, WIDTHS[codec], where);
  const payload = await inflate(delta, payloadBytes(codec, base.length), where);
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
