/* Portable SIMD: a small set of operations on vectors of VF floats.
 *
 * Vectors are GCC/Clang vector extensions: +, -, *, / and comparisons use the normal operators, and
 * compilers lower them to scalar code on targets without vectors. Functions exist only for what
 * operators cannot express. Each has a portable form and, where it pays, one per instruction set:
 * wasm simd128, wasm relaxed-simd, SSE, AVX2 + FMA (vectors twice as wide) and AVX-512 (four
 * times). Operands of a plan may have any address, so memory is accessed only through the unaligned
 * types `real`, `half`, ... below (aligned(1)). */
#ifndef EDGEWISE_SIMD_H
#define EDGEWISE_SIMD_H
#include <stdbool.h>
#include <stdint.h>
#if defined(__wasm_simd128__)
#  include <wasm_simd128.h>
#elif defined(__SSE2__)
#  include <immintrin.h>
#endif

#if defined(__AVX512F__) && defined(__AVX512BW__)
#  define VF 16
#elif defined(__AVX2__) && defined(__FMA__)
#  define VF 8
#else
#  define VF 4
#endif

#define EW_INLINE static inline __attribute__((always_inline, unused))
#define EW_MEMORY __attribute__((aligned(1), may_alias))

typedef float real EW_MEMORY; /* a float at any address */
typedef uint16_t half EW_MEMORY;
typedef int16_t short_m EW_MEMORY;
typedef int32_t int_m EW_MEMORY;
typedef int64_t long_m EW_MEMORY;

typedef float vf __attribute__((vector_size(4 * VF)));
typedef int32_t vi __attribute__((vector_size(4 * VF)));
typedef uint32_t vu __attribute__((vector_size(4 * VF))); /* for sums that may wrap */
typedef float vf_m __attribute__((vector_size(4 * VF), aligned(1), may_alias));
typedef int32_t vi_m __attribute__((vector_size(4 * VF), aligned(1), may_alias));

/* Four 32-bit lanes, independent of VF: for transposes and integer dot products. */
typedef float f32x4 __attribute__((vector_size(16)));
typedef int32_t i32x4 __attribute__((vector_size(16)));
typedef uint32_t u32x4 __attribute__((vector_size(16)));
typedef int16_t i16x8 __attribute__((vector_size(16)));
typedef uint16_t u16x8 __attribute__((vector_size(16)));
typedef int8_t i8x16 __attribute__((vector_size(16)));
typedef uint8_t u8x16 __attribute__((vector_size(16)));
typedef float f32x4_m __attribute__((vector_size(16), aligned(1), may_alias));
typedef int32_t i32x4_m __attribute__((vector_size(16), aligned(1), may_alias));
typedef uint32_t u32x4_m __attribute__((vector_size(16), aligned(1), may_alias));
typedef int16_t i16x8_m __attribute__((vector_size(16), aligned(1), may_alias));
typedef int8_t i8x16_m __attribute__((vector_size(16), aligned(1), may_alias));
typedef uint8_t u8x16_m __attribute__((vector_size(16), aligned(1), may_alias));
typedef uint8_t u8x8_m __attribute__((vector_size(8), aligned(1), may_alias));
typedef uint8_t u8x8 __attribute__((vector_size(8)));

EW_INLINE vf vf_load(const real *p) { return *(const vf_m *)p; }
EW_INLINE void vf_store(real *p, vf v) { *(vf_m *)p = v; }
EW_INLINE vf vf_splat(float x) { return x - (vf){0}; }
EW_INLINE vf vf_load_splat(const real *p) {
#if defined(__wasm_simd128__)
  return (vf)wasm_v128_load32_splat(p);
#else
  return vf_splat(*p);
#endif
}
EW_INLINE vi vi_splat(int32_t x) { return x - (vi){0}; }
EW_INLINE vf vf_abs(vf v) { return (vf)((vi)v & 0x7fffffff); }
EW_INLINE vf vf_copysign(vf v, vf sign) {
  return (vf)(((vi)v & 0x7fffffff) | ((vi)sign & (int32_t)0x80000000));
}
EW_INLINE vf vf_select(vi mask, vf yes, vf no) { return (vf)((mask & (vi)yes) | (~mask & (vi)no)); }

