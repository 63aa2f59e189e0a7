/* Softmax and LogSoftmax over contiguous rows, and softmax combined with its gradient for
 * attention:
 *
 *     y = e^(x - max) / sum        or        y = x - max - log(sum)
 *
 * A task is a range of rows; rows are vectorized, with -infinity in the unused lanes of the last
 * vector. */
#include "kernels/elementwise/each.h"
#include <math.h>

typedef struct {
  const ew_softmax_params *p;
  const real *x;
  real *y;
  int32_t rows; /* per task */
} softmax_work;

/* Loads the incomplete last vector of a row, filled up with -infinity, whose exponential is 0. */
EW_INLINE vf load_tail(const real *x, int32_t n) {
  float t[VF];
  for (int i = 0; i < VF; i++) t[i] = i < n ? x[i] : -INFINITY;
  return vf_load(t);
}
EW_INLINE void store_tail(real *y, vf v, int32_t n) {
  for (int i = 0; i < n; i++) y[i] = v[i];
}

/* y[j] = e^(x[j] - max) for whole vectors, if y is not NULL; returns their sums. One vector at a
 * time: the constants of e^x take most registers. */
EW_INLINE vf exponentials(const real *x, real *y, int32_t n, float max) {
  vf sum = vf_splat(0);
  EW_PLAIN_FOR (int32_t j = 0; j < n; j += VF) {
    const vf e = vf_exp_soft(vf_load(x + j) - max);
    if (y) vf_store(y + j, e);
    sum += e;
  }
  return sum;
}

/* y = x scale + shift for whole vectors */
EW_INLINE void scaled(const real *x, real *y, int32_t n, float scale, float shift) {
  enum { SIDE = 4 };
  const vf a = vf_splat(scale), b = vf_splat(shift);
  int32_t j = 0;
  for (; j + SIDE * VF <= n; j += SIDE * VF)
    for (int u = 0; u < SIDE; u++) vf_store(y + j + u * VF, vf_fma(vf_load(x + j + u * VF), a, b));
  EW_PLAIN_FOR (; j < n; j += VF) vf_store(y + j, vf_fma(vf_load(x + j), a, b));
}

static void softmax_row(const real *x, real *y, int32_t n, bool is_log) {
  const int32_t whole = n / VF * VF;
  int32_t j = 0;
  const vf tail = whole < n ? load_tail(x + whole, n - whole) : vf_splat(-INFINITY);
  /* independent chains: a maximum has a latency of four cycles */
  vf high[4] = {tail, tail, tail, tail};
  for (; j + 4 * VF <= n; j += 4 * VF)
    for (int u = 0; u < 4; u++) high[u] = vf_max(high[u], vf_load(x + j + u * VF));
  for (; j < whole; j += VF) high[0] = vf_max(high[0], vf_load(x + j));
  const float max = vf_highest(vf_max(vf_max(high[0], high[1]), vf_max(high[2], high[3])));
  const vf rest = vf_exp_soft(tail - max), none = vf_splat(0);
  const float sum =
      vf_sum(exponentials(x, is_log ? NULL : y, whole, max) + (whole < n ? rest : none));
  const float scale = is_log ? 1 : 1.0f / sum, shift = is_log ? -(max + logf(sum)) : 0;
  scaled(is_log ? x : y, y, whole, scale, shift);
  if (whole < n) store_tail(y + whole, (is_log ? tail : rest) * scale + shift, n - whole);
}

static void softmax_task(void *arg, int32_t index, int32_t thread) {
  softmax_work *s = arg;
  const ew_softmax_params *p = s->p;
  (void)thread;
  int64_t from = (int64_t)index * s->rows, to = from + s->rows < p->rows ? from + s->rows : p->rows;
  for (int64_t i = from; i < to; i++)
    softmax_row(s->x + i * p->x_row, s->y + i * p->y_row, p->cols, p->log);
}

