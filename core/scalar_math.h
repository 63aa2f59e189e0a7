/* Scalar functions without branches, so that a plain loop over them becomes vector code, and half-precision conversions.
 *
 * float32, accurate to a few units in the last place; NaN stays NaN and infinities give the limits. */
#ifndef EDGEWISE_SCALAR_MATH_H
#define EDGEWISE_SCALAR_MATH_H
#include <math.h>
#include <stdint.h>
#include <string.h>

static inline uint32_t ew_bits(float x) { uint32_t u; memcpy(&u, &x, 4); return u; }
static inline float ew_float(uint32_t u) { float x; memcpy(&x, &u, 4); return x; }

/* Nearest integer, ties to even, for |x| < 2^22: adding 1.5 * 2^23 leaves no bits for a fraction. */
#define EW_ROUNDER 12582912.0f
static inline float ew_round_small(float x) { return (x + EW_ROUNDER) - EW_ROUNDER; }

/* e^x = 2^n e^r with n = round(x / ln 2), |r| <= ln 2 / 2. 2^n is multiplied in two halves, so that overflow gives infinity and
 * underflow the nearest denormal. */
static inline float ew_exp(float x) {
  x = x < -110.0f ? -110.0f : x;
  x = x > 100.0f ? 100.0f : x;
  float t = x * 1.44269504f + EW_ROUNDER, n = t - EW_ROUNDER;
  float r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  int32_t i = (int32_t)(ew_bits(t) - ew_bits(EW_ROUNDER)), half = i >> 1; /* unspecified for NaN, where p is NaN anyway */
  return p * ew_float((uint32_t)(half + 127) << 23) * ew_float((uint32_t)(i - half + 127) << 23);
}

/* e^x - 1 without cancellation near 0 */
static inline float ew_expm1(float x) {
  float p = 1.98412698e-4f;
  p = p * x + 1.38888889e-3f;
  p = p * x + 8.33333333e-3f;
  p = p * x + 4.16666667e-2f;
  p = p * x + 1.66666667e-1f;
  p = p * x + 0.5f;
  float near = p * x * x + x, far = ew_exp(x) - 1.0f;
  return fabsf(x) < 0.4f ? near : far;
}

/* x = 2^e m with m in [sqrt(1/2), sqrt(2)), then a polynomial in m - 1 */
static inline float ew_log(float x) {
  float scaled = x < 1.17549435e-38f ? x * 8388608.0f : x, shift = x < 1.17549435e-38f ? -23.0f : 0.0f;
  uint32_t u = ew_bits(scaled) - 0x3f3504f3u;
  float e = (float)((int32_t)u >> 23) + shift, m = ew_float((u & 0x007fffffu) + 0x3f3504f3u) - 1.0f, z = m * m;
  float p = 7.0376836292e-2f;
  p = p * m - 1.1514610310e-1f;
  p = p * m + 1.1676998740e-1f;
  p = p * m - 1.2420140846e-1f;
  p = p * m + 1.4249322787e-1f;
  p = p * m - 1.6668057665e-1f;
  p = p * m + 2.0000714765e-1f;
  p = p * m - 2.4999993993e-1f;
  p = p * m + 3.3333331174e-1f;
  float y = p * m * z + e * -2.12194440e-4f - 0.5f * z;
  y = m + y + e * 0.693359375f;
  y = x == INFINITY ? x : y;
  y = x == 0.0f ? -INFINITY : y;
  return x >= 0.0f ? y : NAN;
}

/* log(1 + x): the rounding error of 1 + x is put back by scaling with x / ((1 + x) - 1). */
static inline float ew_log1p(float x) {
  float w = 1.0f + x, d = w - 1.0f, y = ew_log(w) * (x / d);
  y = d == 0.0f ? x : y;
  return x == INFINITY ? x : y;
}

static inline float ew_tanh(float x) {
  float a = fabsf(x), z = x * x;
  float p = -5.70498872745e-3f;
  p = p * z + 2.06390887954e-2f;
  p = p * z - 5.37397155531e-2f;
  p = p * z + 1.33314422036e-1f;
  p = p * z - 3.33332819422e-1f;
  float near = p * z * x + x, far = copysignf(1.0f - 2.0f / (ew_exp(a + a) + 1.0f), x);
  return a < 0.625f ? near : far;
}

