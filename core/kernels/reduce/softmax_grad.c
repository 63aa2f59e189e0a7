/* Gradients of Softmax and LogSoftmax over contiguous rows:
 *
 *     dx = (dy - sum(dy y)) y        or        dx = dy - e^y sum(dy)
 *
 * A task is a range of rows; rows are vectorized. */
#include "kernels/elementwise/each.h"
#include <string.h>

typedef struct {
  const ew_softmax_grad_params *p;
  const real *dy, *y;
  real *dx;
  int32_t rows; /* per task */
} softmax_grad_job;

/* whole vectors only */
EW_INLINE float sum_of_row(const real *dy, const real *y, int32_t n, bool is_log) {
  vf s[4] = {{0}};
  int32_t j = 0;
  for (; j + 4 * VF <= n; j += 4 * VF)
    for (int u = 0; u < 4; u++)
      s[u] = is_log ? s[u] + vf_load(dy + j + u * VF)
                    : vf_fma(vf_load(dy + j + u * VF), vf_load(y + j + u * VF), s[u]);
  for (; j < n; j += VF)
    s[0] = is_log ? s[0] + vf_load(dy + j) : vf_fma(vf_load(dy + j), vf_load(y + j), s[0]);
  return vf_sum((s[0] + s[1]) + (s[2] + s[3]));
}
EW_INLINE void dx_of_row(const real *dy, const real *y, real *dx, int32_t n, float sum,
                         bool is_log) {
  for (int32_t j = 0; j < n; j += VF)
    vf_store(dx + j, is_log ? vf_load(dy + j) - vf_exp_soft(vf_load(y + j)) * sum
                            : (vf_load(dy + j) - sum) * vf_load(y + j));
}

static void rows(const softmax_grad_job *w, int64_t from, int64_t to, bool is_log) {
  const int32_t n = w->p->cols, whole = n / VF * VF;
  const int64_t dy_row = w->p->dy_row, y_row = w->p->y_row;
  for (int64_t i = from; i < to; i++) {
    const real *dy = w->dy + i * dy_row, *y = w->y + i * y_row;
    real *dx = w->dx + i * n;
    float rest[2][VF] = {{0}}; /* the incomplete last vector */
    const size_t bytes = (size_t)(n - whole) * 4;
    memcpy(rest[0], dy + whole, bytes), memcpy(rest[1], y + whole, bytes);
    const float sum = sum_of_row(dy, y, whole, is_log) + sum_of_row(rest[0], rest[1], VF, is_log);
    dx_of_row(dy, y, dx, whole, sum, is_log);
    dx_of_row(rest[0], rest[1], rest[0], VF, sum, is_log);
    memcpy(dx + whole, rest[0], bytes);
  }
}

static void softmax_grad_task(void *arg, int32_t index, int32_t thread) {
  const softmax_grad_job *w = arg;
  (void)thread;
  int64_t from = (int64_t)index * w->rows,
          to = from + w->rows < w->p->rows ? from + w->rows : w->p->rows;
  if (w->p->log)
    rows(w, from, to, true);
  else
    rows(w, from, to, false);
}

int32_t ew_k_softmax_grad(ew_context *ctx, const ew_softmax_grad_params *p, void *const *operand) {
  softmax_grad_job w = {p, operand[EW_SOFTMAX_GRAD_DY], operand[EW_SOFTMAX_GRAD_Y],
                        operand[EW_SOFTMAX_GRAD_DX], 16384 / p->cols + 1};
  ew_parallel(ctx, (p->rows - 1) / w.rows + 1, softmax_grad_task, &w);
  return EW_OK;
}