/* acc + a * b, rounded once if the hardware has fused multiply-add. */
EW_INLINE vf vf_fma(vf a, vf b, vf acc) {
#if defined(__wasm_relaxed_simd__)
  return (vf)wasm_f32x4_relaxed_madd((v128_t)a, (v128_t)b, (v128_t)acc);
#elif VF == 16
  return (vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)acc);
#elif VF == 8
  return (vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)acc);
#else
  return acc + a * b;
#endif
}

/* max: a < b ? b : a, and min: b < a ? b : a. A NaN in a is kept, a NaN in b is dropped. */
EW_INLINE vf vf_max(vf a, vf b) {
#if defined(__wasm_simd128__)
  return (vf)wasm_f32x4_pmax((v128_t)a, (v128_t)b);
#elif VF == 16
  return (vf)_mm512_max_ps((__m512)b, (__m512)a);
#elif VF == 8
  return (vf)_mm256_max_ps((__m256)b, (__m256)a);
#elif defined(__SSE2__)
  return (vf)_mm_max_ps((__m128)b, (__m128)a);
#else
  return vf_select(a < b, b, a);
#endif
}
EW_INLINE vf vf_min(vf a, vf b) {
#if defined(__wasm_simd128__)
  return (vf)wasm_f32x4_pmin((v128_t)a, (v128_t)b);
#elif VF == 16
  return (vf)_mm512_min_ps((__m512)b, (__m512)a);
#elif VF == 8
  return (vf)_mm256_min_ps((__m256)b, (__m256)a);
#elif defined(__SSE2__)
  return (vf)_mm_min_ps((__m128)b, (__m128)a);
#else
  return vf_select(b < a, b, a);
#endif
}

EW_INLINE vf vf_sqrt(vf v) {
#if defined(__wasm_simd128__)
  return (vf)wasm_f32x4_sqrt((v128_t)v);
#elif VF == 16
  return (vf)_mm512_sqrt_ps((__m512)v);
#elif VF == 8
  return (vf)_mm256_sqrt_ps((__m256)v);
#elif defined(__SSE2__)
  return (vf)_mm_sqrt_ps((__m128)v);
#else
  for (int i = 0; i < VF; i++) v[i] = __builtin_sqrtf(v[i]);
  return v;
#endif
}

EW_INLINE f32x4 f32x4_max(f32x4 a, f32x4 b) {
#if defined(__wasm_simd128__)
  return (f32x4)wasm_f32x4_pmax((v128_t)a, (v128_t)b);
#elif defined(__SSE2__)
  return (f32x4)_mm_max_ps((__m128)b, (__m128)a);
#else
  return (f32x4)(((i32x4)b & (a < b)) | ((i32x4)a & ~(a < b)));
#endif
}
EW_INLINE f32x4 f32x4_min(f32x4 a, f32x4 b) {
#if defined(__wasm_simd128__)
  return (f32x4)wasm_f32x4_pmin((v128_t)a, (v128_t)b);
#elif defined(__SSE2__)
  return (f32x4)_mm_min_ps((__m128)b, (__m128)a);
#else
  return (f32x4)(((i32x4)b & (b < a)) | ((i32x4)a & ~(b < a)));
#endif
}
/* Packs lanes in -128..127 into bytes, those of a first. */
EW_INLINE i8x16 i8x16_of(i32x4 a, i32x4 b, i32x4 c, i32x4 d) {
#if defined(__wasm_simd128__)
  return (i8x16)wasm_i8x16_narrow_i16x8(wasm_i16x8_narrow_i32x4((v128_t)a, (v128_t)b),
                                        wasm_i16x8_narrow_i32x4((v128_t)c, (v128_t)d));
#elif defined(__SSE2__)
  return (i8x16)_mm_packs_epi16(_mm_packs_epi32((__m128i)a, (__m128i)b),
                                _mm_packs_epi32((__m128i)c, (__m128i)d));
#else
  i8x16 y;
  for (int i = 0; i < 4; i++)
    y[i] = (int8_t)a[i], y[i + 4] = (int8_t)b[i], y[i + 8] = (int8_t)c[i], y[i + 12] = (int8_t)d[i];
  return y;
#endif
}

