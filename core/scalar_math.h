/* Branch-free rounding and float16/bfloat16 conversion of scalars. Compilers vectorize plain loops
 * over these functions. */
#ifndef EDGEWISE_SCALAR_MATH_H
#define EDGEWISE_SCALAR_MATH_H
#include <math.h>
#include <stdint.h>
#include <string.h>

static inline uint32_t ew_bits(float x) {
  uint32_t u;
  memcpy(&u, &x, 4);
  return u;
}
static inline float ew_float(uint32_t u) {
  float x;
  memcpy(&x, &u, 4);
  return x;
}

/* Rounds to the nearest integer, ties to even, for |x| < 2^22: adding 1.5 * 2^23 leaves no fraction
 * bits. */
#define EW_ROUNDER 12582912.0f
static inline float ew_round_small(float x) { return (x + EW_ROUNDER) - EW_ROUNDER; }

/* Converts float32 to float16. half_to_float (simd.h) is the inverse. */
static inline uint16_t ew_float_to_half(float x) {
  uint32_t u = ew_bits(x), sign = u & 0x80000000u;
  u ^= sign;
  /* subnormal result: the addition rounds at 2^-24 */
  uint32_t small = ew_bits(ew_float(u) + 0.5f) - 0x3f000000u;
  /* normal result: rebias the exponent, round to nearest even */
  uint32_t normal = (u - 0x38000000u + 0xfffu + ((u >> 13) & 1u)) >> 13;
  uint32_t h = u < 0x38800000u ? small : normal;
  /* 2^16 and above become infinity; the line above already rounds 65520 and above up to 2^16 */
  h = u >= 0x47800000u ? 0x7c00u : h;
  h = u > 0x7f800000u ? 0x7e00u : h;
  return (uint16_t)(h | sign >> 16);
}

static inline float ew_bfloat_to_float(uint16_t h) { return ew_float((uint32_t)h << 16); }

static inline uint16_t ew_float_to_bfloat(float x) {
  uint32_t u = ew_bits(x), r = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  return (uint16_t)((u & 0x7fffffffu) > 0x7f800000u ? (u >> 16) | 0x40u : r);
}
#endif
