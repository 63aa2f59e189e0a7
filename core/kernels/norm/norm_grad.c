/* Gradients of LayerNorm and RMSNorm. With n = (x - mean) f, f = 1 / sqrt(variance + epsilon) and h
 * = dy (scale + scale_offset):
 *
 *     dx = f (h - mean(h) - n mean(h n)) (+ more)       rms: without mean and mean(h)
 *     dscale = sum over rows of dy n
 *     dbias = sum over rows of dy
 *
 * Rows are divided into `parts` tasks, the same number on every machine. Each part sums its rows'
 * contributions to dscale and dbias in `scratch`; the parts are then added in order, so results do
 * not depend on the number of threads. Rows are vectorized. */
#include "kernels/norm/norm.h"
#include <string.h>

typedef struct {
  const ew_norm_grad_params *p;
  const real *x, *dy, *scale, *more;
  real *dx, *scratch;
} norm_grad_job;

/* The row sums needed for dx, with h = dy (scale + offset): of h and of h (x - mean). Adds the
 * row's dscale and dbias to the sums so far. */
static void sums_of_row(const real *restrict x, const real *restrict dy, const real *restrict scale,
                        real *restrict dscale, real *restrict dbias, int32_t n, float mean, float f,
                        float offset, float *sum, float *along) {
  vf s[2] = {{0}}, q[2] = {{0}};
  int32_t j = 0;
  for (; j + 2 * VF <= n; j += 2 * VF)
    for (int u = 0; u < 2; u++) {
      const int32_t at = j + u * VF;
      const vf g = vf_load(dy + at), d = vf_load(x + at) - mean,
               h = scale ? g * (vf_load(scale + at) + offset) : g;
      s[u] += h, q[u] = vf_fma(h, d, q[u]);
      if (dscale)
        vf_store(dscale + at, vf_fma(g, d * f, vf_load(dscale + at))),
            vf_store(dbias + at, vf_load(dbias + at) + g);
    }
  *sum = vf_sum(s[0] + s[1]), *along = vf_sum(q[0] + q[1]);
  EW_PLAIN_FOR (; j < n; j++) {
    const float d = x[j] - mean, h = dy[j] * (scale ? scale[j] + offset : 1);
    *sum += h, *along += h * d;
    if (dscale) dscale[j] += dy[j] * (d * f), dbias[j] += dy[j];
  }
}

/* dx = f h - a - b (x - mean) (+ more) */
static void dx_row(const real *x, const real *dy, const real *scale, const real *more, real *dx,
                   int32_t n, float mean, float f, float offset, float a, float b) {
  int32_t j = 0;
  for (; j + VF <= n; j += VF) {
    vf h = vf_load(dy + j), d = vf_load(x + j) - mean;
    if (scale) h *= vf_load(scale + j) + offset;
    h = h * f - a - d * b;
    vf_store(dx + j, more ? h + vf_load(more + j) : h);
  }
  EW_PLAIN_FOR (; j < n; j++)
    dx[j] =
        dy[j] * (scale ? scale[j] + offset : 1) * f - a - (x[j] - mean) * b + (more ? more[j] : 0);
}

static void norm_grad_task(void *arg, int32_t part, int32_t thread) {
  const norm_grad_job *w = arg;
  const ew_norm_grad_params *p = w->p;
  const int32_t n = p->cols;
  (void)thread;
  real *sums = w->scratch ? w->scratch + (int64_t)part * 2 * n : NULL;
  if (sums) memset(sums, 0, (size_t)n * 8);
  const int64_t rows = ((int64_t)p->rows + p->parts - 1) / p->parts, from = part * rows,
                to = from + rows < p->rows ? from + rows : p->rows;
  for (int64_t i = from; i < to; i++) {
    const real *x = w->x + i * p->x_row, *dy = w->dy + i * p->dy_row;
    float mean;
    const float f = norm_factor(x, n, p->rms, p->epsilon, &mean);
    float sum, along;
    sums_of_row(x, dy, w->scale, sums, sums ? sums + n : NULL, n, mean, f, p->scale_offset, &sum,
                &along);
    if (w->dx)
      dx_row(x, dy, w->scale, w->more ? w->more + i * n : NULL, w->dx + i * n, n, mean, f,
             p->scale_offset, p->rms ? 0 : f * sum / (float)n, f * f * f * along / (float)n);
  }
}

int32_t ew_k_norm_grad(ew_context *ctx, const ew_norm_grad_params *p, void *const *operand) {
  real *out[2] = {operand[EW_NORM_GRAD_DSCALE], operand[EW_NORM_GRAD_DBIAS]},
       *scratch = operand[EW_NORM_GRAD_SCRATCH];
  if ((out[0] || out[1]) && !scratch) return EW_E_PARAM;
  norm_grad_job w = {p,
                     operand[EW_NORM_GRAD_X],
                     operand[EW_NORM_GRAD_DY],
                     operand[EW_NORM_GRAD_SCALE],
                     operand[EW_NORM_GRAD_MORE],
                     operand[EW_NORM_GRAD_DX],
                     scratch};
  ew_parallel(ctx, p->parts, norm_grad_task, &w);
  const int32_t n = p->cols;
  for (int k = 0; k < 2; k++) {
    if (!out[k]) continue;
    memcpy(out[k], scratch + k * n, (size_t)n * 4);
    for (int32_t part = 1; part < p->parts; part++) {
      const real *from = scratch + (2 * (int64_t)part + k) * n;
      for (int32_t j = 0; j < n; j++) out[k][j] += from[j];
    }
  }
  return EW_OK;
}
