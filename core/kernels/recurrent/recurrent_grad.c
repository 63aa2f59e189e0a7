/* Gradients of LSTM, GRU and RNN: the loop back over time steps. A task is a range of rows of the
 * batch. */
#include "kernels/recurrent/recurrent.h"

/* d *= f'(x), computed from y = f(x); 0 at the bounds. */
static SMALL void derive(const real *f, const real *y, real *d, int32_t n) {
  float a = f[1], b = f[2], low = f[4], high = f[5];
  if (f[0] == EW_RECURRENT_ACTIVATION_SIGMOID) {
    EW_EACH
    for (int32_t j = 0; j < n; j++)
      d[j] = y[j] > low && y[j] < high ? d[j] * (y[j] * (1 - y[j])) : 0;
  } else if (f[0] == EW_RECURRENT_ACTIVATION_TANH) {
    float s = a * b, c = b / a;
    EW_EACH
    for (int32_t j = 0; j < n; j++)
      d[j] = y[j] > low && y[j] < high ? d[j] * (s - c * (y[j] * y[j])) : 0;
  } else {
    EW_EACH
    for (int32_t j = 0; j < n; j++)
      d[j] = y[j] > low && y[j] < high ? d[j] * (y[j] < 0 ? a : b) : 0;
  }
}

typedef struct {
  ew_context *context;
  const ew_recurrent_grad_params *p;
  const real *dy, *y, *h_first, *c_first, *rt, *peepholes, *table, *g, *cells;
  const m_i32 *lengths;
  real *dx, *dh, *dc;
  ew_rnn_share split;
} recurrent_grad_job;

/* One step back for one row: from dh and dc after the step, computes the gradients with respect to
 * the gates' pre-activations, and the parts of dh and dc before the step that do not come through
 * matrix products. `before`: values before the step; NULL if they were zero. */
static SMALL void row_back(const ew_recurrent_grad_params *p, const real *f, const real *peep,
                           const real *g, const real *y, const real *cell, const real *h_before,
                           const real *c_before, real *dx, real *dh, real *dc) {
  int32_t n = p->h, j;
  int64_t hidden = n;
  const real *g1 = g + hidden, *g2 = g1 + hidden, *g3 = g2 + hidden;
  real *d0 = dx, *d1 = d0 + hidden, *d2 = d1 + hidden, *d3 = d2 + hidden;
  if (p->gates == LSTM) { /* i, o, f, c */
    ew_rnn_set(d0, cell, n);
    ew_rnn_activate(f + 2 * NUMBERS, d0, n);
    EW_EACH
    for (j = 0; j < n; j++) d1[j] = dh[j] * d0[j], d3[j] = dh[j] * g1[j];
    derive(f, g1, d1, n);
    derive(f + 2 * NUMBERS, d0, d3, n);
    EW_EACH
    for (j = 0; j < n; j++) dc[j] += d3[j];
    if (peep) ew_rnn_add_product(dc, peep + hidden, d1, n);
    EW_EACH
    for (j = 0; j < n; j++) d0[j] = dc[j] * g3[j], d3[j] = dc[j] * g[j];
    ew_rnn_set(d2, NULL, n);
    ew_rnn_add_product(d2, c_before, dc, n);
    if (p->coupled) {
      EW_EACH
      for (j = 0; j < n; j++) d0[j] -= d2[j], d2[j] = 0;
    }
    derive(f, g, d0, n), derive(f, g2, d2, n), derive(f + NUMBERS, g3, d3, n);
    EW_EACH
    for (j = 0; j < n; j++) dc[j] *= g2[j], dh[j] = 0;
    if (peep) ew_rnn_add_product(dc, peep, d0, n), ew_rnn_add_product(dc, peep + 2 * hidden, d2, n);
    /* z, r, h; dc is the gradient at the product of the last gate's weights */
  } else if (p->gates == GRU) {
    EW_EACH
    for (j = 0; j < n; j++)
      d0[j] = dh[j] * ((h_before ? h_before[j] : 0) - g2[j]), d2[j] = dh[j] * (1 - g[j]),
      dh[j] *= g[j];
    derive(f, g, d0, n), derive(f + NUMBERS, g2, d2, n);
    ew_rnn_set(dc, NULL, n);
    if (p->lbr) {
      EW_EACH
      for (j = 0; j < n; j++) d1[j] = d2[j] * g3[j], dc[j] = d2[j] * g1[j];
      derive(f, g1, d1, n);
    }
  } else {
    ew_rnn_set(d0, dh, n), ew_rnn_set(dh, NULL, n);
    derive(f, y, d0, n);
  }
}

