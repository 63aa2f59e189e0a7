/* Linear attention with a recurrent state per head (LinearAttention, gated delta rules). The
 * columns of the state, one per element of v, are independent: a vector of columns is carried
 * through all positions at a time. A task is a block of columns of one kv head of one batch item.
 */
#include "kernel.h"
#include "simd.h"
#include <string.h>

typedef struct {
  const ew_linear_attention_params *p;
  const real *q, *k, *v, *past, *decay, *beta;
  real *y, *state;
  int32_t blocks; /* of columns, per head */
} linear_attention_work;

static vf load_some(const real *p, int32_t n) {
  vf v = {0};
  memcpy(&v, p, (size_t)n * sizeof(real));
  return v;
}

static void linear_attention_task(void *arg, int32_t index, int32_t thread) {
  const linear_attention_work *w = arg;
  const ew_linear_attention_params *p = w->p;
  (void)thread;
  const int64_t head = index / w->blocks, b = head / p->kv_heads, h = head % p->kv_heads,
                rows = p->v_dim;
  const int32_t c = index % w->blocks * VF, n = p->v_dim - c < VF ? p->v_dim - c : VF;
  const int32_t outs = p->heads > p->kv_heads ? p->heads : p->kv_heads, each = outs / p->kv_heads;
  const size_t bytes = (size_t)n * sizeof(real);
  real *s = w->state + head * p->dim * rows + c;
  for (int32_t i = 0; i < p->dim; i++)
    if (w->past)
      memmove(s + i * rows, w->past + (head * p->dim + i) * rows + c, bytes);
    else
      memset(s + i * rows, 0, bytes);
  for (int64_t t = 0; t < p->seq; t++) {
    const int64_t at = b * p->seq + t;
    const real *k = w->k + (at * p->kv_heads + h) * p->dim,
               *decay = w->decay ? w->decay + (at * p->kv_heads + h) * p->decay_dim : NULL;
    vf u = load_some(w->v + (at * p->kv_heads + h) * rows + c, n), known = vf_splat(0);
    for (int32_t i = 0; i < p->dim; i++) {
      vf x = load_some(s + i * rows, n);
      if (decay) x *= decay[p->decay_dim > 1 ? i : 0], memcpy(s + i * rows, &x, bytes);
      known = vf_fma(vf_splat(k[i]), x, known);
    }
    if (w->beta) u = (u - known) * w->beta[at * p->beta_heads + (p->beta_heads > 1 ? h : 0)];
    for (int32_t i = 0; i < p->dim; i++) {
      vf x = vf_fma(vf_splat(k[i]), u, load_some(s + i * rows, n));
      memcpy(s + i * rows, &x, bytes);
    }
    for (int64_t o = h * each; o < (h + 1) * each; o++) {
      const real *q = w->q + (at * p->heads + o * p->heads / outs) * p->dim;
      vf sum = vf_splat(0);
      for (int32_t i = 0; i < p->dim; i++)
        sum = vf_fma(vf_splat(q[i]), load_some(s + i * rows, n), sum);
      sum *= p->scale;
      memcpy(w->y + (at * outs + o) * rows + c, &sum, bytes);
    }
  }
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
                             (p->v_dim - 1) / VF + 1};
  ew_parallel(ctx, p->batch * p->kv_heads * w.blocks, linear_attention_task, &w);
  return EW_OK;
}
