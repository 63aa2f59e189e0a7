/* LSTM, GRU and RNN: the loop over time steps.
 *
 * The part that does not depend on the previous step, x W^T + bias, is computed as one product for
 * all steps and is passed as x; the recurrent part, h R^T, is computed here by dot products. Rows
 * of the batch are independent, so each thread runs all steps of some rows. With fewer rows than
 * threads and large steps, the threads divide the hidden units of each step instead. Dot products
 * and activations are vectorized. */
#include "vector_math.h"
#include "kernels/recurrent/recurrent.h"
#include <string.h>

/* f(x) clamped to [low, high]: the bounds of f itself, or those that result from clipping x, since
 * every f is increasing. */
static void activate_vectors(const void *job, int32_t n, const void *const *in, void *out) {
  const real *f = job, *x = in[0];
  const float kind = f[0], a = f[1], b = f[2], shift = f[3], low = f[4], high = f[5];
  for (int32_t j = 0; j < n; j += VF) {
    vf v = vf_load(x + j);
    v = kind == EW_RECURRENT_ACTIVATION_SIGMOID ? vf_sigmoid(v)
        : kind == EW_RECURRENT_ACTIVATION_TANH  ? a * vf_tanh(b * v)
                                                : vf_select(v < vf_splat(0), a * v, b * v) + shift;
    vf_store((real *)out + j, vf_clamp(v, low, high));
  }
}
void ew_rnn_activate(const real *f, real *x, int32_t n) {
  ew_whole_vectors(activate_vectors, f, n, 1, (const void *[]){x}, x);
}

SMALL void ew_rnn_set(real *y, const real *a, int32_t n) {
  if (a)
    memmove(y, a, (size_t)n * 4);
  else
    memset(y, 0, (size_t)n * 4);
}
SMALL void ew_rnn_add_product(real *y, const real *a, const real *b, int32_t n) {
  if (!a) return;
  EW_EACH
  for (int32_t j = 0; j < n; j++) y[j] += a[j] * b[j];
}

SMALL void ew_rnn_add_dots(int32_t rows, int32_t columns, int32_t k, const real *a, int64_t a_row,
                           const real *b, int64_t b_column, real *y, int64_t y_row) {
  for (int32_t j = 0, n; j < columns; j += n) {
    n = columns - j >= 4 ? 4 : 1; /* at the end a single column, used four times */
    for (int32_t i = 0, m; i < rows; i += m) {
      float out[16];
      m = ew_dots_rows(rows - i);
      ew_dots(m, k, a + i * a_row, a_row, b + j * b_column, n == 4 ? b_column : 0, false, out);
      for (int32_t r = 0; r < m; r++)
        for (int32_t c = 0; c < n; c++) y[(i + r) * y_row + j + c] += out[r * 4 + c];
    }
  }
}

/* Constant weights are packed into panels of PANEL columns [k][PANEL]: read in order, they arrive
 * at memory bandwidth. */
enum { PANEL = 32, GROUP = 4 };

/* y[i][j] += a[i] . column j, for `rows` rows and `width` vectors of columns. `turn`: number of
 * independent sums, used if the rows are too few to hide the latency of multiplications. */
EW_INLINE void panel_part(int rows, int width, int turn, int32_t k, const real *a, int64_t a_row,
                          const real *b, real *y, int64_t y_row) {
  vf s[8];
  for (int i = 0; i < rows * width * turn; i++) s[i] = vf_splat(0);
  for (int32_t p = 0; p < k; p += turn) /* k is a multiple of PANEL */
    for (int u = 0; u < turn; u++, b += PANEL)
      for (int r = 0; r < rows; r++) {
        const vf x = vf_splat(a[r * a_row + p + u]);
        for (int w = 0; w < width; w++)
          s[(r * width + w) * turn + u] =
              vf_fma(x, vf_load(b + w * VF), s[(r * width + w) * turn + u]);
      }
  for (int r = 0; r < rows; r++)
    for (int w = 0; w < width; w++) {
      vf sum = s[(r * width + w) * turn];
      for (int u = 1; u < turn; u++) sum += s[(r * width + w) * turn + u];
      vf_store(y + r * y_row + w * VF, vf_load(y + r * y_row + w * VF) + sum);
    }
}
static SMALL void panel_of_one(int32_t k, const real *a, const real *b, real *y) {
  panel_part(1, PANEL / VF, VF / 4, k, a, 0, b, y, 0);
}
static SMALL void panel_of_group(int32_t k, const real *a, int64_t a_row, const real *b, real *y,
                                 int64_t y_row) {
  panel_part(GROUP, 2, 1, k, a, a_row, b, y, y_row);
}

