/* Convolution of one plane with 3 x 3 taps, forward and gradient with respect to the weights.
 *
 * Works down columns of one vector's width: each row of x is loaded once and used for all rows of y
 * that it contributes to, whose sums stay in registers together with the weights. The last column
 * overlaps the one before. Padding is zero: a row of zeros above and below, and shifted vectors at
 * the left and right edges. */
#include "kernels/convolution/depthwise.h"

/* MET: elements of a row, at least the (VF - 1) * step + TAPS that one vector of positions reads.
 * LINES: rows of y per column, such that the rows of x stay in the L1 cache for the next column. */
enum { TAPS = 3, MET = 3 * VF, LINES = 64 };

bool ew_is_depthwise(const ew_window *w) {
  const int64_t step = w->stride[2], end = (w->y_size[2] - 1) * step + TAPS - w->pad[2],
                last = (w->y_size[1] - 1) * step - w->pad[1];
  if (w->taps[0] != 1 || w->taps[1] != TAPS || w->taps[2] != TAPS || w->x_size[0] != 1 ||
      w->y_size[0] != 1 || w->pad[0] != 0 || w->dilation[1] != 1 || w->dilation[2] != 1)
    return false;
  if (step > 2 || w->stride[1] != step || w->pad[1] < 0 || w->pad[1] >= TAPS || w->pad[2] < 0 ||
      w->pad[2] > 1)
    return false;
  return w->y_size[2] >= VF && end <= w->x_size[2] + (int64_t)1 && last < w->x_size[1];
}

/* Multiplies tap k of a row of x, which is vertical tap `from`, `from + every`, ... of successive
 * rows of y. Accumulates either those rows or the gradients of the weights. */
EW_INLINE void tap(int k, vf t, int from, int every, bool by_weights, vf w[TAPS][TAPS],
                   vf y[TAPS]) {
  for (int i = 0, r = from; r < TAPS; i++, r += every)
    if (by_weights)
      w[r][k] = vf_fma(t, y[i], w[r][k]);
    else
      y[i] = vf_fma(t, w[r][k], y[i]);
}
/* All taps of a row, starting at p. before, after: the first or the last element lies outside x.
 */
EW_INLINE void line(int step, const real *p, bool before, bool after, int from, bool by_weights,
                    vf w[TAPS][TAPS], vf y[TAPS]) {
  const vf zero = vf_splat(0);
  if (step == 1) {
    const vf x = vf_load(p + 1);
    tap(0, before ? vf_before(zero, x) : vf_load(p), from, step, by_weights, w, y);
    tap(1, x, from, step, by_weights, w, y);
    tap(2, after ? vf_after(x, zero) : vf_load(p + 2), from, step, by_weights, w, y);
  } else {
    const vf a = before ? vf_before(zero, vf_load(p + 1)) : vf_load(p), b = vf_load(p + VF),
             x = vf_evens(a, b);
    tap(0, x, from, step, by_weights, w, y);
    tap(1, vf_odds(a, b), from, step, by_weights, w, y);
    tap(2, vf_after(x, after ? zero : vf_load_splat(p + 2 * VF)), from, step, by_weights, w, y);
  }
}

/* Copies n rows of a column, MET elements apart, with 0 in place of a first or last element outside
 * x. */
static __attribute__((noinline)) void padded(const real *p, intptr_t pitch, int32_t n, bool before,
                                             int32_t size, bool after, real *to) {
  for (; n-- > 0; p += pitch, to += MET) {
    int32_t i = before;
    to[0] = to[size - 1] = 0;
    EW_PLAIN_FOR (; i + VF < size - after; i += VF) vf_store(to + i, vf_load(p + i));
    i = size - after - VF, vf_store(to + i, vf_load(p + i));
  }
}