static void walk_back(const recurrent_grad_job *w, int32_t d, int32_t from, int32_t to) {
  const ew_recurrent_grad_params *p = w->p;
  int32_t n = p->h, gates = p->gates;
  int64_t hidden = n, dx_row = (int64_t)p->d * gates * hidden;
  const real *f = w->table + d * 3 * NUMBERS,
             *peep = w->peepholes ? w->peepholes + d * 3 * hidden : NULL,
             *rt = w->rt + d * gates * hidden * hidden;
  real *dh = w->dh + (int64_t)d * p->b * hidden, *dc = w->dc + (int64_t)d * p->b * hidden;
  for (int32_t s = p->t - 1; s >= 0 && !ew_stopping(w->context); s--) {
    int32_t t = ew_rnn_time(p->t, p->reverse, d, s), back = d || p->reverse ? 1 : -1;
    real *dx = w->dx + (int64_t)t * p->b * dx_row + d * gates * hidden;
    /* pass 1: GRU's r, whose gradient comes through the last gate's weights */
    for (int pass = 0; pass < 2; pass++) {
      for (int64_t i = from; i < to; i++) {
        int32_t length = w->lengths ? w->lengths[i] : p->t;
        int64_t at = ((int64_t)t * p->b + i) * p->d + d, before = at + (int64_t)back * p->b * p->d,
                state = ((int64_t)d * p->b + i) * hidden;
        real *dhi = dh + i * hidden, *dci = dc + i * hidden, *dxi = dx + i * dx_row;
        bool first = back < 0 ? t == 0 : t + 1 == length || t + 1 == p->t;
        const real *h_before = !first       ? w->y + before * hidden
                               : w->h_first ? w->h_first + state
                                            : NULL;
        const real *c_before = !first       ? w->cells + before * hidden
                               : w->c_first ? w->c_first + state
                                            : NULL;
        const real *g = w->g + at * (gates + p->lbr) * hidden;
        if (t >= length) {
          if (pass == 0) {
            ew_rnn_set(dxi, NULL, gates * n);
            if (gates == GRU) ew_rnn_set(dci, NULL, n);
          }
        } else if (pass == 0) {
          if (w->dy) {
            const real *dy = w->dy + at * hidden;
            EW_EACH
            for (int32_t j = 0; j < n; j++) dhi[j] += dy[j];
          }
          row_back(p, f, peep, g, w->y + at * hidden, w->cells + at * hidden, h_before, c_before,
                   dxi, dhi, dci);
        } else {
          ew_rnn_set(dxi + hidden, NULL, n);
          ew_rnn_add_product(dxi + hidden, h_before, dci, n);
          derive(f, g + hidden, dxi + hidden, n);
          ew_rnn_add_product(dhi, g + hidden, dci, n);
        }
      }
      if (gates != GRU || p->lbr) break;
      if (pass == 0)
        ew_rnn_add_dots(to - from, n, n, dx + from * dx_row + 2 * hidden, dx_row, rt + 2 * hidden,
                        GRU * hidden, dc + from * hidden, hidden);
    }
    if (p->lbr)
      ew_rnn_add_dots(to - from, n, n, dc + from * hidden, hidden, rt + 2 * hidden, GRU * hidden,
                      dh + from * hidden, hidden);
    ew_rnn_add_dots(to - from, n, (gates == GRU ? 2 : gates) * n, dx + from * dx_row, dx_row, rt,
                    gates * hidden, dh + from * hidden, hidden);
  }
}

static void back_task(void *arg, int32_t index, int32_t thread) {
  const recurrent_grad_job *w = arg;
  (void)thread;
  for (; index < w->split.pieces; index += w->split.tasks) {
    int32_t from = index / w->p->d * w->split.size, to = from + w->split.size;
    walk_back(w, index % w->p->d, from, to < w->p->b ? to : w->p->b);
  }
}

int32_t ew_k_recurrent_grad(ew_context *ctx, const ew_recurrent_grad_params *p,
                            void *const *operand) {
  recurrent_grad_job w = {ctx,
                          p,
                          operand[EW_RECURRENT_GRAD_DY],
                          operand[EW_RECURRENT_GRAD_Y],
                          operand[EW_RECURRENT_GRAD_H_FIRST],
                          operand[EW_RECURRENT_GRAD_C_FIRST],
                          operand[EW_RECURRENT_GRAD_RT],
                          operand[EW_RECURRENT_GRAD_PEEPHOLES],
                          operand[EW_RECURRENT_GRAD_TABLE],
                          operand[EW_RECURRENT_GRAD_G],
                          operand[EW_RECURRENT_GRAD_CELLS],
                          operand[EW_RECURRENT_GRAD_LENGTHS],
                          operand[EW_RECURRENT_GRAD_DX],
                          operand[EW_RECURRENT_GRAD_DH],
                          operand[EW_RECURRENT_GRAD_DC],
                          {0}};
  int64_t state = (int64_t)p->d * p->b * p->h;
  ew_rnn_set(w.dh, operand[EW_RECURRENT_GRAD_DH_LAST], (int32_t)state),
      ew_rnn_set(w.dc, operand[EW_RECURRENT_GRAD_DC_LAST], (int32_t)state);
  w.split = ew_rnn_split(ctx, p->b, p->d, state * p->gates * p->h * p->t);
  ew_parallel(ctx, w.split.tasks, back_task, &w);
  return EW_OK;
}