/* The same as add_dots, for whole panels. */
static SMALL void add_panels(int32_t rows, int32_t columns, int32_t k, const real *a, int64_t a_row,
                             const real *b, real *y, int64_t y_row) {
  for (int32_t j = 0; j < columns; j += PANEL, b += (int64_t)PANEL * k) {
    int32_t i = 0;
    for (; i + GROUP <= rows; i += GROUP)
      for (int32_t c = 0; c < PANEL; c += 2 * VF)
        panel_of_group(k, a + i * a_row, a_row, b + c, y + i * y_row + j + c, y_row);
    for (; i < rows; i++) panel_of_one(k, a + i * a_row, b, y + i * y_row + j);
  }
}

SMALL ew_rnn_share ew_rnn_split(ew_context *ctx, int32_t batch, int32_t directions, int64_t work) {
  int32_t width = work < 1 << 18 ? 1 : ew_parallel_width(ctx),
          share = (batch * directions - 1) / width + 1;
  share = (share + 3) & ~3;
  share = share < batch ? share : batch;
  int32_t pieces = directions * ((batch - 1) / share + 1);
  return (ew_rnn_share){width == 1 ? 1 : pieces, pieces, share};
}

/* ---- forward ---- */

typedef struct {
  ew_context *context;
  const ew_recurrent_params *p;
  const real *x, *r, *bias, *peepholes, *table;
  const m_i32 *lengths;
  real *y, *h, *c, *g, *cells;
  ew_rnn_share split;
  int32_t step, phase; /* current step and phase of all tasks, if they divide the hidden units */
  /* precomputed products of h: rows of all gates of one direction; otherwise NULL */
  const real *sums;
  int32_t direction; /* direction of `sums` */
} recurrent_job;

/* One step of an LSTM cell for one row and n hidden units, from the gates' pre-activations g (i, o,
 * f, c): updates the cell state ci, sets the output y. f: activations; peep: peephole weights or
 * NULL. */
static void lstm_cell(const ew_recurrent_params *p, const real *f, const real *peep,
                      real *const g[LSTM], real *ci, real *y, int32_t n) {
  real *g0 = g[0], *g1 = g[1], *g2 = g[2], *g3 = g[3];
  if (peep)
    ew_rnn_add_product(g0, peep, ci, n), ew_rnn_add_product(g2, peep + 2 * (int64_t)p->h, ci, n);
  ew_rnn_activate(f, g0, n);
  if (p->coupled) {
    EW_EACH
    for (int32_t u = 0; u < n; u++) g2[u] = 1 - g0[u];
  } else
    ew_rnn_activate(f, g2, n);
  ew_rnn_activate(f + NUMBERS, g3, n);
  EW_EACH
  for (int32_t u = 0; u < n; u++) ci[u] = g2[u] * ci[u] + g0[u] * g3[u];
  if (peep) ew_rnn_add_product(g1, peep + p->h, ci, n);
  ew_rnn_activate(f, g1, n);
  ew_rnn_set(y, ci, n);
  ew_rnn_activate(f + 2 * NUMBERS, y, n);
  EW_EACH
  for (int32_t u = 0; u < n; u++) y[u] *= g1[u];
}

/* Step t in direction d for rows from..to-1 and hidden units j..j+n-1. Phase 0 reads h of all
 * units; phase 1 computes GRU's gate that reads r * h of all units; phase 2 writes the new h. */
