/* Linear attention with a recurrent state per head (LinearAttention, gated delta rules). The
 * columns of the state, one per element of v, are independent: some vectors of columns, which fit
 * the nearest cache, are carried through all positions at a time. Products by chunks of positions
 * would need half as many multiplications again. A task is a block of columns of one kv head of one
 * batch item. */
#include "kernel.h"
#include "simd.h"
#include <string.h>

enum {
  WIDE = 4,         /* vectors of columns of a task */
  TURNS = 8 / WIDE, /* sums of each, to hide the latency of multiply-adds */
  DIM = 256         /* rows of the state, up to which they are carried side by side */
};

typedef struct {
  const ew_linear_attention_params *p;
  const real *q, *k, *v, *past, *decay, *beta;
  real *y, *state;
  int32_t blocks; /* of columns, per head */
} linear_attention_work;

/* A vector, or its first n elements. */
EW_INLINE vf load_some(const real *p, int32_t n) {
  if (n == VF) return vf_load(p);
  vf v = {0};
  memcpy(&v, p, (size_t)n * sizeof(real));
  return v;
}
EW_INLINE void store_some(real *p, vf v, int32_t n) {
  if (n == VF)
    vf_store(p, v);
  else
    memcpy(p, &v, (size_t)n * sizeof(real));
}

/* out = the sum of x[i] decay[i * step] times row i of the state. n: those of the last vector. */
EW_INLINE void sum_vectors(int vectors, int32_t n, const real *s, int64_t row, int32_t dim,
                           const real *x, const real *decay, int32_t step, vf *out) {
  vf sum[TURNS][WIDE];
  for (int u = 0; u < TURNS; u++)
    for (int c = 0; c < vectors; c++) sum[u][c] = vf_splat(0);
  int32_t i = 0;
  for (; i + TURNS <= dim; i += TURNS)
    for (int u = 0; u < TURNS; u++, s += row) {
      const vf y = vf_splat(x[i + u] * decay[(i + u) * step]);
      for (int c = 0; c < vectors; c++) sum[u][c] = vf_fma(y, load_some(s + c * VF, n), sum[u][c]);
    }
  for (; i < dim; i++, s += row) {
    const vf y = vf_splat(x[i] * decay[i * step]);
    for (int c = 0; c < vectors; c++) sum[0][c] = vf_fma(y, load_some(s + c * VF, n), sum[0][c]);
  }
  for (int c = 0; c < vectors; c++) {
    out[c] = sum[0][c];
    for (int u = 1; u < TURNS; u++) out[c] += sum[u][c];
  }
}

static __attribute__((noinline)) void sum_rows(int vectors, int32_t n, const real *s, int64_t row,
                                               int32_t dim, const real *x, const real *decay,
                                               int32_t step, vf *out) {
  if (vectors == WIDE)
    sum_vectors(WIDE, VF, s, row, dim, x, decay, step, out);
  else
    sum_vectors(1, n, s, row, dim, x, decay, step, out);
}

/* Carries `vectors` of columns from c on, whose state is s, through all positions. */
EW_INLINE void carry(const linear_attention_work *w, int64_t head, int32_t c, int vectors,
                     int32_t n, real *s, int64_t row) {
  static const real one = 1;
  const ew_linear_attention_params *p = w->p;
  const int64_t b = head / p->kv_heads, h = head % p->kv_heads;
  const int32_t outs = p->heads > p->kv_heads ? p->heads : p->kv_heads, each = outs / p->kv_heads,
                step = w->decay && p->decay_dim > 1;
  for (int64_t t = 0; t < p->seq; t++) {
    const int64_t at = b * p->seq + t;
    const real *k = w->k + (at * p->kv_heads + h) * p->dim,
               *v = w->v + (at * p->kv_heads + h) * p->v_dim + c,
               *decay = w->decay ? w->decay + (at * p->kv_heads + h) * p->decay_dim : &one;
    vf u[WIDE], known[WIDE];
    for (int i = 0; i < vectors; i++) u[i] = load_some(v + i * VF, n);
    if (w->beta) {
      const float beta = w->beta[at * p->beta_heads + (p->beta_heads > 1 ? h : 0)];
      sum_rows(vectors, n, s, row, p->dim, k, decay, step, known);
      for (int i = 0; i < vectors; i++) u[i] = (u[i] - known[i]) * beta;
    }
    /* the state, and its product with the first query */
    const real *q = w->q + (at * p->heads + h * each * p->heads / outs) * p->dim;
    for (int i = 0; i < vectors; i++) known[i] = vf_splat(0);
    for (int32_t d = 0; d < p->dim; d++) {
      const vf x = vf_splat(k[d]), left = vf_splat(decay[d * step]), z = vf_splat(q[d]);
      for (int i = 0; i < vectors; i++) {
        real *at_s = s + d * row + i * VF;
        const vf now = vf_fma(x, u[i], load_some(at_s, n) * left);
        store_some(at_s, now, n);
        known[i] = vf_fma(z, now, known[i]);
      }
    }
    for (int64_t o = h * each; o < (h + 1) * each; o++) {
      if (o > h * each)
        sum_rows(vectors, n, s, row, p->dim, w->q + (at * p->heads + o * p->heads / outs) * p->dim,
                 &one, 0, known);
      for (int i = 0; i < vectors; i++)
        store_some(w->y + (at * outs + o) * p->v_dim + c + i * VF, known[i] * p->scale, n);
    }
  }
}

static void linear_attention_task(void *arg, int32_t index, int32_t thread) {
  const linear_attention_work *w = arg;
  const ew_linear_attention_params *p = w->p;
  (void)thread;
  const int64_t head = index / w->blocks;
  const int32_t c = index % w->blocks * WIDE * VF,
                cols = p->v_dim - c < WIDE * VF ? p->v_dim - c : WIDE * VF;
  const size_t bytes = (size_t)cols * sizeof(real);
  real near[DIM * WIDE * VF], *state = w->state + head * p->dim * p->v_dim + c,
                              *s = p->dim <= DIM ? near : state;
  const int64_t row = s == near ? WIDE * VF : p->v_dim;
  for (int64_t i = 0; i < p->dim; i++)
    if (w->past)
      memmove(s + i * row, w->past + (head * p->dim + i) * p->v_dim + c, bytes);
    else
      memset(s + i * row, 0, bytes);
  if (cols == WIDE * VF)
    carry(w, head, c, WIDE, VF, s, row);
  else
    for (int32_t i = 0; i < cols; i += VF)
      carry(w, head, c + i, 1, cols - i < VF ? cols - i : VF, s + i, row);
  for (int64_t i = 0; s == near && i < p->dim; i++)
    memcpy(state + i * p->v_dim, s + i * row, bytes);
}

int32_t ew_k_linear_attention(ew_context *ctx, const ew_linear_attention_params *p,
                              void *const *operand) {
  linear_attention_work w = {p,
                             operand[EW_LINEAR_ATTENTION_Q],
                             operand[EW_LINEAR_ATTENTION_K],
                             operand[EW_LINEAR_ATTENTION_V],
                             operand[EW_LINEAR_ATTENTION_PAST],
                             operand[EW_LINEAR_ATTENTION_DECAY],
                             operand[EW_LINEAR_ATTENTION_BETA],
                             operand[EW_LINEAR_ATTENTION_Y],
                             operand[EW_LINEAR_ATTENTION_STATE],
                             (p->v_dim - 1) / (WIDE * VF) + 1};
  ew_parallel(ctx, p->batch * p->kv_heads * w.blocks, linear_attention_task, &w);
  return EW_OK;
}