int32_t ew_k_softmax(ew_context *ctx, const ew_softmax_params *p, void *const *operand) {
  int32_t rows = 16384 / p->cols + 1; /* about 20 microseconds of work */
  softmax_work s = {p, operand[EW_SOFTMAX_X], operand[EW_SOFTMAX_Y], rows};
  ew_parallel(ctx, (p->rows - 1) / rows + 1, softmax_task, &s);
  return EW_OK;
}

typedef struct {
  const ew_softmax_and_grad_params *p;
  const real *x, *dy;
  real *y, *dx;
  int32_t rows; /* per task */
} pair_work;

/* y = softmax(scale x); dx = slope y (dy - sum(y dy)) */
static void pair_row(const real *x, const real *dy, real *y, real *dx, int32_t n, float scale,
                     float slope) {
  int32_t whole = n / VF * VF, j = 0;
  while (j < n && x[j] == -INFINITY) j++;
  if (j == n) { /* no key to attend to */
    for (j = 0; j < n; j++) y[j] = dx[j] = 0;
    return;
  }
  vf high = vf_splat(-INFINITY), sums = vf_splat(0), along = vf_splat(0);
  for (j = 0; j < whole; j += VF) high = vf_max(high, vf_load(x + j) * scale);
  if (j < n) high = vf_max(high, load_tail(x + j, n - j) * scale);
  const float max = vf_highest(high);
  for (j = 0; j < whole; j += VF) {
    vf e = vf_exp_soft(vf_fma(vf_load(x + j), vf_splat(scale), vf_splat(-max)));
    sums += e, along = vf_fma(e, vf_load(dy + j), along), vf_store(y + j, e);
  }
  float sum = vf_sum(sums), product = vf_sum(along);
  EW_PLAIN_FOR (; j < n; j++) {
    const float e = vf_exp_soft(vf_splat(x[j] * scale - max))[0];
    sum += e, product += e * dy[j], y[j] = e;
  }
  const float f = 1.0f / sum, mean = product * f;
  for (j = 0; j < whole; j += VF) {
    vf v = vf_load(y + j) * f;
    vf_store(y + j, v), vf_store(dx + j, v * (vf_load(dy + j) - mean) * slope);
  }
  EW_PLAIN_FOR (; j < n; j++) y[j] *= f, dx[j] = y[j] * (dy[j] - mean) * slope;
}

static __attribute__((noinline)) void clear(real *y, int64_t n) {
  int64_t j = 0;
  for (; j + VF <= n; j += VF) vf_store(y + j, vf_splat(0));
  EW_PLAIN_FOR (; j < n; j++) y[j] = 0;
}

static void pair_task(void *arg, int32_t index, int32_t thread) {
  const pair_work *s = arg;
  const ew_softmax_and_grad_params *p = s->p;
  (void)thread;
  int64_t cols = p->cols, first = (int64_t)index * s->rows,
          end = first + s->rows < p->rows ? first + s->rows : p->rows;
  for (int64_t i = first; i < end; i++) {
    const int64_t reach = p->first + i % p->period, to = reach < cols ? reach : cols,
                  after = p->span ? reach - p->span : 0,
                  from = after < 0    ? 0
                         : after < to ? after
                                      : to;
    const int64_t at = i * cols;
    clear(s->y + at, from), clear(s->dx + at, from), clear(s->y + at + to, cols - to),
        clear(s->dx + at + to, cols - to);
    pair_row(s->x + at + from, s->dy + at + from, s->y + at + from, s->dx + at + from,
             (int32_t)(to - from), p->scale, p->slope);
  }
}

int32_t ew_k_softmax_and_grad(ew_context *ctx, const ew_softmax_and_grad_params *p,
                              void *const *operand) {
  int32_t rows = 8192 / p->cols + 1;
  pair_work s = {p,
                 operand[EW_SOFTMAX_AND_GRAD_X],
                 operand[EW_SOFTMAX_AND_GRAD_DY],
                 operand[EW_SOFTMAX_AND_GRAD_Y],
                 operand[EW_SOFTMAX_AND_GRAD_DX],
                 rows};
  ew_parallel(ctx, (p->rows - 1) / rows + 1, pair_task, &s);
  return EW_OK;
}