static SMALL void forward_step(const recurrent_job *w, int32_t d, int32_t t, int32_t phase,
                               int32_t from, int32_t to, int32_t j, int32_t n) {
  const ew_recurrent_params *p = w->p;
  int64_t hidden = p->h, gates = p->gates, g_row = p->d * (gates + p->lbr) * hidden;
  const real *r = w->r + d * gates * hidden * hidden + j * hidden, *f = w->table + d * 3 * NUMBERS,
             *peep = w->peepholes ? w->peepholes + d * 3 * hidden + j : NULL;
  real *h = w->h + (int64_t)d * p->b * hidden, *c = w->c + (int64_t)d * p->b * hidden,
       *g = w->g + t * (int64_t)p->g_t + d * (gates + p->lbr) * hidden + j;
  /* the last gate's weights are multiplied with r * h, not h */
  bool late = gates == GRU && !p->lbr;
  if (phase < 2) {
    for (int64_t k = phase ? 2 : 0; k < (late && !phase ? 2 : gates); k++) {
      bool apart = p->lbr && k == 2; /* its product is kept separate from its x */
      for (int64_t i = from; i < to; i++) {
        const real *x = w->x + t * (int64_t)p->x_t + i * p->x_b + (d * gates + k) * hidden + j;
        ew_rnn_set(g + i * g_row + k * hidden, x, n);
        if (apart)
          ew_rnn_set(g + i * g_row + GRU * hidden, w->bias ? w->bias + d * hidden + j : NULL, n);
      }
      if (w->sums) {
        for (int64_t i = from; i < to; i++) {
          const real *s = w->sums + (i * gates + k) * hidden + j;
          real *gi = g + i * g_row + k * hidden;
          EW_EACH
          for (int32_t u = 0; u < n; u++) gi[u] += s[u];
        }
        continue;
      }
      const real *a = (phase ? c : h) + from * hidden, *b = r + k * hidden * hidden;
      real *sums = g + from * g_row + (apart ? GRU : k) * hidden;
      if (p->panels)
        add_panels(to - from, n, p->h, a, hidden, b, sums, g_row);
      else
        ew_rnn_add_dots(to - from, n, p->h, a, hidden, b, hidden, sums, g_row);
    }
  }
  for (int64_t i = from; i < to; i++) {
    real *g0 = g + i * g_row, *g1 = g0 + hidden, *g2 = g1 + hidden, *g3 = g2 + hidden,
         *hi = h + i * hidden + j, *ci = c + i * hidden + j;
    int64_t at = ((int64_t)t * p->b + i) * p->d + d;
    real *y = w->y + at * hidden + j;
    bool over = w->lengths && t >= w->lengths[i];
    if (over && !(phase == 0 && gates == LSTM && w->cells)) {
      if (phase == 0) ew_rnn_set(y, NULL, n);
    } else if (phase == 2)
      ew_rnn_set(hi, y, n);
    else if (over)
      ew_rnn_set(y, NULL, n), ew_rnn_set(w->cells + at * hidden + j, ci, n);
    else if (gates == LSTM) {
      lstm_cell(p, f, peep, (real *const[]){g0, g1, g2, g3}, ci, y, n);
      if (w->cells) ew_rnn_set(w->cells + at * hidden + j, ci, n);
    } else if (gates == GRU) {
      if (phase == 0) ew_rnn_activate(f, g0, n), ew_rnn_activate(f, g1, n);
      if (phase == 0 && late) {
        ew_rnn_set(ci, NULL, n), ew_rnn_add_product(ci, g1, hi, n);
        continue;
      }
      if (!late) ew_rnn_add_product(g2, g1, g3, n);
      ew_rnn_activate(f + NUMBERS, g2, n);
      EW_EACH
      for (int32_t u = 0; u < n; u++) y[u] = g2[u] + g0[u] * (hi[u] - g2[u]);
    } else {
      ew_rnn_activate(f, g0, n);
      ew_rnn_set(y, g0, n);
    }
  }
}

