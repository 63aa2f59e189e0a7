/* y = a @ dequantized b, b of 2, 4 or 8 bits in blocks with a scale each. */
#include "gemm.h"

/* bitsandbytes' code books, as in onnxruntime's MatMulBnb4 */
static const float fp4[16] = {0.0f, 5.208333333e-03f, 0.66666667f, 1.0f, 0.33333333f, 0.5f, 0.16666667f, 0.25f, -0.0f, -5.208333333e-03f, -0.66666667f, -1.0f, -0.33333333f, -0.5f, -0.16666667f, -0.25f};
static const float nf4[16] = {-1.0f, -0.6961928009986877f, -0.5250730514526367f, -0.39491748809814453f, -0.28444138169288635f, -0.18477343022823334f, -0.09105003625154495f, 0.0f,
                              0.07958029955625534f, 0.16093020141124725f, 0.24611230194568634f, 0.33791524171829224f, 0.44070982933044434f, 0.5626170039176941f, 0.7229568362236023f, 1.0f};

typedef struct {
  const ew_matmul_nbits_params *p;
  const uint8_t *b, *zeros;
  const void *scales;
  int32_t blocks, block_bytes; /* of a row of b; format 0 */
} nbits;

EW_INLINE float scale_at(const nbits *w, int64_t i) { return real_at(w->scales, i, w->p->scale_type == EW_F16); }

EW_INLINE float zero_at(const nbits *w, int32_t row, int32_t block) {
  const ew_matmul_nbits_params *p = w->p;
  if (!w->zeros) return (float)(1 << (p->bits - 1));
  if (p->zero_type != EW_U8) return real_at(w->zeros, (int64_t)row * w->blocks + block, p->zero_type == EW_F16);
  int64_t row_bytes = ((int64_t)w->blocks * p->bits + 7) / 8, bit = (int64_t)block * p->bits;
  return (float)(w->zeros[row * row_bytes + bit / 8] >> bit % 8 & ((1 << p->bits) - 1));
}

/* Weights [k0, k0 + count) of row `row`, to every `step`-th element of out. */
static void dequantize(const nbits *w, int32_t row, int32_t k0, int32_t count, real *out, int32_t step) {
  const ew_matmul_nbits_params *p = w->p;
  if (p->format) {
    const float *code = p->format == 1 ? fp4 : nf4;
    for (int32_t i = 0; i < count; i++) {
      int64_t at = (int64_t)row * p->k + k0 + i;
      out[(int64_t)i * step] = code[w->b[at / 2] >> (at % 2 ? 0 : 4) & 15] * scale_at(w, at / p->block);
    }
    return;
  }
  int32_t mask = (1 << p->bits) - 1;
  for (int32_t i = 0; i < count;) {
    int32_t block = (k0 + i) / p->block, in = (k0 + i) % p->block, n = p->block - in < count - i ? p->block - in : count - i;
    float zero = zero_at(w, row, block), scale = scale_at(w, (int64_t)row * w->blocks + block);
    const uint8_t *b = w->b + ((int64_t)row * w->blocks + block) * w->block_bytes;
    for (int32_t end = i + n; i < end; i++, in++) {
      int64_t bit = (int64_t)in * p->bits;
      out[(int64_t)i * step] = ((float)(b[bit / 8] >> bit % 8 & mask) - zero) * scale;
    }
  }
}

static void pack_b(const ew_gemm_job *g, real *panels, int32_t k0, int32_t kc, int32_t j0, int32_t nc) {
  for (int32_t j = 0; j < nc; j += NR, panels += (int64_t)kc * NR)
    for (int32_t c = 0; c < NR; c++) {
      if (j + c < nc) dequantize(g->b, j0 + j + c, k0, kc, panels + c, NR);
      else
        for (int32_t i = 0; i < kc; i++) panels[(int64_t)i * NR + c] = 0;
    }
}

int32_t ew_k_matmul_nbits(ew_context *ctx, const ew_matmul_nbits_params *p, void *const *operand) {
  nbits w = {p, operand[EW_MATMUL_NBITS_B], operand[EW_MATMUL_NBITS_ZEROS], operand[EW_MATMUL_NBITS_SCALES], p->k / p->block + (p->k % p->block != 0),
             (int32_t)(((int64_t)p->block * p->bits + 7) / 8)};
  real *scratch = operand[EW_MATMUL_NBITS_SCRATCH];
  ew_gemm_job g = {.m = p->m, .n = p->n, .k = p->k, .a_row = p->a_row, .a_col = 1, .y_row = p->y_row, .a = operand[EW_MATMUL_NBITS_A], .y = operand[EW_MATMUL_NBITS_Y],
                   .finish = {.bias = operand[EW_MATMUL_NBITS_BIAS], .residual = operand[EW_MATMUL_NBITS_RESIDUAL], .bias_col = 1, .activation = p->activation, .alpha = 1, .beta = 1},
                   .pack_b = pack_b, .b = &w};
  ew_gemm_run(ctx, &g, scratch, EW_GEMM_B_FLOATS, scratch ? scratch + EW_GEMM_B_FLOATS : NULL, EW_GEMM_A_FLOATS, ew_parallel_width(ctx));
  return EW_OK;
}
