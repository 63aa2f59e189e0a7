/* Cross entropy of rows of logits x against the class y of each, and its gradient.
 *
 *     loss = (1 - e) w_y (L - x_y) + e / C sum_c w_c (L - x_c)       L = log sum_c e^x_c, e: label smoothing, w: class weights or 1
 *     dx_c = g ((1 - e) w_y (p_c - [c = y]) + e / C (W p_c - w_c))   p = e^(x - L), W = sum of w, g: gradient of the loss
 *
 * With `nll` the rows are logarithms of probabilities already: L = 0, and dx has the terms without p. Rows of an ignored class have loss 0
 * and gradient 0. L is kept for the gradient, which then reads the logits once and may overwrite them. */
#include "../scalar_math.h"
#include "each.h"

typedef struct {
  ew_context *context;
  const ew_cross_entropy_params *p;
  const real *x, *weight;
  const void *label;
  real *loss, *counted, *lse;
  float total; /* W */
  int32_t rows, failed;
} forward;

/* Class of a row; -1: ignored; -2: there is no such class. */
static int64_t class_of(ew_context *c, const void *label, int32_t type, int64_t i, int32_t has_ignore, int32_t ignore, int32_t classes) {
  int64_t y = type == EW_I32 ? ((const m_i32 *)label)[i] : ((const m_i64 *)label)[i];
  if (has_ignore && y == ignore) return -1;
  if (y >= 0 && y < classes) return y;
  __atomic_store_n(&c->detail, y, __ATOMIC_RELAXED);
  return -2;
}

static float log_sum_exp(const real *x, int32_t n) {
  int32_t whole = n / (2 * VF) * (2 * VF), j;
  vf a = vf_splat(-INFINITY), b = a, s = {0}, t = {0};
  for (j = 0; j < whole; j += 2 * VF) a = vf_max(a, vf_load(x + j)), b = vf_max(b, vf_load(x + j + VF));
  float max = vf_highest(vf_max(a, b));
  for (; j < n; j++) max = x[j] > max ? x[j] : max;
  for (j = 0; j < whole; j += 2 * VF) s += vf_exp(vf_load(x + j) - max), t += vf_exp(vf_load(x + j + VF) - max);
  float rest = 0;
  for (; j < n; j++) rest += ew_exp(x[j] - max);
  return max + logf(vf_sum(s + t) + rest);
}

/* Sum of w x, or of one of them where the other is absent. */
static float weighted_sum(const real *w, const real *x, int32_t n) {
  vf s = {0};
  int32_t j = 0;
  for (; j + VF <= n; j += VF) s += w && x ? vf_load(w + j) * vf_load(x + j) : vf_load((w ? w : x) + j);
  float sum = vf_sum(s);
  for (; j < n; j++) sum += w && x ? w[j] * x[j] : (w ? w : x)[j];
  return sum;
}

static void cross_entropy_task(void *arg, int32_t index, int32_t thread) {
  forward *f = arg;
  const ew_cross_entropy_params *p = f->p;
  (void)thread;
  int64_t from = (int64_t)index * f->rows, to = from + f->rows < p->rows ? from + f->rows : p->rows;
  for (int64_t i = from; i < to; i++) {
    const real *x = f->x + i * p->x_row;
    int64_t y = class_of(f->context, f->label, p->label_type, i, p->has_ignore, p->ignore_index, p->classes);
    if (y < -1) {
      __atomic_store_n(&f->failed, 1, __ATOMIC_RELAXED);
      return;
    }
    if (y < 0) {
      f->loss[i] = f->counted[i] = f->lse[i] = 0;
      continue;
    }
    const float w = f->weight ? f->weight[y] : 1, lse = p->nll ? 0 : log_sum_exp(x, p->classes), e = p->smoothing;
    float loss = w * (lse - x[y]);
    if (e > 0) loss = (1 - e) * loss + e / (float)p->classes * (f->total * lse - weighted_sum(f->weight, x, p->classes));
    f->loss[i] = loss, f->counted[i] = w, f->lse[i] = lse;
  }
}

int32_t ew_k_cross_entropy(ew_context *ctx, const ew_cross_entropy_params *p, void *const *operand) {
  const real *weight = operand[EW_CROSS_ENTROPY_WEIGHT];
  forward f = {ctx, p, operand[EW_CROSS_ENTROPY_X], weight, operand[EW_CROSS_ENTROPY_LABEL], operand[EW_CROSS_ENTROPY_LOSS], operand[EW_CROSS_ENTROPY_COUNTED], operand[EW_CROSS_ENTROPY_LSE],
               weight ? weighted_sum(weight, NULL, p->classes) : (float)p->classes, 16384 / p->classes + 1, 0};
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
} backward;

static void cross_entropy_grad_task(void *arg, int32_t index, int32_t thread) {
  backward *f = arg;
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
    /* dx = a e^(x - L) - b w, less what belongs to the class */
    float g = y < 0 ? 0 : f->dloss[i * p->dloss_row], lse = f->lse[i], e = p->smoothing, w = g * (1 - e) * (f->weight && y >= 0 ? f->weight[y] : 1), b = g * e / (float)n;
    float a = p->nll ? 0 : w + b * f->total;
    int32_t j = 0;
    if (y < 0 || (a == 0 && b == 0)) { /* an ignored row may hold anything, NaN too */
      for (; j + VF <= n; j += VF) vf_store(dx + j, vf_splat(0));
      for (; j < n; j++) dx[j] = 0;
    } else {
      for (; j + VF <= n; j += VF) {
        vf d = vf_splat(-b);
        if (f->weight) d *= vf_load(f->weight + j);
        vf_store(dx + j, p->nll ? d : vf_fma(vf_exp(vf_load(x + j) - lse), vf_splat(a), d));
      }
      for (; j < n; j++) dx[j] = (p->nll ? 0 : a * ew_exp(x[j] - lse)) - b * (f->weight ? f->weight[j] : 1);
    }
    if (y >= 0) dx[y] -= w;
  }
}

int32_t ew_k_cross_entropy_grad(ew_context *ctx, const ew_cross_entropy_grad_params *p, void *const *operand) {
  const real *weight = operand[EW_CROSS_ENTROPY_GRAD_WEIGHT];
  backward f = {ctx, p, operand[EW_CROSS_ENTROPY_GRAD_X], weight, operand[EW_CROSS_ENTROPY_GRAD_LSE], operand[EW_CROSS_ENTROPY_GRAD_DLOSS], operand[EW_CROSS_ENTROPY_GRAD_LABEL], operand[EW_CROSS_ENTROPY_GRAD_DX],
                weight ? weighted_sum(weight, NULL, p->classes) : (float)p->classes, 16384 / p->classes + 1, 0};
  ew_parallel(ctx, (p->rows - 1) / f.rows + 1, cross_entropy_grad_task, &f);
  return f.failed ? EW_E_INDEX : EW_OK;
}
