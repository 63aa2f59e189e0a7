/* float16 in memory: loads, stores and conversion. */
#ifndef EDGEWISE_SIMD_HALF_H
#define EDGEWISE_SIMD_HALF_H
#include "simd/constants.h"

/* float16 in memory. Shifting exponent and fraction into place and multiplying by 2^112 rebiases
 * the exponent and normalizes subnormals in one step; infinities and NaNs get the remaining
 * exponent bits by OR. The load sign-extends, which puts the sign in place. */
EW_INLINE f32x4 f32x4_load_half(const half *p) {
  typedef int16_t i16x4_m __attribute__((vector_size(8), aligned(1), may_alias));
  i32x4 t = (__builtin_convertvector(*(const i16x4_m *)p, i32x4) << 13) & (int32_t)0x8fffe000;
  i32x4 special = ((t & 0x0f800000) == 0x0f800000) & 0x7f800000;
  return (f32x4)((i32x4)((f32x4)t * 0x1p112f) | special);
}
EW_INLINE vf vf_load_half(const half *p) {
#if VF == 16
  return (vf)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
#elif VF == 8
  return (vf)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
#else
  return f32x4_load_half(p);
#endif
}
/* Loads 2 VF halves. With four lanes everything but the multiplication works on eight halves at a
 * time, in the upper 16 bits of the results. */
EW_INLINE void vf_load_halves(const half *p, vf *a, vf *b) {
#if VF == 4
  i16x8 h = *(const i16x8_m *)p, low = h << 13, high = h >> 3;
  const i16x8 all = (i16x8)vf_constant(EW_HALF_SPECIAL),                      /* 0x0f80 */
      special = ((high & all) == all) & (i16x8)vf_constant(EW_HALF_INFINITY); /* 0x7000 */
  high = (high & (i16x8)vf_constant(EW_HALF_OTHERS)) | special;               /* 0x8fff */
  const vf power = vf_constant(EW_HALF_POWER);
  *a = (vf)__builtin_shufflevector(low, high, 0, 8, 1, 9, 2, 10, 3, 11) * power;
  *b = (vf)__builtin_shufflevector(low, high, 4, 12, 5, 13, 6, 14, 7, 15) * power;
#else
  *a = vf_load_half(p), *b = vf_load_half(p + VF);
#endif
}
/* The same for halves that are zero or normal. With four lanes the numbers are 2^112 times smaller,
 * which the other factor of a product makes up for: EW_RAW_SCALE. */
#if VF == 4
#  define EW_RAW_SCALE 0x1p112f
EW_INLINE void vf_load_raw_halves(const half *p, vf *a, vf *b) {
  i16x8 h = *(const i16x8_m *)p, low = h << 13, high = (h >> 3) & (int16_t)0x8fff;
  *a = (vf)__builtin_shufflevector(low, high, 0, 8, 1, 9, 2, 10, 3, 11);
  *b = (vf)__builtin_shufflevector(low, high, 4, 12, 5, 13, 6, 14, 7, 15);
}
#else
#  define EW_RAW_SCALE 1.0f
EW_INLINE void vf_load_raw_halves(const half *p, vf *a, vf *b) { vf_load_halves(p, a, b); }
#endif
EW_INLINE float half_to_float(uint16_t h) {
  union {
    uint32_t u;
    float f;
  } v = {(uint32_t)(h & 0x7fff) << 13};
  v.f *= 0x1p112f;
  if ((h & 0x7c00) == 0x7c00) v.u |= 0x7f800000;
  v.u |= (uint32_t)(h & 0x8000) << 16;
  return v.f;
}
/* Converts 2 VF float32 to float16, round to nearest even. For a number of exponent e, adding the
 * power of two whose last place is the half's last place, 2^(e-10), rounds it: the low bits of the
 * sum are then the half's fraction including the leading 1, which carries into the exponent.
 * Subnormals are treated as numbers of exponent -14. 65536 and above become infinity. NaN becomes
 * 0x7e00, because its difference exceeds that of every number. */
EW_INLINE vi vi_of_halves(vf x) {
  const vi sign = (vi)vf_constant(EW_SIGN), exponent = (vi)vf_constant(EW_HALF_EXPONENT),
           bias = (vi)vf_constant(EW_HALF_BIAS); /* (127 - 15 + 14) << 10 */
  const vf a = vf_min((vf)((vi)x & ~sign), vf_constant(EW_HALF_OVER)),
           power =
               vf_max((vf)((vi)a & exponent), vf_constant(EW_HALF_MIN)) * vf_constant(EW_HALF_STEP);
  return ((vi)(a + power) - (vi)power) + ((vi)power >> 13) - bias;
}
EW_INLINE void vf_store_halves(half *p, vf a, vf b) {
#if defined(__wasm_simd128__)
  v128_t h =
      wasm_i16x8_min(wasm_i16x8_narrow_i32x4((v128_t)vi_of_halves(a), (v128_t)vi_of_halves(b)),
                     wasm_i16x8_splat(0x7e00));
  v128_t sign = wasm_v128_and(wasm_i16x8_narrow_i32x4((v128_t)a, (v128_t)b),
                              wasm_i16x8_splat((int16_t)0x8000));
  wasm_v128_store(p, wasm_v128_or(h, sign));
#else
  typedef uint16_t halves __attribute__((vector_size(2 * VF)));
  typedef uint16_t halves_m __attribute__((vector_size(2 * VF), aligned(1), may_alias));
  const vf v[2] = {a, b};
  for (int i = 0; i < 2; i++) {
    vi h = vi_of_halves(v[i]), is_nan = h > 0x7e00;
    h = (is_nan & 0x7e00) | (~is_nan & h) | (((vi)v[i] >> 16) & 0x8000);
    *(halves_m *)(p + i * VF) = (halves_m) __builtin_convertvector(h, halves);
  }
#endif
}
/* Element i of a float16 or float32 array. `is_half` should be a compile-time constant in hot code.
 */
EW_INLINE float real_at(const void *p, int64_t i, bool is_half) {
  return is_half ? half_to_float(((const half *)p)[i]) : ((const real *)p)[i];
}
EW_INLINE f32x4 f32x4_load_at(const void *p, int64_t i, bool is_half) {
  return is_half ? f32x4_load_half((const half *)p + i)
                 : (f32x4) * (const f32x4_m *)((const real *)p + i);
}
/* Loads n vectors starting at element i. */
EW_INLINE void vf_load_at(vf *v, int n, const void *p, int64_t i, bool is_half) {
  int u = 0;
  for (; is_half && u + 2 <= n; u += 2)
    vf_load_halves((const half *)p + i + u * VF, &v[u], &v[u + 1]);
  for (; u < n; u++)
    v[u] = is_half ? vf_load_half((const half *)p + i + u * VF)
                   : vf_load((const real *)p + i + u * VF);
}
/* Copies 2 VF elements, converted to float32. */
EW_INLINE void vf_copy_at(real *to, const void *p, int64_t i, bool is_half) {
  vf v[2];
  vf_load_at(v, 2, p, i, is_half);
  vf_store(to, v[0]), vf_store(to + VF, v[1]);
}
#endif
