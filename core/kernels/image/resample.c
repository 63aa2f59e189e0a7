/* Resizing along one dimension (ONNX Resize, Upsample, AffineGrid's interpolation), from
 * precomputed tables of indices and weights:
 *
 *     y[o, i, :] = sum over t of weight[i, t] * x[o, index[i, t], :]
 *
 * A task is a range of rows (o, i); rows are vectorized over the innermost dimension. */
#include "kernels/elementwise/each.h"

typedef struct {
  ew_context *context;
  const ew_resample_params *p;
  const real *x, *weight;
  const long_m *index;
  real *y;
  int64_t rows, share; /* rows of y: (outer, i), or outer alone if a row has one element */
} resample;

static void row(const resample *s, real *y, const real *x, int64_t i) {
  const ew_resample_params *p = s->p;
  int32_t j = 0;
  for (; j + VF <= p->inner; j += VF) {
    vf sum = vf_splat(0);
    EW_PLAIN_FOR (int32_t t = 0; t < p->taps; t++)
      sum = vf_fma(vf_splat(s->weight[i * p->taps + t]),
                   vf_load(x + s->index[i * p->taps + t] * p->inner + j), sum);
    vf_store(y + j, sum);
  }
  for (; j < p->inner; j++) {
    float sum = 0;
    EW_PLAIN_FOR (int32_t t = 0; t < p->taps; t++)
      sum += s->weight[i * p->taps + t] * x[s->index[i * p->taps + t] * p->inner + j];
    y[j] = sum;
  }
}

/* The same with x contiguous along the dimension: a whole row y[m] from x[n]. */
static void line(const resample *s, real *y, const real *x, int64_t from, int64_t to) {
  const int32_t taps = s->p->taps;
  const real *weight = s->weight + from * taps;
  const long_m *index = s->index + from * taps;
  if (taps == 1)
    EW_PLAIN_FOR (int64_t i = from; i < to; i++) y[i] = *weight++ * x[*index++];
  else
    for (int64_t i = from; i < to; i++) {
      float sum = 0;
      EW_PLAIN_FOR (int32_t t = 0; t < taps; t++) sum += *weight++ * x[*index++];
      y[i] = sum;
    }
}

static void resample_task(void *arg, int32_t index, int32_t thread) {
  const resample *s = arg;
  const ew_resample_params *p = s->p;
  (void)thread;
  int64_t r = index * s->share, i = r % p->m;
  const int64_t end = r + s->share < s->rows ? r + s->share : s->rows,
                item = (int64_t)p->n * p->inner;
  const real *x = s->x + r / p->m * item;
  if (p->inner == 1)
    for (int64_t n; r < end && !ew_stopping(s->context); r += n, i = 0, x += item) {
      n = end - r < p->m - i ? end - r : p->m - i;
      line(s, s->y + (r - i), x, i, i + n);
    }
  for (; r < end && !ew_stopping(s->context); r++) {
    row(s, s->y + r * p->inner, x, i);
    if (++i == p->m) i = 0, x += item;
  }
}

int32_t ew_k_resample(ew_context *ctx, const ew_resample_params *p, void *const *operand) {
  resample s = {ctx,
                p,
                operand[EW_RESAMPLE_X],
                operand[EW_RESAMPLE_WEIGHT],
                operand[EW_RESAMPLE_INDEX],
                operand[EW_RESAMPLE_Y],
                (int64_t)p->outer * p->m,
                0};
  for (int64_t i = 0; i < (int64_t)p->m * p->taps; i++)
    if (s.index[i] < 0 || s.index[i] >= p->n) {
      ctx->detail = s.index[i];
      return EW_E_INDEX;
    }
  int32_t tasks = ew_tasks(ctx, s.rows * p->inner * p->taps, 16384, s.rows);
  s.share = (s.rows - 1) / tasks + 1;
  ew_parallel(ctx, (int32_t)((s.rows - 1) / s.share + 1), resample_task, &s);
  return EW_OK;
}
