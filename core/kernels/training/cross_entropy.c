/* SoftmaxCrossEntropyLoss and NegativeLogLikelihoodLoss: loss of each row of logits x for its class
 * y, and the gradient.
 *
 *     loss = (1 - e) w_y (L - x_y) + e / C sum_c w_c (L - x_c)
 *     dx_c = g ((1 - e) w_y (p_c - [c = y]) + e / C (W p_c - w_c))
 *
 * L = log sum_c e^x_c; e: label smoothing; w: class weights or 1; W: sum of w; p = e^(x - L); g:
 * gradient of the loss. With `nll` the rows are already log-probabilities: L = 0, and dx has only
 * the terms without p. Rows of an ignored class have loss 0 and gradient 0. L is kept for the
 * gradient, which then reads the logits once and may overwrite them. A task is a range of rows;
 * rows are vectorized. */
#include "scalar_math.h"
#include "kernels/elementwise/each.h"
#include <string.h>

typedef struct {
  ew_context *context;
  const ew_cross_entropy_params *p;
  const real *x, *weight;
  const void *label;
  real *loss, *counted, *lse;
  float total; /* W */
  int32_t rows, failed;
} cross_entropy_job;

/* Class of row i; -1: ignored; -2: out of range. */
static int64_t class_of(ew_context *c, const void *label, int32_t type, int64_t i,
                        int32_t has_ignore, int32_t ignore, int32_t classes) {
  int64_t y = type == EW_I32 ? ((const m_i32 *)label)[i] : ((const m_i64 *)label)[i];
  if (has_ignore && y == ignore) return -1;
  if (y >= 0 && y < classes) return y;
  __atomic_store_n(&c->detail, y, __ATOMIC_RELAXED);
  return -2;
}

/* Each loop exists once: the incomplete last vector of a row is processed in a padded buffer by the
 * same code. */
static __attribute__((noinline)) float sum_exp(const real *x, int32_t n, float max) {
  vf s = {0};
  for (int32_t j = 0; j < n; j += VF) s += vf_exp_soft(vf_load(x + j) - max);
  return vf_sum(s);
}

static float log_sum_exp(const real *x, int32_t n) {
  const int32_t whole = n / VF * VF;
  float rest[VF];
  for (int32_t j = 0; j < VF; j++) rest[j] = whole + j < n ? x[whole + j] : -INFINITY;
  vf high[4];
  int32_t j = 0;
  for (int u = 0; u < 4; u++) high[u] = vf_load(rest);
  for (; j + 4 * VF <= whole; j += 4 * VF)
    for (int u = 0; u < 4; u++) high[u] = vf_max(high[u], vf_load(x + j + u * VF));
  EW_PLAIN_FOR (; j < whole; j += VF) high[0] = vf_max(high[0], vf_load(x + j));
  float max = vf_highest(vf_max(vf_max(high[0], high[1]), vf_max(high[2], high[3])));
  return max + logf(sum_exp(x, whole, max) + sum_exp(rest, whole < n ? VF : 0, max));
}

/* Sum of w x, or of x if w is NULL. */
static __attribute__((noinline)) float weighted_sum(const real *w, const real *x, int32_t n) {
  vf s = {0};
  int32_t j = 0;
  for (; j + VF <= n; j += VF) s += w ? vf_load(w + j) * vf_load(x + j) : vf_load(x + j);
  float sum = vf_sum(s);
  EW_PLAIN_FOR (; j < n; j++) sum += w ? w[j] * x[j] : x[j];
  return sum;
}

static void cross_entropy_task(void *arg, int32_t index, int32_t thread) {
  cross_entropy_job *f = arg;
  const ew_cross_entropy_params *p = f->p;
  (void)thread;
  int64_t from = (int64_t)index * f->rows, to = from + f->rows < p->rows ? from + f->rows : p->rows;
  for (int64_t i = from; i < to; i++) {
    const real *x = f->x + i * p->x_row;
    int64_t y = class_of(f->context, f->label, p->label_type, i, p->has_ignore, p->ignore_index,
                         p->classes);
    if (y < -1) {
      __atomic_store_n(&f->failed, 1, __ATOMIC_RELAXED);
      return;
    }
    if (y < 0) {
      f->loss[i] = f->counted[i] = f->lse[i] = 0;
      continue;
    }
    const float w = f->weight ? f->weight[y] : 1, lse = p->nll ? 0 : log_sum_exp(x, p->classes),
                e = p->smoothing;
    float loss = w * (lse - x[y]);
    if (e > 0)
      loss = (1 - e) * loss +
             e / (float)p->classes * (f->total * lse - weighted_sum(f->weight, x, p->classes));
    f->loss[i] = loss, f->counted[i] = w, f->lse[i] = lse;
  }
}

