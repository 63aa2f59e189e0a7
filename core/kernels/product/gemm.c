/* Matrix product (MatMul, Gemm, fused products): y = activation(alpha a b + beta bias) + residual.
 * b is float32, float16 or bytes with a scale.
 *
 * Products of few rows read b in place (gemm_few.c), large ones pack it (gemm_blocked.c); with
 * enough matrices in a batch, each task computes whole ones. This file has the packing of b for
 * each layout and type, and the batches. */
#include "kernels/product/gemm_parts.h"

EW_INLINE void pack_b_of(const ew_gemm_job *g, real *panels, int32_t k0, int32_t kc, int32_t j0,
                         int32_t nc, bool is_half) {
  const ew_b_layout *s = g->b_more;
  int32_t whole = nc / NR * NR;
  int64_t at = k0 * s->row + j0 * s->col;
  if (s->row == 1) {
    EW_PLAIN_FOR (int32_t j = 0; j < nc; j += NR)
      ew_pack_columns(g->b, at + j * s->col, s->col, kc, at_most(nc - j, NR),
                      panels + (int64_t)j * kc, is_half);
    return;
  }
  if (s->col == 1) {
    /* Packs along the rows of b, since memory is fastest when read in order; in groups of panels,
     * so that the cache lines being written stay in cache. */
    enum { GROUP = 8 * NR, AHEAD = 8 };
    for (int32_t group = 0; group < whole; group += GROUP)
      for (int32_t p = 0; p < kc; p++) {
        const int64_t from = at + p * s->row + group;
#if VF > 8
        /* hardware prefetchers follow a row but not the step to the next one */
        if (p + AHEAD < kc)
          for (int32_t j = 0; j < GROUP && group + j < whole; j += 16)
            __builtin_prefetch((const char *)g->b +
                               (from + AHEAD * s->row + j) * (is_half ? 2 : 4));
#endif
        EW_PLAIN_FOR (int32_t j = 0; j < GROUP && group + j < whole; j += NR)
          vf_copy_at(panels + (int64_t)(group + j) * kc + p * NR, g->b, from + j, is_half);
      }
  } else
    whole = 0;
  for (int32_t j = whole; j < nc; j += NR) {
    real *panel = panels + (int64_t)j * kc;
    EW_PLAIN_FOR (int32_t p = 0; p < kc; p++)
      EW_PLAIN_FOR (int32_t c = 0; c < NR; c++)
        panel[p * NR + c] =
            j + c < nc ? real_at(g->b, at + p * s->row + (j + c) * s->col, is_half) : 0;
  }
}
/* Packs bytes; unsigned ones are made signed by a flip, which subtracts 128. Blocks of four columns
 * by four rows are transposed if the columns are contiguous. */
static void pack_b_bytes(const ew_gemm_job *g, real *panels, int32_t k0, int32_t kc, int32_t j0,
                         int32_t nc) {
  typedef int8_t i8x4 __attribute__((vector_size(4)));
  const ew_b_layout *s = g->b_more;
  const int8_t flip = s->type == EW_U8 ? -128 : 0;
  const float offset = s->type == EW_U8 ? 128 : 0;
  for (int32_t j = 0; j < nc; j += NR, panels += (int64_t)kc * NR)
    EW_PLAIN_FOR (int32_t c = 0; c < NR; c += 4) {
      const int8_t *b = (const int8_t *)g->b + k0 * s->row + (j0 + j + c) * s->col;
      const int32_t cols = nc - j - c < 4 ? nc - j - c : 4;
      int32_t p = 0;
      if (cols == 4 && s->row == 1)
        EW_PLAIN_FOR (; p + 4 <= kc; p += 4) {
          f32x4 v[4];
          for (int i = 0; i < 4; i++) {
            i8x4 x;
            __builtin_memcpy(&x, b + i * s->col + p, 4);
            v[i] = __builtin_convertvector(x ^ flip, f32x4) + offset;
          }
          f32x4_transpose(&v[0], &v[1], &v[2], &v[3]);
          for (int i = 0; i < 4; i++) *(f32x4_m *)(panels + (p + i) * NR + c) = v[i];
        }
      EW_PLAIN_FOR (; p < kc; p++)
        EW_PLAIN_FOR (int i = 0; i < 4; i++)
          panels[p * NR + c + i] =
              i < cols ? (float)(int8_t)(b[p * s->row + i * s->col] ^ flip) + offset : 0;
    }
}
static void pack_b(const ew_gemm_job *g, real *panels, int32_t k0, int32_t kc, int32_t j0,
                   int32_t nc) {
  switch (EW_CHOICE(B_TYPE, ((const ew_b_layout *)g->b_more)->type)) {
  case EW_F32: pack_b_of(g, panels, k0, kc, j0, nc, false); break;
  case EW_F16: pack_b_of(g, panels, k0, kc, j0, nc, true); break;
  default: pack_b_bytes(g, panels, k0, kc, j0, nc);
  }
}