static void rows_task(void *arg, int32_t index, int32_t thread) {
  const recurrent_job *w = arg;
  const ew_recurrent_params *p = w->p;
  (void)thread;
  for (; index < w->split.pieces; index += w->split.tasks) {
    int32_t d = index % p->d, from = index / p->d * w->split.size,
            to = from + w->split.size < p->b ? from + w->split.size : p->b;
    for (int32_t s = 0; s < p->t && !ew_stopping(w->context); s++)
      for (int32_t phase = 0; phase < 3; phase++)
        if (phase != 1 || (p->gates == GRU && !p->lbr))
          forward_step(w, d, ew_rnn_time(p->t, p->reverse, d, s), phase, from, to, 0, p->h);
  }
}

static void units_task(void *arg, int32_t index, int32_t thread) {
  const recurrent_job *w = arg;
  const ew_recurrent_params *p = w->p;
  (void)thread;
  int32_t d = index % p->d, j = index / p->d * w->split.size,
          n = p->h - j < w->split.size ? p->h - j : w->split.size;
  forward_step(w, d, ew_rnn_time(p->t, p->reverse, d, w->step), w->phase, 0, p->b, j, n);
}

int32_t ew_k_recurrent(ew_context *ctx, const ew_recurrent_params *p, void *const *operand) {
  recurrent_job w = {ctx,
                     p,
                     operand[EW_RECURRENT_X],
                     operand[EW_RECURRENT_R],
                     operand[EW_RECURRENT_BIAS],
                     operand[EW_RECURRENT_PEEPHOLES],
                     operand[EW_RECURRENT_TABLE],
                     operand[EW_RECURRENT_LENGTHS],
                     operand[EW_RECURRENT_Y],
                     operand[EW_RECURRENT_H_LAST],
                     operand[EW_RECURRENT_C_LAST],
                     operand[EW_RECURRENT_G],
                     operand[EW_RECURRENT_CELLS],
                     {0},
                     0,
                     0,
                     NULL,
                     0};
  int64_t state = (int64_t)p->d * p->b * p->h, work = state * p->gates * p->h;
  ew_rnn_set(w.h, operand[EW_RECURRENT_H_FIRST], (int32_t)state),
      ew_rnn_set(w.c, operand[EW_RECURRENT_C_FIRST], (int32_t)state);
  int32_t width = ew_parallel_width(ctx);
  w.split = ew_rnn_split(ctx, p->b, p->d, work * p->t);
  if (w.split.pieces >= width || work < 1 << 18) {
    ew_parallel(ctx, w.split.tasks, rows_task, &w);
    return EW_OK;
  }
  /* enough work implies a large h */
  int32_t unit = p->panels ? PANEL : 4, share = ((p->h * p->d - 1) / width + unit) & -unit;
  w.split = (ew_rnn_share){0, p->d * ((p->h - 1) / share + 1), share};
  for (w.step = 0; w.step < p->t && !ew_stopping(ctx); w.step++)
    for (w.phase = 0; w.phase < 3; w.phase++)
      if (w.phase == 2)
        for (int32_t d = 0; d < p->d; d++)
          forward_step(&w, d, ew_rnn_time(p->t, p->reverse, d, w.step), 2, 0, p->b, 0, p->h);
      else if (w.phase == 0 || (p->gates == GRU && !p->lbr))
        ew_parallel(ctx, w.split.pieces, units_task, &w);
  return EW_OK;
}

/* ---- forward, with quantized weights ---- */

static void bytes_task(void *arg, int32_t index, int32_t thread) {
  const recurrent_job *w = arg;
  (void)thread;
  int32_t from = index * w->split.size,
          to = from + w->split.size < w->p->b ? from + w->split.size : w->p->b;
  for (int32_t phase = 0; phase < 3; phase += 2)
    forward_step(w, w->direction, w->step, phase, from, to, 0, w->p->h);
}

