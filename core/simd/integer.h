/* Integer lanes: packing of bytes, table lookup, dot products of bytes and of 16-bit integers. */
#ifndef EDGEWISE_SIMD_INTEGER_H
#define EDGEWISE_SIMD_INTEGER_H
#include "simd/vector.h"

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
EW_INLINE int32_t i32x4_sum(i32x4 v) { /* wraps */
  u32x4 sum = (u32x4)v;
  sum += __builtin_shufflevector(sum, sum, 2, 3, 0, 1);
  return (int32_t)(sum[0] + sum[1]);
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
/* Sums of two products of bytes: a[2i] * b[2i] + a[2i+1] * b[2i+1] in 16 bits. vi_pairs says
 * whether this and vi_dot_bytes are exact for a in -64..64 and unsigned b, though vi_dots is
 * EW_NO_DOTS: x86 without VNNI adds two products in 16 bits with saturation, which 2 * 64 * 255
 * does not reach. */
#if EW_RELAXED_DOTS
EW_INLINE vi vi_dot_pairs(vi a, vi b) {
  return (vi)wasm_i16x8_relaxed_dot_i8x16_i7x16((v128_t)a, (v128_t)b);
}
EW_INLINE int vi_pairs(void) {
  static const volatile int32_t most = 0x40404040, ones = -1;
  const vi a = vi_splat(most), b = vi_splat(ones), none = vi_splat(0);
  return vi_dots() == EW_NO_DOTS && vi_dot_pairs(a, b)[0] == 2 * 64 * 255 * 0x10001 &&
         vi_dot_bytes(a, b, none)[0] == 4 * 64 * 255;
}
#else
EW_INLINE int vi_pairs(void) { return 0; }
#  if VF == 16
EW_INLINE vi vi_dot_pairs(vi a, vi b) { return (vi)_mm512_maddubs_epi16((__m512i)b, (__m512i)a); }
#  elif VF == 8
EW_INLINE vi vi_dot_pairs(vi a, vi b) { return (vi)_mm256_maddubs_epi16((__m256i)b, (__m256i)a); }
#  endif
#endif
/* 1 if there is vi_dot_pairs, exact for b in 0..127. */
#define EW_PAIR_DOTS (EW_RELAXED_DOTS || VF > 4)
/* Sums of 16-bit integers, and of neighbouring ones as 32-bit integers. */
EW_INLINE vi vi_add_shorts(vi a, vi b) {
  typedef uint16_t shorts __attribute__((vector_size(4 * VF)));
  return (vi)((shorts)a + (shorts)b);
}
/* acc + vi_dot_pairs(a, b) in 16 bits. Assembly with 16 registers: gcc copies sums of a loop. */
#if EW_PAIR_DOTS
EW_INLINE vi vi_add_pairs(vi a, vi b, vi acc) {
#  if defined(__x86_64__) && VF == 8
  vi t;
  __asm__("vpmaddubsw %2, %3, %1\n\tvpaddw %1, %0, %0" : "+x"(acc), "=&x"(t) : "x"(a), "x"(b));
  return acc;
#  else
  return vi_add_shorts(acc, vi_dot_pairs(a, b));
#  endif
}
#endif
EW_INLINE vi vi_sum_shorts(vi a) {
#if defined(__wasm_simd128__)
  return (vi)wasm_i32x4_extadd_pairwise_i16x8((v128_t)a);
#elif VF == 16
  return (vi)_mm512_madd_epi16((__m512i)a, _mm512_set1_epi16(1));
#elif VF == 8
  return (vi)_mm256_madd_epi16((__m256i)a, _mm256_set1_epi16(1));
#else
  return ((a << 16) >> 16) + (a >> 16);
#endif
}
EW_INLINE i32x4 i32x4_load_splat(const int_m *p) {
#if defined(__wasm_simd128__)
  return (i32x4)wasm_v128_load32_splat(p);
#else
  return *p - (i32x4){0};
#endif
}
/* Lanes of 16 bytes, VF / 4 of them: loads them from p, p + stride and so on. */
EW_INLINE vi vi_load_lanes(const uint8_t *p, int64_t stride) {
#if VF == 16
  __m512i v = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)p));
  v = _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i *)(p + stride)), 1);
  v = _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i *)(p + 2 * stride)), 2);
  return (vi)_mm512_inserti32x4(v, _mm_loadu_si128((const __m128i *)(p + 3 * stride)), 3);
