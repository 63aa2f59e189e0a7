// Numbers of 16 bits, which JavaScript has no arrays of in every browser.

const float = new Float32Array(1);
const bits = new Uint32Array(float.buffer);

/** The bits of the float16 that is nearest to a float32, ties to even; core/scalar_math.h. */
export function toHalf(x: number): number {
  float[0] = x;
  const sign = (bits[0]! >>> 16) & 0x8000;
  const rest = bits[0]! & 0x7fffffff;
  if (rest >= 0x47800000) return sign | (rest > 0x7f800000 ? 0x7e00 : 0x7c00);
  if (rest >= 0x38800000) return sign | ((rest - (112 << 23) + 0xfff + ((rest >>> 13) & 1)) >>> 13);
  float[0] = Math.abs(x) + 0.5; // subnormal: the addition rounds at 2^-24
  return sign | (bits[0]! - 0x3f000000);
}

/** The number of the bits of a float16. */
export function fromHalf(half: number): number {
  const [exponent, fraction] = [(half >> 10) & 31, half & 1023];
  const size = exponent ? 2 ** (exponent - 25) * (1024 + fraction) : 2 ** -24 * fraction;
  const magnitude = exponent < 31 ? size : fraction ? Number.NaN : Number.POSITIVE_INFINITY;
  return half & 0x8000 ? -magnitude : magnitude;
}