/* table[at] for each lane, with a table of 16 entries. */
EW_INLINE u8x16 u8x16_look_up(u8x16 table, u8x16 at) {
#if defined(__wasm_relaxed_simd__)
  return (u8x16)wasm_i8x16_relaxed_swizzle((v128_t)table, (v128_t)at);
#elif defined(__wasm_simd128__)
  return (u8x16)wasm_i8x16_swizzle((v128_t)table, (v128_t)at);
#elif defined(__SSSE3__)
  return (u8x16)_mm_shuffle_epi8((__m128i)table, (__m128i)at);
#else
  u8x16 y;
  for (int i = 0; i < 16; i++) y[i] = table[at[i]];
  return y;
#endif
}

/* Packs lanes in -128..255 into bytes, those of a first. */
EW_INLINE u8x16 u8x16_of(i32x4 a, i32x4 b, i32x4 c, i32x4 d) {
#if defined(__wasm_simd128__)
  const v128_t byte = wasm_i16x8_splat(255);
  return (u8x16)wasm_u8x16_narrow_i16x8(
      wasm_v128_and(wasm_i16x8_narrow_i32x4((v128_t)a, (v128_t)b), byte),
      wasm_v128_and(wasm_i16x8_narrow_i32x4((v128_t)c, (v128_t)d), byte));
#else
  const u8x16 e = __builtin_shufflevector((u8x16)a, (u8x16)b, 0, 4, 8, 12, 16, 20, 24, 28, 0, 0, 0,
                                          0, 0, 0, 0, 0),
              f = __builtin_shufflevector((u8x16)c, (u8x16)d, 0, 4, 8, 12, 16, 20, 24, 28, 0, 0, 0,
                                          0, 0, 0, 0, 0);
  return __builtin_shufflevector(e, f, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23);
#endif
}
EW_INLINE float f32x4_sum(f32x4 v) {
  v += __builtin_shufflevector(v, v, 2, 3, 0, 1);
  return v[0] + v[1];
}
EW_INLINE int32_t i32x4_sum(i32x4 v) { /* wraps */
  u32x4 sum = (u32x4)v;
  sum += __builtin_shufflevector(sum, sum, 2, 3, 0, 1);
  return (int32_t)(sum[0] + sum[1]);
}
EW_INLINE float vf_sum(vf v) {
#if VF == 16
  return f32x4_sum(
      (__builtin_shufflevector(v, v, 0, 1, 2, 3) + __builtin_shufflevector(v, v, 4, 5, 6, 7)) +
      (__builtin_shufflevector(v, v, 8, 9, 10, 11) +
       __builtin_shufflevector(v, v, 12, 13, 14, 15)));
#elif VF == 8
  return f32x4_sum(__builtin_shufflevector(v, v, 0, 1, 2, 3) +
                   __builtin_shufflevector(v, v, 4, 5, 6, 7));
#else
  return f32x4_sum(v);
#endif
}
/* Shuffles of the concatenation of a and b: EVENS and ODDS select every second element from 0 or 1
 * on; BEHIND is elements 1..VF, BEFORE is elements VF-1..2 VF-2. */
#if VF == 16
#  define EW_EVENS 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30
#  define EW_ODDS 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31
#  define EW_BEHIND 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16
#  define EW_BEFORE 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30
#elif VF == 8
#  define EW_EVENS 0, 2, 4, 6, 8, 10, 12, 14
#  define EW_ODDS 1, 3, 5, 7, 9, 11, 13, 15
#  define EW_BEHIND 1, 2, 3, 4, 5, 6, 7, 8
#  define EW_BEFORE 7, 8, 9, 10, 11, 12, 13, 14
#else
#  define EW_EVENS 0, 2, 4, 6
#  define EW_ODDS 1, 3, 5, 7
#  define EW_BEHIND 1, 2, 3, 4
#  define EW_BEFORE 3, 4, 5, 6
#endif
EW_INLINE vf vf_evens(vf a, vf b) { return __builtin_shufflevector(a, b, EW_EVENS); }
EW_INLINE vf vf_odds(vf a, vf b) { return __builtin_shufflevector(a, b, EW_ODDS); }
EW_INLINE vf vf_behind(vf a, vf b) { return __builtin_shufflevector(a, b, EW_BEHIND); }
EW_INLINE vf vf_before(vf a, vf b) { return __builtin_shufflevector(a, b, EW_BEFORE); }
EW_INLINE float vf_highest(vf v) {
  float x = v[0];
  for (int i = 1; i < VF; i++) x = x < v[i] ? v[i] : x;
  return x;
}

