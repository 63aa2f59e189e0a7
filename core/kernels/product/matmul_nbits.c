/* MatMulNBits and MatMulBnb4: y = a @ dequantized b, where b has 2, 4 or 8 bits per weight in
 * blocks along k, with a scale (and optionally a zero point) per block.
 *
 * Three ways:
 *
 * - accuracy_level 4 and 4 bits: blocks of a as bytes (matmul_nbits_blocks.c);
 * - few rows: activations are quantized to integer digits and multiplied with the packed weights by
 *   integer dot products (matmul_nbits_few.c);
 * - otherwise b is dequantized into panels of the blocked product (gemm.h).
 *
 * A task is a range of columns of y. All inner loops are vectorized. */
#include "kernels/product/matmul_nbits.h"

/* Values of the 4-bit fields: the fields themselves, or the code books of bitsandbytes (fp4 and
 * nf4, as in onnxruntime's MatMulBnb4). */
const real ew_nbits_codes[3][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
    {0.0f, 5.208333333e-03f, 0.66666667f, 1.0f, 0.33333333f, 0.5f, 0.16666667f, 0.25f, -0.0f,
     -5.208333333e-03f, -0.66666667f, -1.0f, -0.33333333f, -0.5f, -0.16666667f, -0.25f},
    {-1.0f, -0.6961928009986877f, -0.5250730514526367f, -0.39491748809814453f,
     -0.28444138169288635f, -0.18477343022823334f, -0.09105003625154495f, 0.0f,
     0.07958029955625534f, 0.16093020141124725f, 0.24611230194568634f, 0.33791524171829224f,
     0.44070982933044434f, 0.5626170039176941f, 0.7229568362236023f, 1.0f}};

void ew_nbits_dequantize(const ew_nbits *w, int32_t row, int32_t k0, int32_t count, real *out) {
  const ew_matmul_nbits_params *p = w->p;
  const bool half = ew_nbits_half_scales(w),
             books = p->format && (EW_USES(NBITS_FORMAT, 1) || EW_USES(NBITS_FORMAT, 2));
  const int32_t bits = p->bits;
  const real *code = ew_nbits_codes[books ? p->format : 0];
  f32x4 plane[4];
  ew_nbits_planes(code, plane);
  /* MatMulBnb4 stores a flat array, in which blocks may cross the ends of rows, and the high field
   * of a byte comes first. */
  int64_t at = books ? (int64_t)row * p->k + k0 : k0, block = at / p->block;
  int32_t left = p->block - (int32_t)(at % p->block);
  if (!books) at = p->block - left;
  for (int32_t n; count > 0; count -= n, block++, left = p->block) {
    const int64_t of_all = books ? block : (int64_t)row * w->blocks + block;
    const float scale = ew_nbits_scale(w, of_all, half),
                zero = books ? 0 : ew_nbits_zero(w, row, (int32_t)block);
    const uint8_t *b = w->b + (books ? 0 : of_all * w->block_bytes);
    n = left < count ? left : count;
    for (int32_t j = 0; bits == 8 && j < n; j++) *out++ = ((float)(int32_t)b[at++] - zero) * scale;
    EW_PLAIN_FOR (int32_t j = 0; bits < 8 && j < n;) {
      const uint8_t *from = b + (at * bits >> 3);
      const int32_t shift = (int32_t)(at * bits & 7);
      if (!shift)
        EW_PLAIN_FOR (; n - j >= 16; j += 16, at += 16, out += 16, from += 2 * bits) {
          f32x4 value[4];
          ew_nbits_look_up(plane,
                           EW_USES(NBITS, 2) && bits == 2 ? ew_nbits_fields(from, 2, false)
                                                          : ew_nbits_fields(from, 4, books),
                           value);
          for (int e = 0; e < 4; e++) *(f32x4_m *)(out + 4 * e) = (value[e] - zero) * scale;
        }
      if (j < n)
        *out++ = (code[*from >> (books ? shift ^ 4 : shift) & ((1 << bits) - 1)] - zero) * scale,
        j++, at++;
    }
    if (!books) at = 0;
  }
}

/* Writes 4 rows of four columns as floats, NR apart. */
EW_INLINE void put_fields(f32x4 fields, f32x4 zero, f32x4 scale, real *panel) {
  typedef uint8_t u8x4 __attribute__((vector_size(4)));
  const u8x16 v = (u8x16)fields, t = __builtin_shufflevector(v, v, 0, 4, 8, 12, 1, 5, 9, 13, 2, 6,
                                                             10, 14, 3, 7, 11, 15);
  const u8x4 row[4] = {
      __builtin_shufflevector(t, t, 0, 1, 2, 3), __builtin_shufflevector(t, t, 4, 5, 6, 7),
      __builtin_shufflevector(t, t, 8, 9, 10, 11), __builtin_shufflevector(t, t, 12, 13, 14, 15)};
  for (int i = 0; i < 4; i++)
    *(f32x4_m *)(panel + i * NR) =
        (__builtin_convertvector(__builtin_convertvector(row[i], i32x4), f32x4) - zero) * scale;
}

/* Packs columns of 4 or 8 bits into a panel; k0, kc and the block size are multiples of 16 bytes of
 * fields. */
