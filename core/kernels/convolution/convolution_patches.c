/* Packing of the matrix products of convolutions: patches of x are gathered while they are packed
 * (implicit im2col), from a box that holds the input region of a tile of positions (window.h), or
 * tap by tap. */
#include "kernels/convolution/convolution.h"

/* GROUP: positions packed at a time without a box; BOX_TAPS: maximum number of taps with one */
enum { GROUP = 8 * NR, BOX_TAPS = 256 };

__attribute__((noinline)) void ew_conv_fill(real *y, int64_t n, float value) {
  int64_t i = 0;
  for (; i + VF <= n; i += VF) vf_store(y + i, vf_splat(value));
  EW_PLAIN_FOR (; i < n; i++) y[i] = value;
}

__attribute__((noinline)) void ew_conv_tap(const ew_window *w, real *x, int64_t x_batch,
                                           ew_place tap, ew_place at, int32_t n, real *line,
                                           bool add) {
  int64_t z0 = ew_window_at(w, 0, tap.z), y0 = ew_window_at(w, 1, tap.y),
          x0 = ew_window_at(w, 2, tap.x), s = w->stride[2];
  int32_t first, last;
  ew_window_range(w, 2, x0, &first, &last);
  while (n) {
    int32_t count = at_most(w->y_size[2] - at.x, n), from = first - at.x, to = last - at.x, i = 0;
    int64_t z = at.z * (int64_t)w->stride[0] + z0, y = at.y * (int64_t)w->stride[1] + y0;
    if (to > count) to = count;
    if (from < 0) from = 0;
    if (to <= from || z < 0 || z >= w->x_size[0] || y < 0 || y >= w->x_size[1]) from = to = count;
    real *row = from < to ? x + (z * w->x_size[1] + y) * w->x_size[2] + at.x * s + x0 : x;
    if (add) {
      i = from;
      if (s == 1)
        for (; i + VF <= to; i += VF) vf_store(row + i, vf_load(row + i) + vf_load(line + i));
      EW_PLAIN_FOR (; i < to; i++) row[i * s] += line[i];
    } else {
      EW_PLAIN_FOR (; i < from; i++) line[i] = 0;
      if (from < to) ew_every(line + from, row + from * s, s, to - from);
      EW_PLAIN_FOR (i = to > from ? to : from; i < count; i++) line[i] = 0;
    }
    line += count, n -= count, at.x = 0;
    if (++at.y == w->y_size[1]) {
      at.y = 0;
      if (++at.z == w->y_size[0]) at.z = 0, x += x_batch;
    }
  }
}

/* Packs up to GROUP positions, from column 0 of the panels on, for any window. */
static __attribute__((noinline)) void pack_far(const ew_gemm_job *g, real *panels, int32_t k0,
                                               int32_t kc, int32_t j0, int32_t n) {
  const ew_patch_layout *s = g->b_more;
  int32_t channel = (int32_t)(k0 / s->taps), t = (int32_t)(k0 % s->taps);
  ew_place at = ew_place_of(s->first + j0, s->w.y_size), tap = ew_place_of(t, s->w.taps);
  for (int32_t p = 0; p < kc; p++, panels += NR) {
    real line[GROUP];
    ew_conv_tap(&s->w, (real *)g->b + channel * s->x_volume, 0, tap, at, n, line, false);
    EW_PLAIN_FOR (int32_t i = n; i % NR; i++) line[i] = 0;
    for (int32_t q = 0; q < n; q += NR)
      for (int32_t c = 0; c < NR; c += VF)
        vf_store(panels + (int64_t)q * kc + c, vf_load(line + q + c));
    if (++tap.x == s->w.taps[2]) tap.x = 0, tap.y++;
    if (tap.y == s->w.taps[1]) tap.y = 0, tap.z++;
    if (tap.z == s->w.taps[0]) tap.z = 0, channel++;
  }
}

/* Offset in the box of tap 0 of position `at`. */
static int32_t in_box(const ew_window_box *b, ew_place at) {
  return ((at.z - b->first.z) * b->w->stride[0] * b->size[1] +
          (at.y - b->first.y) * b->w->stride[1]) *
             b->size[2] +
         at.x - b->first.x;
}

static void taps_of_box(const ew_window_box *b, int32_t *tap) {
  const ew_window *w = b->w;
  for (int32_t z = 0, t = 0; z < w->taps[0]; z++)
    for (int32_t y = 0; y < w->taps[1]; y++)
      for (int32_t x = 0; x < w->taps[2]; x++) {
        int32_t from = x * w->dilation[2];
        tap[t++] = (z * w->dilation[0] * b->size[1] + y * w->dilation[1]) * b->size[2] +
                   from % w->stride[2] * b->pitch + from / w->stride[2];
      }
}

