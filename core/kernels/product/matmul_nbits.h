/* Shared by the files of MatMulNBits: access to packed weights, scales and zero points. */
#ifndef EDGEWISE_MATMUL_NBITS_H
#define EDGEWISE_MATMUL_NBITS_H
#include "kernels/elementwise/each.h"
#include "kernels/product/gemm.h"

enum { EW_NBITS_COLS = 4 }; /* columns that are computed together, with few rows of a */

/* Up to this many rows of a, matmul_nbits_few.c is used, where matmul_nbits_blocks.c is not. */
enum { EW_NBITS_ABREAST = VF > 4 ? 16 : 8 };

/* Blocks whose largest magnitude is below this but not 0 are too small for digits: 2^22 / largest,
 * or the product of the two scales, might not be a normal float. Their products are computed in
 * floats. */
static const float EW_NBITS_TINY = 0x1p-80f;

/* Values of the 4-bit fields: the fields themselves, or the code books of bitsandbytes (fp4 and
 * nf4, as in onnxruntime's MatMulBnb4). */
extern const real ew_nbits_codes[3][16];

typedef struct {
  const ew_matmul_nbits_params *p;
  const uint8_t *b, *zeros;
  const void *scales;
  int32_t blocks, block_bytes; /* blocks and bytes per block of a row of b; format 0 */
} ew_nbits;

/* Evaluate once per row: EW_USES is a function call. */
EW_INLINE bool ew_nbits_half_scales(const ew_nbits *w) {
  return EW_USES(NBITS_SCALES, EW_F16) && w->p->scale_type == EW_F16;
}
EW_INLINE float ew_nbits_scale(const ew_nbits *w, int64_t i, bool half) {
  return real_at(w->scales, i, half);
}

EW_INLINE float ew_nbits_zero(const ew_nbits *w, int32_t row, int32_t block) {
  const ew_matmul_nbits_params *p = w->p;
  if (!w->zeros) return (float)(1 << (p->bits - 1));
  if (p->zero_type != EW_U8)
    return real_at(w->zeros, (int64_t)row * w->blocks + block, p->zero_type == EW_F16);
  int64_t row_bytes = ((int64_t)w->blocks * p->bits + 7) / 8, bit = (int64_t)block * p->bits;
  return (float)(w->zeros[row * row_bytes + bit / 8] >> bit % 8 & ((1 << p->bits) - 1));
}

/* The next 16 fields of b in order, starting at a byte boundary. */
EW_INLINE u8x16 ew_nbits_fields(const uint8_t *b, int bits, bool high_first) {
  if (bits == 2) {
    typedef uint8_t u8x4_m __attribute__((vector_size(4), aligned(1), may_alias));
    const u32x4 v = __builtin_convertvector(*(const u8x4_m *)b, u32x4);
    return (u8x16)((v | v << 6 | v << 12 | v << 18) & 0x03030303);
  }
  const u16x8 v = __builtin_convertvector(*(const u8x8_m *)b, u16x8);
  return (u8x16)((v >> (high_first ? 4 : 0) | v << (high_first ? 8 : 4)) & 0x0f0f);
}

/* Splits a table of 16 floats into four byte tables: plane[i] holds byte i of each float. A float
 * is looked up by its four bytes. */
EW_INLINE void ew_nbits_planes(const real *table, f32x4 plane[4]) {
  for (int i = 0; i < 4; i++) {
    const u8x16 v = *(const u8x16_m *)(table + 4 * i);
    plane[i] =
        (f32x4)__builtin_shufflevector(v, v, 0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  }
  f32x4_transpose(&plane[0], &plane[1], &plane[2], &plane[3]);
}
EW_INLINE void ew_nbits_look_up(const f32x4 plane[4], u8x16 at, f32x4 out[4]) {
  u16x8 low[2], high[2];
  for (int i = 0; i < 4; i += 2) {
    const u8x16 a = u8x16_look_up((u8x16)plane[i], at), b = u8x16_look_up((u8x16)plane[i + 1], at);
    low[i / 2] = (u16x8)__builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6,
                                                22, 7, 23),
            high[i / 2] = (u16x8)__builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28,
                                                         13, 29, 14, 30, 15, 31);
  }
  out[0] = (f32x4)__builtin_shufflevector(low[0], low[1], 0, 8, 1, 9, 2, 10, 3, 11),
  out[1] = (f32x4)__builtin_shufflevector(low[0], low[1], 4, 12, 5, 13, 6, 14, 7, 15);
  out[2] = (f32x4)__builtin_shufflevector(high[0], high[1], 0, 8, 1, 9, 2, 10, 3, 11),
  out[3] = (f32x4)__builtin_shufflevector(high[0], high[1], 4, 12, 5, 13, 6, 14, 7, 15);
}

/* Transposes 16 bytes of each of four columns and splits them into 4-bit fields: each result vector
 * holds four consecutive k of all four columns. */
EW_INLINE void ew_nbits_transpose(const u8x16 column[4], f32x4 low[4], f32x4 high[4]) {
  for (int i = 0; i < 4; i++) {
    const u8x16 even = column[i] & 15, odd = (u8x16)((u16x8)column[i] >> 4) & 15;
    low[i] = (f32x4)__builtin_shufflevector(even, odd, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6,
                                            22, 7, 23);
    high[i] = (f32x4)__builtin_shufflevector(even, odd, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13,
                                             29, 14, 30, 15, 31);
  }
  f32x4_transpose(&low[0], &low[1], &low[2], &low[3]),
      f32x4_transpose(&high[0], &high[1], &high[2], &high[3]);
}

/* Dequantizes weights [k0, k0 + count) of row `row`. */
void ew_nbits_dequantize(const ew_nbits *w, int32_t row, int32_t k0, int32_t count, real *out);

/* Whether matmul_nbits_blocks.c applies: sums are added block by block for any number of rows of a,
 * so that each row of up to EW_NBITS_ABREAST has the bits of a product of that row alone. */
EW_INLINE bool ew_nbits_by_blocks(const ew_nbits *w) {
  const ew_matmul_nbits_params *p = w->p;
  return EW_PAIR_DOTS && EW_USES(NBITS, 4) && EW_USES(NBITS_ACCURACY, 4) && p->accuracy == 4 &&
         p->bits == 4 && !p->format && p->block % 32 == 0 && p->k % p->block == 0 && p->n >= 4;
}

/* Computes and finishes y: at most EW_NBITS_ABREAST rows, at least EW_NBITS_COLS columns.
 * columns: writes out[rows of a][EW_NBITS_COLS], of columns first, first + step and so on. They lie
 * far apart: each continues where it ended in the call before, so the processor sees a few long
 * streams of memory, which it fetches ahead, instead of short pieces.
 * worth: the work, in tasks of about 5 microseconds. */
typedef void (*ew_nbits_columns)(const void *f, int32_t first, int32_t step, real *out);
void ew_nbits_by_columns(ew_context *ctx, const ew_gemm_job *g, int64_t worth,
                         ew_nbits_columns columns, const void *f);

/* y = a @ b for at most EW_NBITS_ABREAST rows of a. Each has the bits of a product of that row
 * alone, but for formats 1 and 2 and blocks that do not fill 16 bytes. */
void ew_nbits_few_rows(ew_context *ctx, const ew_nbits *w, const ew_gemm_job *g, real *scratch);

/* Returns the number of leading rows computed; fewer than all where this method does not apply. */
int32_t ew_nbits_blocks(ew_context *ctx, const ew_nbits *w, const ew_gemm_job *g, real *scratch);
#endif
