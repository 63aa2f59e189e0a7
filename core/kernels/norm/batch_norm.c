/* BatchNormalization and its gradients; statistics per channel, over items and positions:
 *
 *     y = (x - mean) / sqrt(variance + epsilon) * scale + bias
 *
 * A task is a channel; rows of positions are vectorized. */
#include "kernels/elementwise/each.h"
#include <math.h>

typedef struct {
  int32_t batch, channels, inner, train;
  float epsilon, momentum;
  const real *x, *scale, *bias, *mean, *variance, *dy;
  real *y, *new_mean, *new_variance, *dx, *dscale, *dbias;
} batch_norm;

/* Sum over one channel of v - mean, of its square, or of its product with dy. Rows are summed in
 * float vectors, the row sums in double. */
typedef enum { PLAIN, SQUARE, PRODUCT } what;
static __attribute__((noinline)) double sum_of(const batch_norm *s, const real *v, int64_t at,
                                               float mean, what what) {
  double all = 0;
  for (int64_t b = 0; b < s->batch; b++) {
    int64_t from = (b * s->channels + at) * s->inner;
    int32_t i = 0;
    vf sum[2] = {{0}};
    float rest = 0;
    for (; i + 2 * VF <= s->inner; i += 2 * VF)
      for (int u = 0; u < 2; u++) {
        vf d = vf_load(v + from + i + u * VF) - mean;
        sum[u] += what == PLAIN ? d : d * (what == SQUARE ? d : vf_load(s->dy + from + i + u * VF));
      }
    EW_PLAIN_FOR (; i < s->inner; i++) {
      float d = v[from + i] - mean;
      rest += what == PLAIN ? d : d * (what == SQUARE ? d : s->dy[from + i]);
    }
    all += (double)(vf_sum(sum[0] + sum[1]) + rest);
  }
  return all;
}

/* y = a x + c + e dy; dy may be NULL. y may be x or dy. */
static __attribute__((noinline)) void line_of(const batch_norm *s, real *y, int64_t at, float a,
                                              float c, float e) {
  for (int64_t b = 0; b < s->batch; b++) {
    int64_t from = (b * s->channels + at) * s->inner;
    const real *x = s->x + from, *dy = s->dy ? s->dy + from : NULL;
    int32_t i = 0;
    for (; i + VF <= s->inner; i += VF) {
      vf v = vf_fma(vf_load(x + i), vf_splat(a), vf_splat(c));
      if (dy) v = vf_fma(vf_load(dy + i), vf_splat(e), v);
      vf_store(y + from + i, v);
    }
    EW_PLAIN_FOR (; i < s->inner; i++) y[from + i] = a * x[i] + c + (dy ? e * dy[i] : 0);
  }
}

static void channel_task(void *arg, int32_t index, int32_t thread) {
  const batch_norm *s = arg;
  const int64_t c = index;
  const double n = (double)s->batch * s->inner;
  (void)thread;
  float mean, variance;
  if (s->train) {
    mean = (float)(sum_of(s, s->x, c, 0, PLAIN) / n);
    variance = (float)(sum_of(s, s->x, c, mean, SQUARE) / n);
  } else
    mean = s->mean[c], variance = s->variance[c];
  const float factor = 1.0f / sqrtf(variance + s->epsilon), scale = s->scale[c];
  if (!s->dy) {
    if (s->new_mean)
      s->new_mean[c] = s->mean ? s->mean[c] * s->momentum + mean * (1 - s->momentum) : mean;
    if (s->new_variance)
      s->new_variance[c] =
          s->variance ? s->variance[c] * s->momentum + variance * (1 - s->momentum) : variance;
    line_of(s, s->y, c, factor * scale, s->bias[c] - mean * factor * scale, 0);
    return;
  }
  const float dbias = (float)sum_of(s, s->dy, c, 0, PLAIN),
              dscale = factor * (float)sum_of(s, s->x, c, mean, PRODUCT);
  if (s->dbias) s->dbias[c] = dbias;
  if (s->dscale) s->dscale[c] = dscale;
  if (!s->dx) return;
  /* dx = scale factor (dy - dbias / n - (x - mean) factor dscale / n); only the first term if the
   * statistics are given (inference mode) */
  float slope = s->train ? -scale * factor * factor * (float)(dscale / n) : 0;
  line_of(s, s->dx, c, slope, s->train ? -scale * factor * (float)(dbias / n) - slope * mean : 0,
          scale * factor);
}

#define BATCH_NORM(p)         \
  {.batch = (p)->batch,       \
   .channels = (p)->channels, \
   .inner = (p)->inner,       \
   .train = (p)->train,       \
   .epsilon = (p)->epsilon}

int32_t ew_k_batch_norm(ew_context *ctx, const ew_batch_norm_params *p, void *const *operand) {
  batch_norm s = BATCH_NORM(p);
  s.momentum = p->momentum;
  s.x = operand[EW_BATCH_NORM_X], s.scale = operand[EW_BATCH_NORM_SCALE],
  s.bias = operand[EW_BATCH_NORM_BIAS], s.mean = operand[EW_BATCH_NORM_MEAN],
  s.variance = operand[EW_BATCH_NORM_VARIANCE];
  s.y = operand[EW_BATCH_NORM_Y], s.new_mean = operand[EW_BATCH_NORM_NEW_MEAN],
  s.new_variance = operand[EW_BATCH_NORM_NEW_VARIANCE];
  if (!s.train && (!s.mean || !s.variance)) return EW_E_PARAM;
  ew_parallel(ctx, p->channels, channel_task, &s);
  return EW_OK;
}

int32_t ew_k_batch_norm_grad(ew_context *ctx, const ew_batch_norm_grad_params *p,
                             void *const *operand) {
  batch_norm s = BATCH_NORM(p);
  s.x = operand[EW_BATCH_NORM_GRAD_X], s.scale = operand[EW_BATCH_NORM_GRAD_SCALE],
  s.mean = operand[EW_BATCH_NORM_GRAD_MEAN], s.variance = operand[EW_BATCH_NORM_GRAD_VARIANCE];
  s.dy = operand[EW_BATCH_NORM_GRAD_DY], s.dx = operand[EW_BATCH_NORM_GRAD_DX],
  s.dscale = operand[EW_BATCH_NORM_GRAD_DSCALE], s.dbias = operand[EW_BATCH_NORM_GRAD_DBIAS];
  if (!s.train && (!s.mean || !s.variance)) return EW_E_PARAM;
  ew_parallel(ctx, p->channels, channel_task, &s);
  return EW_OK;
}