int32_t ew_k_recurrent_bytes(ew_context *ctx, const ew_recurrent_bytes_params *p,
                             void *const *operand) {
  const ew_recurrent_params q = {.t = p->t,
                                 .b = p->b,
                                 .d = p->d,
                                 .h = p->h,
                                 .gates = LSTM,
                                 .reverse = p->reverse,
                                 .coupled = p->coupled,
                                 .x_t = p->x_t,
                                 .x_b = p->x_b};
  recurrent_job w = {.context = ctx,
                     .p = &q,
                     .x = operand[EW_RECURRENT_BYTES_X],
                     .peepholes = operand[EW_RECURRENT_BYTES_PEEPHOLES],
                     .table = operand[EW_RECURRENT_BYTES_TABLE],
                     .lengths = operand[EW_RECURRENT_BYTES_LENGTHS],
                     .y = operand[EW_RECURRENT_BYTES_Y],
                     .h = operand[EW_RECURRENT_BYTES_H_LAST],
                     .c = operand[EW_RECURRENT_BYTES_C_LAST],
                     .g = operand[EW_RECURRENT_BYTES_G],
                     .sums = operand[EW_RECURRENT_BYTES_SUMS]};
  const int32_t rows = p->b, n = LSTM * p->h;
  const int64_t state = (int64_t)rows * p->h,
                item = ((int64_t)n + 31) / 32 * 32 * (4 + ((int64_t)p->h + 3) / 4 * 4);
  ew_rnn_set(w.h, operand[EW_RECURRENT_BYTES_H_FIRST], (int32_t)(p->d * state)),
      ew_rnn_set(w.c, operand[EW_RECURRENT_BYTES_C_FIRST], (int32_t)(p->d * state));
  w.split = ew_rnn_split(ctx, rows, 1, state * 64);
  const ew_dynamic_quantize_params quantize = {.n = (int32_t)state};
  const ew_integer_product_params multiply = {.items = 1,
                                              .batch = rows,
                                              .n = n,
                                              .c = p->h,
                                              .x_size = {1, 1, 1},
                                              .y_size = {1, 1, 1},
                                              .taps = {1, 1, 1},
                                              .stride = {1, 1, 1},
                                              .dilation = {1, 1, 1},
                                              .a_row = p->h,
                                              .y_row = n,
                                              .a_type = EW_U8,
                                              .b_type = p->r_type,
                                              .y_type = EW_F32,
                                              .a_zeros = 1,
                                              .b_zeros = p->zeros,
                                              .factors = p->factors,
                                              .scratch_bytes = p->scratch_bytes};
  float scale;
  uint8_t zero;
  for (int32_t s = 0; s < p->t && !ew_stopping(ctx); s++)
    for (int32_t d = 0; d < p->d; d++) {
      void *const in[] = {[EW_DYNAMIC_QUANTIZE_X] = w.h + d * state,
                          [EW_DYNAMIC_QUANTIZE_Y] = operand[EW_RECURRENT_BYTES_BYTES],
                          [EW_DYNAMIC_QUANTIZE_SCALE] = &scale,
                          [EW_DYNAMIC_QUANTIZE_ZERO] = &zero};
      const uint8_t *r_zero = operand[EW_RECURRENT_BYTES_R_ZERO];
      void *const factors[EW_INTEGER_PRODUCT_SCRATCH + 1] = {
          [EW_INTEGER_PRODUCT_A] = operand[EW_RECURRENT_BYTES_BYTES],
          [EW_INTEGER_PRODUCT_W] = (uint8_t *)operand[EW_RECURRENT_BYTES_R] + d * item,
          [EW_INTEGER_PRODUCT_A_ZERO] = &zero,
          [EW_INTEGER_PRODUCT_B_ZERO] = r_zero ? (void *)(r_zero + (int64_t)d * p->zeros) : NULL,
          [EW_INTEGER_PRODUCT_A_SCALE] = &scale,
          [EW_INTEGER_PRODUCT_FACTOR] =
              (real *)operand[EW_RECURRENT_BYTES_FACTOR] + (int64_t)d * p->factors,
          [EW_INTEGER_PRODUCT_Y] = (void *)w.sums,
          [EW_INTEGER_PRODUCT_SCRATCH] = operand[EW_RECURRENT_BYTES_SCRATCH]};
      ew_k_dynamic_quantize(ctx, &quantize, in);
      ew_k_integer_product(ctx, &multiply, factors);
      w.direction = d, w.step = ew_rnn_time(p->t, p->reverse, d, s);
      ew_parallel(ctx, w.split.pieces, bytes_task, &w);
    }
  return EW_OK;
}
