/* A window that moves over up to three dimensions: what convolution and pooling have in common.
 *
 * x is the side it moves over, y has one element for each of its positions: tap k of position o
 * reads x[o * stride + k * dilation - pad], which is nothing where it lies outside of x. */
#ifndef EDGEWISE_WINDOW_H
#define EDGEWISE_WINDOW_H
#include "each.h"

typedef struct {
  const int32_t *x_size, *y_size, *taps, *stride, *dilation, *pad;
} ew_window;
#define EW_WINDOW_OF(p) {(p)->x_size, (p)->y_size, (p)->taps, (p)->stride, (p)->dilation, (p)->pad}

/* fits int32 for all fields of a window but pads: RULES in ops/window.py */
EW_INLINE int64_t ew_volume(const int32_t size[3]) { return (int64_t)size[0] * size[1] * size[2]; }

/* Where position 0's tap k lies in x along one dimension. */
EW_INLINE int64_t ew_window_at(const ew_window *w, int d, int32_t k) {
  return (int64_t)k * w->dilation[d] - w->pad[d];
}

/* The positions [from, to) along one dimension whose tap at `at` lies inside of x. */
EW_INLINE void ew_window_range(const ew_window *w, int d, int64_t at, int32_t *from, int32_t *to) {
  int64_t s = w->stride[d],
          first = at >= 0  ? 0
                  : s == 1 ? -at
                           : (s - 1 - at) / s,
          room = w->x_size[d] - at;
  int64_t last = room <= 0 ? 0 : s == 1 ? room : (room - 1) / s + 1;
  if (last > w->y_size[d]) last = w->y_size[d];
  *from = (int32_t)(first < last ? first : last), *to = (int32_t)last;
}

/* The taps [from, to) of position o along one dimension that lie inside of x. A loop over these is
 * bounded by x, however many taps there are. */
void ew_window_taps(const ew_window *w, int d, int32_t o, int32_t *from, int32_t *to);

/* n positions in a row, their tap `tap`: x[i * stride] and y[i], offsets into planes. */
typedef void (*ew_window_row)(void *job, int32_t n, int64_t x, int64_t stride, int64_t y,
                              int32_t tap);
/* Calls `row` for whatever of one plane of x and one of y meet, position by position, so that a row
 * of y is still near for its next tap. */
/* ends early where the run is to end */
void ew_window_rows(const ew_context *, const ew_window *, ew_window_row row, void *job);

/* to[i] = from[i * step]. Here, since most lines are short: a call is felt. */
static inline void ew_every(real *to, const real *from, int64_t step, int32_t n) {
  int32_t i = 0;
  if (step == 1 && n >= VF) {
    for (; i + VF <= n; i += VF) vf_store(to + i, vf_load(from + i));
    if (i < n) vf_store(to + n - VF, vf_load(from + n - VF));
    return;
  }
  if (step == 2) /* loads end at the last number that is wanted */
    EW_PLAIN_FOR (; i + 4 <= n; i += 4)
      *(f32x4_m *)(to + i) =
          __builtin_shufflevector((f32x4) * (const f32x4_m *)(from + 2 * i),
                                  (f32x4) * (const f32x4_m *)(from + 2 * i + 3), 0, 2, 5, 7);
  EW_PLAIN_FOR (; i < n; i++) to[i] = from[i * step];
}

typedef struct {
  int32_t z, y, x;
} ew_place;
/* The place of element i of a volume. */
ew_place ew_place_of(int64_t i, const int32_t size[3]);

/* Some positions and what their taps meet of a plane: a box of x with its pads, whose lines are
 * split by the remainders of places by the stride. What one tap meets in a line of positions then
 * lies one behind the other. */
enum { EW_BOX_FLOATS = 6144 };
typedef struct {
  const ew_window *w;
  ew_place first;  /* position */
  int32_t size[3]; /* places of x, those of lines rounded up to whole strides */
  int32_t pitch;   /* of a remainder's part of a line */
  real *at;
} ew_window_box;

/* The box of the n positions from `at`, all but its memory (b->at): the dimensions behind one that
 * they leave are there as a whole. False: it is larger than EW_BOX_FLOATS. */
bool ew_box_of(const ew_window *, int64_t at, int32_t n, ew_window_box *b);
/* Fills it from a plane x. What no tap meets is left as it is. */
void ew_fill_box(const ew_window_box *, const real *x);

/* How many of `count` pieces, worth `each` multiply-adds, make a task. */
EW_INLINE int32_t ew_window_share(const ew_context *c, int64_t count, double each) {
  int64_t least = (int64_t)(65536 / (each + 1)) + 1,
          share = count / (4 * (int64_t)ew_parallel_width(c)) + 1;
  return (int32_t)(least > count ? count : share > least ? share : least);
}
#endif