#elif VF == 8
  const __m256i v = _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)p));
  return (vi)_mm256_inserti128_si256(v, _mm_loadu_si128((const __m128i *)(p + stride)), 1);
#else
  (void)stride;
  return *(const vi_m *)p;
#endif
}
/* The same four numbers in each of these lanes. Intrinsics: gcc makes shuffles to wider vectors
 * through memory. */
EW_INLINE vi vi_repeat(u8x16 v) {
#if VF == 16
  return (vi)_mm512_broadcast_i32x4((__m128i)v);
#elif VF == 8
  return (vi)_mm256_broadcastsi128_si256((__m128i)v);
#else
  return (vi)v;
#endif
}
/* Fills each of these lanes with 16 bits of its own, from p on, or with 32. */
EW_INLINE vi vi_spread_shorts(const uint8_t *p) {
#if VF == 16
  const __m512i own = _mm512_set_epi64(0x0706070607060706, 0x0706070607060706, 0x0504050405040504,
                                       0x0504050405040504, 0x0302030203020302, 0x0302030203020302,
                                       0x0100010001000100, 0x0100010001000100);
  return (vi)_mm512_shuffle_epi8(_mm512_set1_epi64(*(const long_m *)p), own);
#elif VF == 8
  const __m256i own = _mm256_set_epi64x(0x0302030203020302, 0x0302030203020302, 0x0100010001000100,
                                        0x0100010001000100);
  return (vi)_mm256_shuffle_epi8(_mm256_set1_epi32(*(const int_m *)p), own);
#elif defined(__wasm_simd128__)
  return (vi)wasm_v128_load16_splat(p);
#else
  return vi_splat((int32_t)(*(const half *)p * 0x10001u));
#endif
}
EW_INLINE vi vi_spread_words(const uint8_t *p) {
#if VF == 16
  const __m512i own = _mm512_set_epi32(3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0);
  return (vi)_mm512_permutexvar_epi32(own,
                                      _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)p)));
#elif VF == 8
  return (vi)_mm256_permutevar8x32_epi32(
      _mm256_castsi128_si256(_mm_loadl_epi64((const __m128i *)p)),
      _mm256_set_epi32(1, 1, 1, 1, 0, 0, 0, 0));
#else
  return (vi)i32x4_load_splat((const int_m *)p);