/* Transposes a 4 x 4 block in place by interleaving pairs of rows, then pairs of halves. */
EW_INLINE void f32x4_transpose(f32x4 *a, f32x4 *b, f32x4 *c, f32x4 *d) {
  f32x4 ab = __builtin_shufflevector(*a, *b, 0, 4, 1, 5),
        AB = __builtin_shufflevector(*a, *b, 2, 6, 3, 7);
  f32x4 cd = __builtin_shufflevector(*c, *d, 0, 4, 1, 5),
        CD = __builtin_shufflevector(*c, *d, 2, 6, 3, 7);
  *a = __builtin_shufflevector(ab, cd, 0, 1, 4, 5),
  *b = __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
  *c = __builtin_shufflevector(AB, CD, 0, 1, 4, 5),
  *d = __builtin_shufflevector(AB, CD, 2, 3, 6, 7);
}

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
  i16x8 special = ((high & 0x0f80) == 0x0f80) & 0x7000;
  high = (high & (int16_t)0x8fff) | special;
  *a = (vf)__builtin_shufflevector(low, high, 0, 8, 1, 9, 2, 10, 3, 11) * 0x1p112f;
  *b = (vf)__builtin_shufflevector(low, high, 4, 12, 5, 13, 6, 14, 7, 15) * 0x1p112f;
#else
  *a = vf_load_half(p), *b = vf_load_half(p + VF);
#endif
}
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
  vf a = vf_min(vf_abs(x), vf_splat(0x1p16f)),
     power = vf_max((vf)((vi)a & 0x7f800000), vf_splat(0x1p-14f)) * 0x1p13f;
  return ((vi)(a + power) - (vi)power) + ((vi)power >> 13) - (126 << 10);
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

/* e^x with an error of one unit in the last place: x = n ln 2 + r, a minimax polynomial for e^r
 * (error 3e-9), times 2^n, taken from the low bits of n + 1.5 * 2^23. The product is computed as 2
 * e^r times 2^(n-1), because 2^128 is not a float. Below -86.99 the result is 0 rather than
 * subnormal, since x86 computes on subnormals about a hundred times slower; above 88.7 it is
 * infinity; NaN is preserved. `low`: the caller guarantees x <= 88. */
typedef struct {
  vf r, p, scale;
} vf_exp_parts; /* e^x = (r p + 2) scale */
EW_INLINE vf_exp_parts vf_exp_apart(vf x, bool low) {
  const vf round = vf_splat(0x1.8p23f + 126);
  vf t = vf_max(x, vf_splat(-87.2f));
  if (!low) t = vf_min(t, vf_splat(88.8f));
  vf bits = vf_fma(t, vf_splat(1.44269504f), round), n = bits - round;
  vf r = vf_fma(n, vf_splat(-0x1.62e4p-1f), t);
  r = vf_fma(n, vf_splat(-0x1.7f7d1cp-20f), r);
  vf p = vf_splat(2 * 1.3814540580e-3f);
  p = vf_fma(p, r, vf_splat(2 * 8.3687454462e-3f));
  p = vf_fma(p, r, vf_splat(2 * 4.1668388993e-2f));
  p = vf_fma(p, r, vf_splat(2 * 1.6666521132e-1f));
  p = vf_fma(p, r, vf_splat(2 * 4.9999994040e-1f));
  p = vf_fma(p, r, vf_splat(2));
  return (vf_exp_parts){r, p, (vf)((vi)bits << 23)};
}
EW_INLINE vf vf_exp_of(vf x, bool low) {
  vf_exp_parts e = vf_exp_apart(x, low);
  return vf_fma(e.p, e.r, vf_splat(2)) * e.scale;
}
EW_INLINE vf vf_exp(vf x) { return vf_exp_of(x, false); }
EW_INLINE vf vf_exp_low(vf x) { return vf_exp_of(x, true); }
/* e^x - 1 without cancellation near 0 */
EW_INLINE vf vf_expm1_of(vf x, bool low) {
  vf_exp_parts e = vf_exp_apart(x, low);
  return vf_fma(e.p * e.r, e.scale, e.scale + e.scale - 1.0f);
}

/* Dot products of bytes: acc[i] += sum of a[4i..4i+3] * b[4i..4i+3], wrapping. b must be in 0..127:
 * with an eighth bit, relaxed-simd and x86's pmaddubsw saturate or interpret the sign differently
 * between machines. */