/* Packs some taps of the `cols` <= NR positions from `at` on, and advances `at` past them: rows of
 * a panel, copied from one piece of the box for each row of positions. */
static __attribute__((noinline)) void panel_of_box(const ew_window_box *b, ew_place *at,
                                                   int32_t cols, const int32_t *tap, int32_t taps,
                                                   real *panel) {
  const real *from[NR];
  int32_t begin[NR], pieces = 0;
  for (int32_t c = 0; c < cols; pieces++) {
    const int32_t left = b->w->y_size[2] - at->x, n = at_most(left, cols - c);
    from[pieces] = b->at + in_box(b, *at) - c, begin[pieces] = c;
    c += n, at->x += n;
    if (n < left) continue;
    at->x = 0;
    if (++at->y == b->w->y_size[1]) at->y = 0, at->z++;
  }
  if (pieces == 1) {
    for (int32_t t = 0; t < taps; t++, panel += NR)
      for (int c = 0; c < NR; c += VF) vf_store(panel + c, vf_load(from[0] + tap[t] + c));
    return;
  }
  vi column;
  for (int i = 0; i < VF; i++) column[i] = i;
  /* the pieces from `first` to `end` have the size of a vector */
  for (int c = 0, first = 0, end = 0; c < NR; c += VF, first = end - 1) {
    while (end < pieces && begin[end] < c + VF) end++;
    if (first + 1 < end && begin[first + 1] <= c) first++;
    for (int32_t t = 0; t < taps; t++) {
      vf x = vf_load(from[first] + tap[t] + c);
      for (int32_t i = first + 1; i < end; i++)
        x = vf_select(column >= vi_splat(begin[i] - c), vf_load(from[i] + tap[t] + c), x);
      vf_store(panel + t * NR + c, x);
    }
  }
}

void ew_conv_pack_positions(const ew_gemm_job *g, real *panels, int32_t k0, int32_t kc, int32_t j0,
                            int32_t nc) {
  const ew_patch_layout *s = g->b_more;
  for (int32_t j = 0, n; j < nc; j += n) {
    real area[NR + EW_BOX_FLOATS + NR];
    int32_t tap[BOX_TAPS];
    ew_window_box box;
    n = nc - j;
    /* otherwise each element is read at most once, and a box does not pay */
    bool fits = s->taps <= BOX_TAPS && s->taps > ew_volume(s->w.stride);
    while (fits && !ew_box_of(&s->w, s->first + j0 + j, n, &box)) {
      fits = n > NR;
      if (fits) n = up_to(n / 2, NR) * NR;
    }
    if (!fits) {
      n = at_most(nc - j, GROUP);
      pack_far(g, panels + (int64_t)j * kc, k0, kc, j0 + j, n);
      continue;
    }
    const ew_place first = ew_place_of(s->first + j0 + j, s->w.y_size);
    box.at = area + NR;
    taps_of_box(&box, tap);
    ew_conv_fill(area, NR, 0),
        ew_conv_fill(box.at + box.size[0] * box.size[1] * box.size[2], NR, 0);
    for (int32_t p = 0, count; p < kc; p += count) {
      const int32_t t = (int32_t)((k0 + p) % s->taps);
      ew_place at = first;
      count = at_most(s->taps - t, kc - p);
      ew_fill_box(&box, (const real *)g->b + (k0 + p) / s->taps * s->x_volume);
      for (int32_t q = 0; q < n; q += NR)
        panel_of_box(&box, &at, at_most(n - q, NR), tap + t, count,
                     panels + (int64_t)(j + q) * kc + p * NR);
    }
  }
}

void ew_conv_pack_taps(const ew_gemm_job *g, real *panels, int32_t k0, int32_t kc, int32_t j0,
                       int32_t nc) {
  const ew_patch_layout *s = g->b_more;
  int64_t y_volume = ew_volume(s->w.y_size);
  ew_place at = ew_place_of(k0 % y_volume, s->w.y_size);
  real *x = (real *)g->b + k0 / y_volume * s->x_batch;
  for (int32_t j = 0; j < nc; j += NR) {
    real lines[NR * 256];
    int32_t cols = at_most(nc - j, NR);
    for (int32_t c = 0; c < cols; c++) {
      int64_t column = s->first + j0 + j + c;
      ew_conv_tap(&s->w, x + column / s->taps * s->x_volume, s->x_batch,
                  ew_place_of(column % s->taps, s->w.taps), at, kc, lines + c * kc, false);
    }
    ew_pack_columns(lines, 0, kc, kc, cols, panels + (int64_t)j * kc, false);
  }
}