int32_t ew_k_cross_entropy(ew_context *ctx, const ew_cross_entropy_params *p,
                           void *const *operand) {
  const real *weight = operand[EW_CROSS_ENTROPY_WEIGHT];
  cross_entropy_job f = {ctx,
                         p,
                         operand[EW_CROSS_ENTROPY_X],
                         weight,
                         operand[EW_CROSS_ENTROPY_LABEL],
                         operand[EW_CROSS_ENTROPY_LOSS],
                         operand[EW_CROSS_ENTROPY_COUNTED],
                         operand[EW_CROSS_ENTROPY_LSE],
                         weight ? weighted_sum(NULL, weight, p->classes) : (float)p->classes,
                         16384 / p->classes + 1,
                         0};
  ew_parallel(ctx, (p->rows - 1) / f.rows + 1, cross_entropy_task, &f);
  return f.failed ? EW_E_INDEX : EW_OK;
}

typedef struct {
  ew_context *context;
  const ew_cross_entropy_grad_params *p;
  const real *x, *weight, *lse, *dloss;
  const void *label;
  real *dx;
  float total;
  int32_t rows, failed;
} cross_entropy_grad_job;

/* dx = a e^(x - L) - b w over whole vectors; w = 1 if NULL. */
static __attribute__((noinline)) void dx_row(real *dx, const real *x, const real *w, int32_t n,
                                             float lse, float a, float b) {
  for (int32_t j = 0; j < n; j += VF) {
    vf d = vf_splat(-b);
    if (w) d *= vf_load(w + j);
    if (a != 0) d = vf_fma(vf_exp(vf_load(x + j) - lse), vf_splat(a), d);
    vf_store(dx + j, d);
  }
}

static void cross_entropy_grad_task(void *arg, int32_t index, int32_t thread) {
  cross_entropy_grad_job *f = arg;
  const ew_cross_entropy_grad_params *p = f->p;
  const int32_t n = p->classes;
  (void)thread;
  int64_t from = (int64_t)index * f->rows, to = from + f->rows < p->rows ? from + f->rows : p->rows;
  for (int64_t i = from; i < to; i++) {
    const real *x = f->x + i * p->x_row;
    real *dx = f->dx + i * n;
    int64_t y = class_of(f->context, f->label, p->label_type, i, p->has_ignore, p->ignore_index, n);
    if (y < -1) {
      __atomic_store_n(&f->failed, 1, __ATOMIC_RELAXED);
      return;
    }
    /* dx = a e^(x - L) - b w, minus the term of the class itself */
    float g = y < 0 ? 0 : f->dloss[i * p->dloss_row], lse = f->lse[i], e = p->smoothing,
          w = g * (1 - e) * (f->weight && y >= 0 ? f->weight[y] : 1), b = g * e / (float)n;
    float a = p->nll ? 0 : w + b * f->total;
    const int32_t whole = n / VF * VF;
    const real *weight = b != 0 ? f->weight : NULL;
    /* An ignored row (a = b = 0) may contain anything, including NaN: it is not read. */
    dx_row(dx, x, weight, whole, lse, a, b);
    if (whole < n) {
      float rest[2][VF] = {{0}};
      const size_t bytes = (size_t)(n - whole) * 4;
      memcpy(rest[0], x + whole, bytes);
      if (weight) memcpy(rest[1], weight + whole, bytes);
      dx_row(rest[0], rest[0], weight ? rest[1] : NULL, VF, lse, a, b);
      memcpy(dx + whole, rest[0], bytes);
    }
    if (y >= 0) dx[y] -= w;
  }
}

int32_t ew_k_cross_entropy_grad(ew_context *ctx, const ew_cross_entropy_grad_params *p,
                                void *const *operand) {
  const real *weight = operand[EW_CROSS_ENTROPY_GRAD_WEIGHT];
  cross_entropy_grad_job f = {ctx,
                              p,
                              operand[EW_CROSS_ENTROPY_GRAD_X],
                              weight,
                              operand[EW_CROSS_ENTROPY_GRAD_LSE],
                              operand[EW_CROSS_ENTROPY_GRAD_DLOSS],
                              operand[EW_CROSS_ENTROPY_GRAD_LABEL],
                              operand[EW_CROSS_ENTROPY_GRAD_DX],
                              weight ? weighted_sum(NULL, weight, p->classes) : (float)p->classes,
                              16384 / p->classes + 1,
                              0};
  ew_parallel(ctx, (p->rows - 1) / f.rows + 1, cross_entropy_grad_task, &f);
  return f.failed ? EW_E_INDEX : EW_OK;
}