/* Computes y from w, or w from y. */
EW_INLINE void columns(int step, bool by_weights, const ew_window *v, const real *x, real *y,
                       vf w[TAPS][TAPS], vf start, const ew_bounds *bounds) {
  real zeros[3 * VF] = {0}, *nothing = zeros, unwanted[VF],
                 edge[by_weights ? (LINES * 2 + TAPS) * MET : 1];
  const ew_bounds limit = by_weights ? (ew_bounds){0} : *bounds;
  /* early: rows of x to read before the first row of y is complete */
  const int32_t across = v->y_size[2], last = (across - 1) / VF * VF, pad = v->pad[2],
                early = TAPS - step;
  /* keeps the compiler from hoisting the zero case out of the loop below as branches */
  if (step == 2) __asm__("" : "+r"(nothing));
  vi mask, column;
  for (int i = 0; i < VF; i++) column[i] = i;
  for (int32_t first = 0; first < v->y_size[1]; first += LINES)
    for (int32_t c = 0; c <= last; c += VF) {
      const int32_t from = c < last ? c : across - VF,
                    n = v->y_size[1] - first < LINES ? v->y_size[1] - first : LINES;
      bool before = pad && !c,
           after = c == last && (across - 1) * (intptr_t)step + TAPS - pad > v->x_size[2];
      intptr_t at = first * (intptr_t)step - v->pad[1], lines = v->x_size[1], pitch = v->x_size[2];
      const real *p = x + from * step - pad;
      real *to = y + first * (intptr_t)across + from;
      if (by_weights && (before || after)) { /* the sums leave no registers for another solution */
        const intptr_t begin = at < 0 ? 0 : at, end = at + (n - 1) * step + TAPS < lines
                                                          ? at + (n - 1) * step + TAPS
                                                          : lines;
        padded(p + begin * pitch, pitch, (int32_t)(end - begin), before, (VF - 1) * step + TAPS,
               after, edge);
        p = edge, at -= begin, lines = end - begin, pitch = MET;
      }
      /* selects elements not already summed in the previous column */
      if (by_weights) before = after = false, mask = column >= vi_splat(c - from);
      vf open[TAPS] = {start, start, start}; /* incomplete rows of y, the newest first */
      p += at * pitch;
#define LINE(i, from)                                                                         \
  line(step, (size_t)(at + i) < (size_t)lines ? p + i * pitch : nothing, before, after, from, \
       by_weights, w, open)
      for (int32_t i = -early; i < n; i++, at += step, p += step * pitch) {
        open[0] = start;
        if (by_weights)
          open[0] = (vf)((vi)vf_load(i + early < n ? to : nothing) & *(const volatile vi *)&mask),
          to += across;
        LINE(0, 0);
        if (!by_weights) {
          vf_store(i < 0 ? unwanted : to, ew_bounded(&limit, open[early]));
          if (i >= 0) to += across;
        }
        if (step == 2) LINE(1, 1);
        open[2] = open[1], open[1] = open[0];
      }
    }
}

void ew_depthwise_forward(const ew_window *v, const real *x, const real *weights, float start,
                          const ew_bounds *limit, real *y) {
  vf w[TAPS][TAPS];
  for (int t = 0; t < TAPS * TAPS; t++) w[t / TAPS][t % TAPS] = vf_load_splat(weights + t);
  if (v->stride[2] == 1)
    columns(1, false, v, x, y, w, vf_splat(start), limit);
  else
    columns(2, false, v, x, y, w, vf_splat(start), limit);
}

void ew_depthwise_by_weights(const ew_window *v, const real *x, const real *dy, real *dw) {
  vf w[TAPS][TAPS] = {{{0}}};
  if (v->stride[2] == 1)
    columns(1, true, v, x, (real *)dy, w, vf_splat(0), NULL);
  else
    columns(2, true, v, x, (real *)dy, w, vf_splat(0), NULL);
  for (int t = 0; t < TAPS * TAPS; t++) dw[t] += vf_sum(w[t / TAPS][t % TAPS]);
}