EW_INLINE i32x4 i32x4_dot_bytes(i8x16 a, u8x16 b, i32x4 acc) {
#if defined(__wasm_relaxed_simd__)
  return (i32x4)wasm_i32x4_relaxed_dot_i8x16_i7x16_add((v128_t)a, (v128_t)b, (v128_t)acc);
#elif defined(__SSSE3__)
  return (i32x4)((u32x4)acc + (u32x4)_mm_madd_epi16(_mm_maddubs_epi16((__m128i)b, (__m128i)a),
                                                    _mm_set1_epi16(1)));
#else
  u32x4 sum = (u32x4)acc;
  for (int i = 0; i < 16; i++) sum[i / 4] += (uint32_t)(a[i] * b[i]);
  return (i32x4)sum;
#endif
}
/* 1 if i32x4_dot_bytes takes one to three instructions. */
#if defined(__wasm_relaxed_simd__) || defined(__SSSE3__)
#  define EW_BYTE_DOTS 1
#else
#  define EW_BYTE_DOTS 0
#endif
/* 1 if vi_dot_bytes is one instruction for b in 0..127, whatever vi_dots returns. */
#if defined(__wasm_relaxed_simd__)
#  define EW_RELAXED_DOTS 1
#else
#  define EW_RELAXED_DOTS 0
#endif
/* Dot products of bytes over whole vectors: acc[i] += sum of a[4i..4i+3] * b[4i..4i+3], exact. a is
 * signed; vi_dots says whether b is signed. */
enum { EW_NO_DOTS, EW_UNSIGNED_DOTS, EW_SIGNED_DOTS };
EW_INLINE vi vi_dot_bytes(vi a, vi b, vi acc) {
#if defined(__wasm_relaxed_simd__)
  return (vi)wasm_i32x4_relaxed_dot_i8x16_i7x16_add((v128_t)a, (v128_t)b, (v128_t)acc);
/* assembly rather than an intrinsic, so that the calling function need not be compiled for
 * AVX512-VNNI */
#elif defined(__x86_64__) && VF == 16
  __asm__("vpdpbusd %1, %2, %0" : "+v"(acc) : "v"(a), "v"(b));
  return acc;
#else
  typedef int8_t bytes __attribute__((vector_size(4 * VF)));
  bytes x = (bytes)a, y = (bytes)b;
  vu sum = (vu)acc; /* wraps */
  for (int i = 0; i < 4 * VF; i++) sum[i / 4] += (uint32_t)(x[i] * (uint8_t)y[i]);
  return (vi)sum;
#endif
}
/* Whether vi_dot_bytes is exact and fast on this machine, and whether it reads b as unsigned or
 * signed bytes. Relaxed SIMD leaves the result for values beyond seven bits to the machine, but
 * each machine is consistent: x86 with VNNI multiplies unsigned by signed bytes, ARM signed by
 * signed, and older x86 saturates. */
EW_INLINE int vi_dots(void) {
#if defined(__wasm_relaxed_simd__)
  static const volatile int32_t largest = 0x7f7f7f7f, ones = -1;
  int32_t sum = vi_dot_bytes(vi_splat(largest), vi_splat(ones), vi_splat(0))[0];
  return sum == 4 * 127 * 255 ? EW_UNSIGNED_DOTS : sum == -4 * 127 ? EW_SIGNED_DOTS : EW_NO_DOTS;
#elif defined(__x86_64__) && VF == 16
  return __builtin_cpu_supports("avx512vnni") ? EW_UNSIGNED_DOTS : EW_NO_DOTS;
#else
  return EW_NO_DOTS;
#endif
}
EW_INLINE f32x4 f32x4_load_splat(const real *p) {
#if defined(__wasm_simd128__)
  return (f32x4)wasm_v128_load32_splat(p);
#else
  return *p - (f32x4){0};
#endif
}
EW_INLINE i32x4 i32x4_load_splat(const int_m *p) {
#if defined(__wasm_simd128__)
  return (i32x4)wasm_v128_load32_splat(p);
#else
  return *p - (i32x4){0};
#endif
}
/* The low and high 32 bits of the unsigned products a * b. b should be volatile: if LLVM knows that
 * it is constant or loop-invariant, it emits 64-bit lane multiplications in wasm, which are slow.
 */