static void pack_fields(const ew_nbits *w, real *panel, int32_t k0, int32_t kc, int32_t j0,
                        int32_t cols) {
  const ew_matmul_nbits_params *p = w->p;
  const int bits = p->bits, run = 128 / bits;
  const bool half = ew_nbits_half_scales(w);
  for (int32_t k = k0; k < k0 + kc; k += run, panel += run * NR) {
    const int32_t block = k / p->block;
    const int64_t at = (int64_t)block * w->block_bytes + k % p->block * bits / 8;
    for (int32_t c = 0; c < NR; c += 4) {
      u8x16 column[4];
      f32x4 fields[8], zero = {0}, scale = {0};
      EW_PLAIN_FOR (int i = 0; i < 4; i++) {
        const bool there = c + i < cols;
        const int32_t j = there ? j0 + c + i : j0;
        column[i] = *(const u8x16_m *)(w->b + (int64_t)j * w->blocks * w->block_bytes + at);
        if (there)
          zero[i] = ew_nbits_zero(w, j, block),
          scale[i] = ew_nbits_scale(w, (int64_t)j * w->blocks + block, half);
      }
      if (bits == 4)
        ew_nbits_transpose(column, fields, fields + 4);
      else {
        EW_PLAIN_FOR (int i = 0; i < 4; i++) fields[i] = (f32x4)column[i];
        f32x4_transpose(&fields[0], &fields[1], &fields[2], &fields[3]);
      }
      EW_PLAIN_FOR (int i = 0; i < run / 4; i++)
        put_fields(fields[i], zero, scale, panel + 4 * i * NR + c);
    }
  }
}

enum { PIECE = 256 }; /* weights dequantized at a time */

static void pack_b(const ew_gemm_job *g, real *panels, int32_t k0, int32_t kc, int32_t j0,
                   int32_t nc) {
  const ew_nbits *w = g->b;
  const int32_t bits = w->p->bits, run = 128 / bits;
  const bool whole = bits != 2 && !w->p->format && !(k0 % run | kc % run | w->p->block % run);
  for (int32_t j = 0; j < nc; j += NR, panels += (int64_t)kc * NR) {
    if (whole)
      pack_fields(w, panels, k0, kc, j0 + j, nc - j);
    else
      for (int32_t c = 0; c < NR; c++)
        for (int32_t i = 0, n; i < kc; i += n) {
          float piece[PIECE];
          n = kc - i < PIECE ? kc - i : PIECE;
          if (j + c < nc) ew_nbits_dequantize(w, j0 + j + c, k0 + i, n, piece);
          EW_PLAIN_FOR (int32_t e = 0; e < n; e++)
            panels[(int64_t)(i + e) * NR + c] = j + c < nc ? piece[e] : 0;
        }
  }
}

/* Packs panels of the transposed b: its rows run along the summation, so fields are stored in panel
 * order. */
static void pack_rows(const ew_gemm_job *g, real *panels, int32_t k0, int32_t kc, int32_t j0,
                      int32_t nc) {
  for (int32_t p = 0; p < kc; p++)
    for (int32_t j = 0; j < nc; j += PIECE) {
      float piece[PIECE];
      int32_t n = nc - j < PIECE ? nc - j : PIECE;
      ew_nbits_dequantize(g->b, k0 + p, j0 + j, n, piece);
      for (; n % NR; n++) piece[n] = 0;
      for (int32_t i = 0; i < n; i += NR)
        for (int32_t c = 0; c < NR; c += VF)
          vf_store(panels + (int64_t)(j + i) * kc + p * NR + c, vf_load(piece + i + c));
    }
}

int32_t ew_k_matmul_nbits(ew_context *ctx, const ew_matmul_nbits_params *p, void *const *operand) {
  ew_nbits w = {p,
                operand[EW_MATMUL_NBITS_B],
                operand[EW_MATMUL_NBITS_ZEROS],
                operand[EW_MATMUL_NBITS_SCALES],
                p->k / p->block + (p->k % p->block != 0),
                (int32_t)(((int64_t)p->block * p->bits + 7) / 8)};
  real *scratch = operand[EW_MATMUL_NBITS_SCRATCH];
  ew_gemm_job g = {.m = p->m,
                   .n = p->n,
                   .k = p->k,
                   .a_row = p->a_row,
                   .a_col = 1,
                   .y_row = p->y_row,
                   .a = operand[EW_MATMUL_NBITS_A],
                   .y = operand[EW_MATMUL_NBITS_Y],
                   .finish = {.bias = operand[EW_MATMUL_NBITS_BIAS],
                              .residual = operand[EW_MATMUL_NBITS_RESIDUAL],
                              .bias_col = 1,
                              .activation = p->activation,
                              .alpha = 1,
                              .beta = 1},
                   .pack_b = pack_b,
                   .b = &w};
  const bool transposed = p->transposed && EW_USES(NBITS_TRANSPOSED, 1);
  if (transposed) g.n = p->k, g.k = p->n, g.pack_b = pack_rows;
  const bool by_blocks = !transposed && ew_nbits_by_blocks(&w);
  const int32_t done = by_blocks ? ew_nbits_blocks(ctx, &w, &g, scratch) : 0;
  if (!done && p->m <= EW_NBITS_ABREAST && !transposed) {
    ew_nbits_few_rows(ctx, &w, &g, scratch);
    return EW_OK;
  }
  g.m -= done, g.a += (int64_t)done * p->a_row, g.y += (int64_t)done * p->y_row;
  if (g.finish.residual) g.finish.residual += (int64_t)done * p->y_row;
  if (g.m > 0)
    ew_gemm_run(ctx, &g, scratch, EW_GEMM_B_FLOATS, scratch ? scratch + EW_GEMM_B_FLOATS : NULL,
                EW_GEMM_A_FLOATS, ew_parallel_width(ctx));
  return EW_OK;
}