#endif
}
/* In each of these lanes: bytes of a and b in turn, of the low or the high half; and such pairs. */
EW_INLINE vi vi_zip_low(vi a, vi b) {
#if VF == 16
  return (vi)_mm512_unpacklo_epi8((__m512i)a, (__m512i)b);
#elif VF == 8
  return (vi)_mm256_unpacklo_epi8((__m256i)a, (__m256i)b);
#else
  return (vi)__builtin_shufflevector((u8x16)a, (u8x16)b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21,
                                     6, 22, 7, 23);
#endif
}
EW_INLINE vi vi_zip_high(vi a, vi b) {
#if VF == 16
  return (vi)_mm512_unpackhi_epi8((__m512i)a, (__m512i)b);
#elif VF == 8
  return (vi)_mm256_unpackhi_epi8((__m256i)a, (__m256i)b);
#else
  return (vi)__builtin_shufflevector((u8x16)a, (u8x16)b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13,
                                     29, 14, 30, 15, 31);
#endif
}
/* Transposes 4 x 4 numbers in each lane, in place. */
EW_INLINE void vi_transpose_lanes(vi *a, vi *b, vi *c, vi *d) {
#if VF == 16
  const __m512i ab = _mm512_unpacklo_epi32((__m512i)*a, (__m512i)*b),
                AB = _mm512_unpackhi_epi32((__m512i)*a, (__m512i)*b),
                cd = _mm512_unpacklo_epi32((__m512i)*c, (__m512i)*d),
                CD = _mm512_unpackhi_epi32((__m512i)*c, (__m512i)*d);
  *a = (vi)_mm512_unpacklo_epi64(ab, cd), *b = (vi)_mm512_unpackhi_epi64(ab, cd);
  *c = (vi)_mm512_unpacklo_epi64(AB, CD), *d = (vi)_mm512_unpackhi_epi64(AB, CD);
#elif VF == 8
  const __m256i ab = _mm256_unpacklo_epi32((__m256i)*a, (__m256i)*b),
                AB = _mm256_unpackhi_epi32((__m256i)*a, (__m256i)*b),
                cd = _mm256_unpacklo_epi32((__m256i)*c, (__m256i)*d),
                CD = _mm256_unpackhi_epi32((__m256i)*c, (__m256i)*d);
  *a = (vi)_mm256_unpacklo_epi64(ab, cd), *b = (vi)_mm256_unpackhi_epi64(ab, cd);
  *c = (vi)_mm256_unpacklo_epi64(AB, CD), *d = (vi)_mm256_unpackhi_epi64(AB, CD);
#else
  f32x4 w = (f32x4)*a, x = (f32x4)*b, y = (f32x4)*c, z = (f32x4)*d;
  f32x4_transpose(&w, &x, &y, &z);
  *a = (vi)w, *b = (vi)x, *c = (vi)y, *d = (vi)z;
#endif
}
/* In each of these lanes: the sums of the four numbers of a, b, c and d, which wrap. */
EW_INLINE vi vi_sums_of_four(vi a, vi b, vi c, vi d) {
#if VF == 16
  const __m512i e = _mm512_add_epi32(_mm512_unpacklo_epi32((__m512i)a, (__m512i)b),
                                     _mm512_unpackhi_epi32((__m512i)a, (__m512i)b)),
                f = _mm512_add_epi32(_mm512_unpacklo_epi32((__m512i)c, (__m512i)d),
                                     _mm512_unpackhi_epi32((__m512i)c, (__m512i)d));
  return (vi)_mm512_add_epi32(_mm512_unpacklo_epi64(e, f), _mm512_unpackhi_epi64(e, f));
#elif VF == 8
  return (vi)_mm256_hadd_epi32(_mm256_hadd_epi32((__m256i)a, (__m256i)b),
                               _mm256_hadd_epi32((__m256i)c, (__m256i)d));
#else
  const u32x4 e = (u32x4)__builtin_shufflevector(a, b, 0, 4, 1, 5) +
                  (u32x4)__builtin_shufflevector(a, b, 2, 6, 3, 7),
              f = (u32x4)__builtin_shufflevector(c, d, 0, 4, 1, 5) +
                  (u32x4)__builtin_shufflevector(c, d, 2, 6, 3, 7);
  return (vi)(__builtin_shufflevector(e, f, 0, 1, 4, 5) +
              __builtin_shufflevector(e, f, 2, 3, 6, 7));
#endif
}
/* Likewise of eight 16-bit numbers: two of each of a, b, c and d. */
EW_INLINE vi vi_sums_of_shorts(vi a, vi b, vi c, vi d) {
#if VF == 16
  const __m512i e = _mm512_add_epi16(_mm512_unpacklo_epi32((__m512i)a, (__m512i)b),
                                     _mm512_unpackhi_epi32((__m512i)a, (__m512i)b)),
                f = _mm512_add_epi16(_mm512_unpacklo_epi32((__m512i)c, (__m512i)d),
                                     _mm512_unpackhi_epi32((__m512i)c, (__m512i)d));
  return (vi)_mm512_add_epi16(_mm512_unpacklo_epi64(e, f), _mm512_unpackhi_epi64(e, f));
#elif VF == 8
  const __m256i e = _mm256_add_epi16(_mm256_unpacklo_epi32((__m256i)a, (__m256i)b),
                                     _mm256_unpackhi_epi32((__m256i)a, (__m256i)b)),
                f = _mm256_add_epi16(_mm256_unpacklo_epi32((__m256i)c, (__m256i)d),
                                     _mm256_unpackhi_epi32((__m256i)c, (__m256i)d));
  return (vi)_mm256_add_epi16(_mm256_unpacklo_epi64(e, f), _mm256_unpackhi_epi64(e, f));
#else
  const vi e = vi_add_shorts(__builtin_shufflevector(a, b, 0, 4, 1, 5),
                             __builtin_shufflevector(a, b, 2, 6, 3, 7)),
           f = vi_add_shorts(__builtin_shufflevector(c, d, 0, 4, 1, 5),
                             __builtin_shufflevector(c, d, 2, 6, 3, 7));
  return vi_add_shorts(__builtin_shufflevector(e, f, 0, 1, 4, 5),
                       __builtin_shufflevector(e, f, 2, 3, 6, 7));
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
  const i32x4 x = (i32x4)a, y = (i32x4)b;
  return (i32x4)((u32x4)acc + (u32x4)((x << 16 >> 16) * (y << 16 >> 16)) +
                 (u32x4)((x >> 16) * (y >> 16)));
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
#elif VF == 16 /* gcc takes them apart */
  return (vi)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p));
#elif VF == 8
  return (vi)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p));
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