EW_INLINE void u32x4_mul_wide(u32x4 a, u32x4 b, u32x4 *low, u32x4 *high) {
#if defined(__wasm_simd128__)
  u32x4 p = (u32x4)wasm_u64x2_extmul_low_u32x4((v128_t)a, (v128_t)b),
        q = (u32x4)wasm_u64x2_extmul_high_u32x4((v128_t)a, (v128_t)b);
  *low = a * b, *high = __builtin_shufflevector(p, q, 1, 3, 5, 7);
#elif defined(__SSE2__)
  u32x4 p = (u32x4)_mm_mul_epu32((__m128i)a, (__m128i)b),
        q = (u32x4)_mm_mul_epu32(_mm_srli_epi64((__m128i)a, 32), _mm_srli_epi64((__m128i)b, 32));
  *low = __builtin_shufflevector(p, q, 0, 4, 2, 6),
  *high = __builtin_shufflevector(p, q, 1, 5, 3, 7);
#else
  for (int i = 0; i < 4; i++) {
    uint64_t p = (uint64_t)a[i] * b[i];
    (*low)[i] = (uint32_t)p, (*high)[i] = (uint32_t)(p >> 32);
  }
#endif
}
/* acc[i] += a[2i] * b[2i] + a[2i+1] * b[2i+1], wrapping */
EW_INLINE i32x4 i32x4_dot_shorts(i16x8 a, i16x8 b, i32x4 acc) {
#if defined(__wasm_simd128__)
  return (i32x4)((u32x4)acc + (u32x4)wasm_i32x4_dot_i16x8((v128_t)a, (v128_t)b));
#elif defined(__SSE2__)
  return (i32x4)((u32x4)acc + (u32x4)_mm_madd_epi16((__m128i)a, (__m128i)b));
#else
  for (int i = 0; i < 4; i++)
    acc[i] = (int32_t)((uint32_t)acc[i] + (uint32_t)(a[2 * i] * b[2 * i]) +
                       (uint32_t)(a[2 * i + 1] * b[2 * i + 1]));
  return acc;
#endif
}
/* The same over whole vectors. */
EW_INLINE vi vi_dot_shorts(vi a, vi b, vi acc) {
#if VF == 16
  return (vi)_mm512_add_epi32((__m512i)acc, _mm512_madd_epi16((__m512i)a, (__m512i)b));
#elif VF == 8
  return (vi)_mm256_add_epi32((__m256i)acc, _mm256_madd_epi16((__m256i)a, (__m256i)b));
#else
  return i32x4_dot_shorts((i16x8)a, (i16x8)b, acc);
#endif
}
/* Loads 2 VF signed bytes as 16-bit integers. */
EW_INLINE vi vi_load_shorts(const int8_t *p) {
  typedef int8_t bytes_m __attribute__((vector_size(2 * VF), aligned(1), may_alias));
  typedef int16_t shorts __attribute__((vector_size(4 * VF)));
  return (vi) __builtin_convertvector(*(const bytes_m *)p, shorts);
}
EW_INLINE vi vi_load_splat(const int_m *p) {
#if VF == 4
  return i32x4_load_splat(p);
#else
  return vi_splat(*p);
#endif
}
/* Loads VF bytes as 32-bit lanes; stores lanes in -128..255 as bytes, those of a first, then those
 * of b. */
EW_INLINE vi vi_load_bytes(const uint8_t *p) {
#if defined(__wasm_simd128__)
  return (vi)wasm_u32x4_extend_low_u16x8(wasm_u16x8_extend_low_u8x16(wasm_v128_load32_zero(p)));
#else
  typedef uint8_t bytes_m __attribute__((vector_size(VF), aligned(1), may_alias));
  return __builtin_convertvector(*(const bytes_m *)p, vi);
#endif
}
EW_INLINE void vi_store_bytes(uint8_t *p, vi a, vi b) {
#if defined(__wasm_simd128__)
  v128_t s = wasm_v128_and(wasm_i16x8_narrow_i32x4((v128_t)a, (v128_t)b), wasm_i16x8_splat(255));
  wasm_v128_store64_lane(p, wasm_u8x16_narrow_i16x8(s, s), 0);
#else
  typedef uint8_t bytes __attribute__((vector_size(VF)));
  typedef uint8_t bytes_m __attribute__((vector_size(VF), aligned(1), may_alias));
  *(bytes_m *)p = (bytes_m) __builtin_convertvector(a, bytes),
            *(bytes_m *)(p + VF) = (bytes_m) __builtin_convertvector(b, bytes);
#endif
}
#endif
