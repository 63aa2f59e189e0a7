/* LayerNorm, RMSNorm and their variants with a residual (SkipLayerNormalization), over rows:
 *
 *     v = x + skip + skip_bias
 *     y = (v - mean(v)) / sqrt(variance(v) + epsilon) * (scale + scale_offset) + bias
 *
 * rms: without the mean. A task is a range of rows; each row is computed on vectors of VF lanes. */
#include "kernels/norm/norm.h"

enum { SIDE = 4 }; /* vectors side by side */

typedef struct {
  const ew_norm_params *p;
  const real *x, *scale, *bias, *skip, *skip_bias;
  real *y, *sum, *mean, *inv_std;
  int32_t rows; /* per task */
} norm_work;

static void norm_row(const norm_work *s, int64_t row, const real *x, const real *skip, real *y,
                     real *sum) {
  /* local copies, so that the compiler knows that no store changes them */
  const real *scale = s->scale, *bias = s->bias, *skip_bias = s->skip_bias, *v = x;
  const int32_t n = s->p->cols, rms = s->p->rms;
  const float offset = s->p->scale_offset;
  int32_t j;
  if (skip || skip_bias || sum) {
    real *out = sum ? sum : y; /* y can hold v in the meantime: it is written last */
    for (j = 0; j + VF <= n; j += VF) {
      vf t = vf_load(x + j);
      if (skip) t += vf_load(skip + j);
      if (skip_bias) t += vf_load(skip_bias + j);
      vf_store(out + j, t);
    }
    EW_PLAIN_FOR (; j < n; j++)
      out[j] = x[j] + (skip ? skip[j] : 0) + (skip_bias ? skip_bias[j] : 0);
    v = out;
  }
  float mean;
  const float factor = norm_factor(v, n, rms, s->p->epsilon, &mean);
  if (s->mean) s->mean[row] = mean;
  if (s->inv_std) s->inv_std[row] = factor;
  for (j = 0; j + SIDE * VF <= n; j += SIDE * VF) {
    vf t[SIDE];
    for (int u = 0; u < SIDE; u++) t[u] = (vf_load(v + j + u * VF) - mean) * factor;
    if (scale)
      for (int u = 0; u < SIDE; u++) t[u] *= vf_load(scale + j + u * VF) + offset;
    if (bias)
      for (int u = 0; u < SIDE; u++) t[u] += vf_load(bias + j + u * VF);
    for (int u = 0; u < SIDE; u++) vf_store(y + j + u * VF, t[u]);
  }
  EW_PLAIN_FOR (; j < n; j++) {
    float t = (v[j] - mean) * factor;
    if (scale) t *= scale[j] + offset;
    if (bias) t += bias[j];
    y[j] = t;
  }
}

static void norm_task(void *arg, int32_t index, int32_t thread) {
  norm_work *s = arg;
  const ew_norm_params *p = s->p;
  (void)thread;
  int64_t from = (int64_t)index * s->rows, to = from + s->rows < p->rows ? from + s->rows : p->rows;
  for (int64_t i = from; i < to; i++)
    norm_row(s, i, s->x + i * p->x_row, s->skip ? s->skip + i * p->skip_row : NULL,
             s->y + i * p->y_row, s->sum ? s->sum + i * p->y_row : NULL);
}

int32_t ew_k_norm(ew_context *ctx, const ew_norm_params *p, void *const *operand) {
  norm_work s = {p,
                 operand[EW_NORM_X],
                 operand[EW_NORM_SCALE],
                 operand[EW_NORM_BIAS],
                 operand[EW_NORM_SKIP],
                 operand[EW_NORM_SKIP_BIAS],
                 operand[EW_NORM_Y],
                 operand[EW_NORM_SUM],
                 operand[EW_NORM_MEAN],
                 operand[EW_NORM_INV_STD],
                 32768 / p->cols + 1};
  ew_parallel(ctx, (p->rows - 1) / s.rows + 1, norm_task, &s);
  return EW_OK;
}
