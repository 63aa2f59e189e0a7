/* Sliding windows over up to three dimensions, shared by convolution and pooling.
 *
 * x is the side over which the window moves (the input), y has one element per window position: tap
 * k of position o reads x[o * stride + k * dilation - pad], or nothing if that lies outside of x.
 */
#ifndef EDGEWISE_WINDOW_H
#define EDGEWISE_WINDOW_H
#include "kernels/elementwise/each.h"

typedef struct {
  const int32_t *x_size, *y_size, *taps, *stride, *dilation, *pad;
} ew_window;
#define EW_WINDOW_OF(p) {(p)->x_size, (p)->y_size, (p)->taps, (p)->stride, (p)->dilation, (p)->pad}

/* Number of elements of a size. Fits int32 for all fields of a window but the pads:
 * WINDOW_RULES in python/edgewise/compiler/ops/convolution/window_rules.py. */
EW_INLINE int64_t ew_volume(const int32_t size[3]) { return (int64_t)size[0] * size[1] * size[2]; }

/* Coordinate in x of tap k of position 0, along dimension d. */
EW_INLINE int64_t ew_window_at(const ew_window *w, int d, int32_t k) {
  return (int64_t)k * w->dilation[d] - w->pad[d];
}

/* Range [from, to) of the positions, along dimension d, for which the tap at offset `at` lies
 * inside x. */
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

/* Range [from, to) of the taps of position o, along dimension d, that lie inside x. Loops over it
 * are bounded by x, whatever the number of taps. */
void ew_window_taps(const ew_window *w, int d, int32_t o, int32_t *from, int32_t *to);

/* Processes tap `tap` of n consecutive positions: x[i * stride] and y[i], as offsets into planes.
 */
typedef void (*ew_window_row)(void *job, int32_t n, int64_t x, int64_t stride, int64_t y,
                              int32_t tap);
/* Calls `row` for every tap of every position that lies inside x, one row of positions at a time,
 * so that a row of y is still in cache for its next tap. Returns early if the run must stop. */
void ew_window_rows(const ew_context *, const ew_window *, ew_window_row row, void *job);

/* to[i] = from[i * step]. Inline, because most rows are short and calls would be measurable. */
static inline void ew_every(real *to, const real *from, int64_t step, int32_t n) {
  int32_t i = 0;
  if (step == 1 && n >= VF) {
    for (; i + VF <= n; i += VF) vf_store(to + i, vf_load(from + i));
    if (i < n) vf_store(to + n - VF, vf_load(from + n - VF));
    return;
  }
  if (step == 2) /* the last load ends at the last element needed */
    EW_PLAIN_FOR (; i + 4 <= n; i += 4)
      *(f32x4_m *)(to + i) =
          __builtin_shufflevector((f32x4) * (const f32x4_m *)(from + 2 * i),
                                  (f32x4) * (const f32x4_m *)(from + 2 * i + 3), 0, 2, 5, 7);
  EW_PLAIN_FOR (; i < n; i++) to[i] = from[i * step];
}

typedef struct {
  int32_t z, y, x;
} ew_place;
/* Coordinates of element i of a volume. */
ew_place ew_place_of(int64_t i, const int32_t size[3]);

/* A tile of output positions and the padded input region it reads, stored de-interleaved by stride:
 * the elements that one tap reads for consecutive positions of a row are contiguous. */
enum { EW_BOX_FLOATS = 6144 }; /* maximum size of a box */
typedef struct {
  const ew_window *w;
  ew_place first;  /* first output position */
  int32_t size[3]; /* size of the region in x; rows rounded up to a multiple of the stride */
  int32_t pitch;   /* elements of one stride remainder within a row */
  real *at;
} ew_window_box;

/* Computes the box of the n positions from `at` on, except for its memory (b->at). Dimensions
 * inside one that the positions do not stay within are included as a whole. Returns false if the
 * box has more than EW_BOX_FLOATS elements. */
bool ew_box_of(const ew_window *, int64_t at, int32_t n, ew_window_box *b);
/* Computes the box of the n positions from `at` on, except for its memory (b->at). Where the
 * positions span more than one index of a dimension, all later dimensions are included in full.
 * Returns false if the box has more than EW_BOX_FLOATS elements. */
void ew_fill_box(const ew_window_box *, const real *x);

/* Number of pieces per task, out of `count` pieces of `each` multiply-adds. */
EW_INLINE int32_t ew_window_share(const ew_context *c, int64_t count, double each) {
  int64_t least = (int64_t)(65536 / (each + 1)) + 1,
          share = count / (4 * (int64_t)ew_parallel_width(c)) + 1;
  return (int32_t)(least > count ? count : share > least ? share : least);
}
#endif