static ew_gemm_job job_of(const ew_gemm_params *p, void *const *operand, int64_t item,
                          const ew_b_layout *layout) {
  int64_t i0 = item / p->batch1, i1 = item % p->batch1;
  int64_t b = i0 * p->b0 + i1 * p->b1, y = i0 * p->y0 + i1 * p->y1;
  const real *residual = operand[EW_GEMM_RESIDUAL];
  return (ew_gemm_job){.m = p->m,
                       .n = p->n,
                       .k = p->k,
                       .a_row = p->a_row,
                       .a_col = p->a_col,
                       .y_row = p->y_row,
                       .a = (const real *)operand[EW_GEMM_A] + i0 * p->a0 + i1 * p->a1,
                       .y = (real *)operand[EW_GEMM_Y] + y,
                       .finish = {operand[EW_GEMM_BIAS], residual ? residual + y : NULL,
                                  p->bias_row, p->bias_col, p->activation, p->alpha, p->beta},
                       .pack_b = pack_b,
                       .b = (const char *)operand[EW_GEMM_B] + b * ew_bytes_of_b(p->b_type),
                       .b_more = layout};
}

static void run(ew_context *ctx, const ew_gemm_job *g, real *packed_b, int64_t b_floats,
                real *packed_a, int64_t a_floats, int32_t threads) {
  if (!ew_gemm_few(ctx, g, packed_b, b_floats, packed_a, a_floats, threads))
    ew_gemm_run(ctx, g, packed_b, b_floats, packed_a, a_floats, threads);
}

typedef struct {
  ew_context *context;
  const ew_gemm_params *p;
  void *const *operand;
  const ew_b_layout *layout;
  int64_t items, items_per_task;
  int32_t threads;
} gemm_batch;

static void batch_task(void *arg, int32_t index, int32_t thread) {
  const gemm_batch *s = arg;
  real *scratch = s->operand[EW_GEMM_SCRATCH];
  int64_t b_share = EW_GEMM_B_FLOATS / s->threads, a_share = EW_GEMM_A_FLOATS / s->threads,
          end = (index + (int64_t)1) * s->items_per_task;
  for (int64_t item = index * s->items_per_task;
       item < end && item < s->items && !ew_stopping(s->context); item++) {
    ew_gemm_job g = job_of(s->p, s->operand, item, s->layout);
    run(s->context, &g, scratch ? scratch + b_share * thread : NULL, b_share,
        scratch ? scratch + EW_GEMM_B_FLOATS + a_share * thread : NULL, a_share, 1);
  }
}

int32_t ew_k_gemm(ew_context *ctx, const ew_gemm_params *p, void *const *operand) {
  ew_b_layout layout = {p->b_row, p->b_col, p->b_type, p->b_type == EW_F16,
                        p->b_type == EW_F16 && p->b_normal};
  real *scratch = operand[EW_GEMM_SCRATCH];
  int32_t threads = ew_parallel_width(ctx);
  int64_t items = (int64_t)p->batch0 * p->batch1;
  if (items >= threads && threads > 1) { /* each thread computes whole matrices */
    int64_t least = (1 << 19) / ((int64_t)p->m * p->n * p->k + 1) + 1,
            share = (items - 1) / (4 * (int64_t)threads) + 1;
    gemm_batch s = {ctx, p, operand, &layout, items, share > least ? share : least, threads};
    ew_parallel(ctx, (int32_t)((items - 1) / s.items_per_task + 1), batch_task, &s);
    return EW_OK;
  }
  for (int64_t item = 0; item < items && !ew_stopping(ctx); item++) {
    ew_gemm_job g = job_of(p, operand, item, &layout);
    run(ctx, &g, scratch, EW_GEMM_B_FLOATS, scratch ? scratch + EW_GEMM_B_FLOATS : NULL,
        EW_GEMM_A_FLOATS, threads);
  }
  return EW_OK;
}
