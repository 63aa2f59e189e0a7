/* Vector types, loads and stores, arithmetic, and shuffles of 32-bit lanes. */
#ifndef EDGEWISE_SIMD_VECTOR_H
#define EDGEWISE_SIMD_VECTOR_H
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
EW_INLINE float f32x4_sum(f32x4 v) {
  v += __builtin_shufflevector(v, v, 2, 3, 0, 1);
  return v[0] + v[1];
}
/* The sums of elements that are four apart. */
EW_INLINE f32x4 vf_fold(vf v) {
#if VF == 16
  return (__builtin_shufflevector(v, v, 0, 1, 2, 3) + __builtin_shufflevector(v, v, 4, 5, 6, 7)) +
         (__builtin_shufflevector(v, v, 8, 9, 10, 11) +
          __builtin_shufflevector(v, v, 12, 13, 14, 15));
#elif VF == 8
  return __builtin_shufflevector(v, v, 0, 1, 2, 3) + __builtin_shufflevector(v, v, 4, 5, 6, 7);
#else
  return v;
#endif
}
EW_INLINE float vf_sum(vf v) { return f32x4_sum(vf_fold(v)); }
/* Shuffles of the concatenation of a and b: EVENS and ODDS select every second element from 0 or 1
 * on; AFTER is elements 1..VF, BEFORE is elements VF-1..2 VF-2. */
#if VF == 16
#  define EW_EVENS 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30
#  define EW_ODDS 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31
#  define EW_AFTER 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16
#  define EW_BEFORE 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30
#elif VF == 8
#  define EW_EVENS 0, 2, 4, 6, 8, 10, 12, 14
#  define EW_ODDS 1, 3, 5, 7, 9, 11, 13, 15
#  define EW_AFTER 1, 2, 3, 4, 5, 6, 7, 8
#  define EW_BEFORE 7, 8, 9, 10, 11, 12, 13, 14
#else
#  define EW_EVENS 0, 2, 4, 6
#  define EW_ODDS 1, 3, 5, 7
#  define EW_AFTER 1, 2, 3, 4
#  define EW_BEFORE 3, 4, 5, 6
#endif
EW_INLINE vf vf_evens(vf a, vf b) { return __builtin_shufflevector(a, b, EW_EVENS); }
EW_INLINE vf vf_odds(vf a, vf b) { return __builtin_shufflevector(a, b, EW_ODDS); }
EW_INLINE vf vf_after(vf a, vf b) { return __builtin_shufflevector(a, b, EW_AFTER); }
EW_INLINE vf vf_before(vf a, vf b) { return __builtin_shufflevector(a, b, EW_BEFORE); }
EW_INLINE float vf_highest(vf v) {
#if VF == 16
  f32x4 x = f32x4_max(f32x4_max(__builtin_shufflevector(v, v, 0, 1, 2, 3),
                                __builtin_shufflevector(v, v, 4, 5, 6, 7)),
                      f32x4_max(__builtin_shufflevector(v, v, 8, 9, 10, 11),
                                __builtin_shufflevector(v, v, 12, 13, 14, 15)));
#elif VF == 8
  f32x4 x = f32x4_max(__builtin_shufflevector(v, v, 0, 1, 2, 3),
                      __builtin_shufflevector(v, v, 4, 5, 6, 7));
#else
  f32x4 x = v;
#endif
  x = f32x4_max(x, __builtin_shufflevector(x, x, 2, 3, 0, 1));
  return x[0] < x[1] ? x[1] : x[0];
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

EW_INLINE f32x4 f32x4_load_splat(const real *p) {
#if defined(__wasm_simd128__)
  return (f32x4)wasm_v128_load32_splat(p);
#else
  return *p - (f32x4){0};
#endif
}
#endif