static inline float ew_sigmoid(float x) { return 1.0f / (1.0f + ew_exp(-x)); }

static inline float ew_erf(float x) {
  float a = fabsf(x), z = x * x;
  float p = -5.96761703e-4f;
  p = p * z + 4.99119423e-3f;
  p = p * z - 2.67681349e-2f;
  p = p * z + 1.12819925e-1f;
  p = p * z - 3.76125336e-1f;
  p = p * z + 1.28379166e-1f;
  float near = p * x + x;
  float t = a > 4.0f ? 4.0f : a; /* erf(4) rounds to 1 */
  float q = -1.72853470e-5f;
  q = q * t + 3.83197126e-4f;
  q = q * t - 3.88396438e-3f;
  q = q * t + 2.42546219e-2f;
  q = q * t - 1.06777877e-1f;
  q = q * t - 6.34846687e-1f;
  q = q * t - 1.28717512e-1f;
  q = q * t - t;
  float far = copysignf(1.0f - ew_exp(q), x);
  return a < 0.927734375f ? near : far;
}

static inline float ew_silu(float x) { return x * ew_sigmoid(x); }
static inline float ew_gelu(float x) { return 0.5f * x * (1.0f + ew_erf(x * 0.70710678f)); }
/* 0.5 x (1 + tanh(u)) = x sigmoid(2 u) */
static inline float ew_gelu_tanh(float x) { return x * ew_sigmoid(1.59576912f * (x + 0.044715f * x * x * x)); }
/* log(1 + e^x) */
static inline float ew_softplus(float x) {
  float m = x > 0.0f ? x : 0.0f, y = m + ew_log1p(ew_exp(-fabsf(x)));
  return x != x ? x : y;
}

/* max(low, min(high, x)), where high wins; NaN stays */
static inline float ew_clamp(float x, float low, float high) {
  x = x < low ? low : x;
  return x > high ? high : x;
}
/* x tanh(softplus(x)), with e = e^x: x (e^2 + 2 e) / (e^2 + 2 e + 2) */
static inline float ew_mish(float x) {
  float e = ew_exp(x > 20.0f ? 20.0f : x), w = e * (e + 2.0f);
  return x * (w / (w + 2.0f));
}

/* float16 <-> float32. Exponents are moved by a multiplication, which gets denormals right. */
static inline float ew_half_to_float(uint16_t h) {
  uint32_t magnitude = (uint32_t)(h & 0x7fffu) << 13, sign = (uint32_t)(h & 0x8000u) << 16;
  uint32_t u = ew_bits(ew_float(magnitude) * 5.192296858534828e33f); /* 2^112 */
  u = magnitude >= 0x0f800000u ? magnitude | 0x7f800000u : u;
  return ew_float(u | sign);
}

static inline uint16_t ew_float_to_half(float x) {
  uint32_t u = ew_bits(x), sign = u & 0x80000000u;
  u ^= sign;
  uint32_t small = ew_bits(ew_float(u) + 0.5f) - 0x3f000000u;                /* denormal: the addition rounds at 2^-24 */
  uint32_t normal = (u - 0x38000000u + 0xfffu + ((u >> 13) & 1u)) >> 13;      /* rebias, round to nearest even */
  uint32_t h = u < 0x38800000u ? small : normal;
  h = u >= 0x47800000u ? 0x7c00u : h;                                         /* 2^16 and above; 65520 up to there rounds up into it */
  h = u > 0x7f800000u ? 0x7e00u : h;
  return (uint16_t)(h | sign >> 16);
}

static inline float ew_bfloat_to_float(uint16_t h) { return ew_float((uint32_t)h << 16); }

static inline uint16_t ew_float_to_bfloat(float x) {
  uint32_t u = ew_bits(x), r = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  return (uint16_t)((u & 0x7fffffffu) > 0x7f800000u ? (u >> 16) | 0x40u : r);
}
#endif
