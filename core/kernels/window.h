/* A window that moves over up to three dimensions: what convolution and pooling have in common.
 *
 * x is the side it moves over, y has one element for each of its positions: tap k of position o reads x[o * stride + k * dilation - pad],
 * which is nothing where it lies outside of x. */
#ifndef EDGEWISE_WINDOW_H
#define EDGEWISE_WINDOW_H
#include "each.h"

typedef struct { const int32_t *x_size, *y_size, *taps, *stride, *dilation, *pad; } ew_window;
#define EW_WINDOW_OF(p) {(p)->x_size, (p)->y_size, (p)->taps, (p)->stride, (p)->dilation, (p)->pad}

EW_INLINE int64_t ew_volume(const int32_t size[3]) { return (int64_t)size[0] * size[1] * size[2]; } /* int32, says the loader */

/* Where position 0's tap k lies in x along one dimension. */
EW_INLINE int64_t ew_window_at(const ew_window *w, int d, int32_t k) { return (int64_t)k * w->dilation[d] - w->pad[d]; }

/* The positions [from, to) along one dimension whose tap at `at` lies inside of x. */
EW_INLINE void ew_window_range(const ew_window *w, int d, int64_t at, int32_t *from, int32_t *to) {
  int64_t s = w->stride[d], first = at >= 0 ? 0 : s == 1 ? -at : (s - 1 - at) / s, room = w->x_size[d] - at;
  int64_t last = room <= 0 ? 0 : s == 1 ? room : (room - 1) / s + 1;
  if (last > w->y_size[d]) last = w->y_size[d];
  *from = (int32_t)(first < last ? first : last), *to = (int32_t)last;
}

/* n positions in a row, their tap `tap`: x[i * stride] and y[i], offsets into planes. */
typedef void (*ew_window_row)(void *job, int32_t n, int64_t x, int64_t stride, int64_t y, int32_t tap);
/* Calls `row` for whatever of one plane of x and one of y meet, position by position, so that a row of y is still near for its next tap. */
void ew_window_rows(const ew_window *, ew_window_row row, void *job);

/* to[i] = from[i * step] */
void ew_every(real *to, const real *from, int64_t step, int32_t n);

/* How many of `count` pieces, worth `each` multiply-adds, make a task. */
EW_INLINE int32_t ew_window_share(const ew_context *c, int64_t count, double each) {
  int64_t least = (int64_t)(65536 / (each + 1)) + 1, share = count / (4 * (int64_t)ew_parallel_width(c)) + 1;
  return (int32_t)(least > count ? count : share > least ? share : least);
}
#endif
