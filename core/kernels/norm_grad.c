/* With n = (x - mean) f, f = 1 / sqrt(variance + epsilon), h = dy (scale + scale_offset):
 *
 *     dx = f (h - mean(h) - n mean(h n)) (+ more)      rms: without mean and mean(h)
 *     dscale = sum over rows of dy n                   dbias = sum over rows of dy
 *
 * Rows are split into `parts`, the same on every machine; each part sums its rows' share of dscale and dbias in `scratch`, and the
 * parts are added up in their order: the numbers do not depend on threads. */
#include "../kernel.h"
#include "../simd.h"
#include <math.h>
#include <string.h>

typedef struct {
  const ew_norm_grad_params *p;
  const real *x, *dy, *scale, *more;
  real *dx, *scratch;
  bool dscale, dbias;
} work;

/* The last, incomplete vector of a row, filled up with zeros. */
static __attribute__((noinline)) vf load_some(const real *x, int32_t n) {
  float t[VF] = {0};
  for (int i = 0; i < n; i++) t[i] = x[i];
  return vf_load(t);
}
static __attribute__((noinline)) void store_some(real *x, vf v, int32_t n) {
  for (int i = 0; i < n; i++) x[i] = v[i];
}
EW_INLINE vf load(const real *x, int32_t n) { return n >= VF ? vf_load(x) : load_some(x, n); }
EW_INLINE void store(real *x, vf v, int32_t n) {
  if (n >= VF) vf_store(x, v);
  else store_some(x, v, n);
}
#define EACH_VECTOR(j, n) for (int32_t j = 0; j < n; j += VF)

static void norm_grad_task(void *arg, int32_t part, int32_t thread) {
  const work *w = arg;
  const ew_norm_grad_params *p = w->p;
  const int32_t n = p->cols;
  const float share = 1.0f / (float)n;
  (void)thread;
  real *dscale = NULL, *dbias = NULL;
  if (w->scratch) {
    dscale = w->scratch + (int64_t)part * 2 * n, dbias = dscale + n;
    memset(dscale, 0, (size_t)n * 8);
  }
  const int64_t rows = ((int64_t)p->rows + p->parts - 1) / p->parts, from = part * rows, to = from + rows < p->rows ? from + rows : p->rows;
  for (int64_t i = from; i < to; i++) {
    const real *x = w->x + i * p->x_row, *dy = w->dy + i * p->dy_row;
    vf s = {0}, q = {0};
    float mean = 0;
    if (!p->rms) {
      EACH_VECTOR(j, n) s += load(x + j, n - j);
      mean = vf_sum(s) * share;
    }
    EACH_VECTOR(j, n) {
      vf d = load(x + j, n - j) - mean;
      if (n - j < VF && !p->rms) /* what filled it up is not part of the row */
        for (int k = n - j; k < VF; k++) d[k] = 0;
      q = vf_fma(d, d, q);
    }
    const float f = 1.0f / sqrtf(vf_sum(q) * share + p->epsilon);
    vf h0 = {0}, h1 = {0};
    EACH_VECTOR(j, n) { /* dy is filled up with zeros, so that nothing else need be */
      vf g = load(dy + j, n - j), m = (load(x + j, n - j) - mean) * f, gm = g * m;
      if (w->dscale) store(dscale + j, load(dscale + j, n - j) + gm, n - j);
      if (w->dbias) store(dbias + j, load(dbias + j, n - j) + g, n - j);
      if (w->dx) {
        vf scale = w->scale ? load(w->scale + j, n - j) + p->scale_offset : vf_splat(1);
        h0 = vf_fma(g, scale, h0), h1 = vf_fma(gm, scale, h1);
      }
    }
    if (!w->dx) continue;
    const float a = p->rms ? 0 : vf_sum(h0) * share * f, b = vf_sum(h1) * share * f * f;
    real *dx = w->dx + i * n;
    const real *more = w->more ? w->more + i * n : NULL;
    EACH_VECTOR(j, n) {
      vf h = load(dy + j, n - j);
      if (w->scale) h *= load(w->scale + j, n - j) + p->scale_offset;
      h = h * f - a - (load(x + j, n - j) - mean) * b;
      if (more) h += load(more + j, n - j);
      store(dx + j, h, n - j);
    }
  }
}

int32_t ew_k_norm_grad(ew_context *ctx, const ew_norm_grad_params *p, void *const *operand) {
  real *dscale = operand[EW_NORM_GRAD_DSCALE], *dbias = operand[EW_NORM_GRAD_DBIAS], *scratch = operand[EW_NORM_GRAD_SCRATCH];
  if ((dscale || dbias) && !scratch) return EW_E_PARAM;
  work w = {p, operand[EW_NORM_GRAD_X], operand[EW_NORM_GRAD_DY], operand[EW_NORM_GRAD_SCALE], operand[EW_NORM_GRAD_MORE], operand[EW_NORM_GRAD_DX], scratch, dscale != NULL, dbias != NULL};
  ew_parallel(ctx, p->parts, norm_grad_task, &w);
  const int32_t n = p->cols;
  for (int32_t part = 0; scratch && part < p->parts; part++, scratch += 2 * (int64_t)n) {
    for (int k = 0; k < 2; k++) {
      real *to = k ? dbias : dscale;
      if (to)
        EACH_VECTOR(j, n) store(to + j, part ? load(to + j, n - j) + load(scratch + k * n + j, n - j) : load(scratch + k * n + j, n - j), n - j);
    }
  }
  return EW_OK;
}
