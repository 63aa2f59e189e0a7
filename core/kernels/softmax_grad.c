/* dx = (dy - sum(dy y)) y, or of log_softmax: dy - e^y sum(dy), over rows. */
#include "../scalar_math.h"
#include "each.h"

typedef struct {
  const ew_softmax_grad_params *p;
  const real *dy, *y;
  real *dx;
  int32_t rows; /* of a task */
} work;

static void softmax_grad_task(void *arg, int32_t index, int32_t thread) {
  const work *w = arg;
  const ew_softmax_grad_params *p = w->p;
  const int32_t n = p->cols;
  (void)thread;
  int64_t from = (int64_t)index * w->rows, to = from + w->rows < p->rows ? from + w->rows : p->rows;
  for (int64_t i = from; i < to; i++) {
    const real *dy = w->dy + i * p->dy_row, *y = w->y + i * p->y_row;
    real *dx = w->dx + i * n;
    int32_t j = 0;
    vf s[2] = {{0}};
    for (; j + 2 * VF <= n; j += 2 * VF)
      for (int u = 0; u < 2; u++) s[u] = p->log ? s[u] + vf_load(dy + j + u * VF) : vf_fma(vf_load(dy + j + u * VF), vf_load(y + j + u * VF), s[u]);
    float sum = vf_sum(s[0] + s[1]);
    EW_PLAIN for (; j < n; j++) sum += p->log ? dy[j] : dy[j] * y[j];
    for (j = 0; j + VF <= n; j += VF) vf_store(dx + j, p->log ? vf_load(dy + j) - vf_exp(vf_load(y + j)) * sum : (vf_load(dy + j) - sum) * vf_load(y + j));
    EW_PLAIN for (; j < n; j++) dx[j] = p->log ? dy[j] - ew_exp(y[j]) * sum : (dy[j] - sum) * y[j];
  }
}

int32_t ew_k_softmax_grad(ew_context *ctx, const ew_softmax_grad_params *p, void *const *operand) {
  work w = {p, operand[EW_SOFTMAX_GRAD_DY], operand[EW_SOFTMAX_GRAD_Y], operand[EW_SOFTMAX_GRAD_DX], 16384 / p->cols + 1};
  ew_parallel(ctx, (p->rows - 1) / w.rows + 1, softmax_grad_task, &w);
  return EW_OK;
}
