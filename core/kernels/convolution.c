/* Convolution, transposed convolution (its gradient with respect to x), and its gradient with
 * respect to the weights, in up to three dimensions.
 *
 * They are matrix products whose b is gathered from x while it is packed (implicit im2col): patches
 * are never stored. Convolutions with few output channels per group, such as depthwise ones, go tap
 * by tap instead. Tasks are blocks of rows and columns of (item, group); inner loops are those of
 * gemm.h, depthwise.h or the long rows below. */
#include "convolution_few.h"
#include "depthwise.h"
#include "gemm.h"

enum { FEW_CHANNELS = 4, MOST_TAPS = 2048, GROUP = 8 * NR, BOX_TAPS = 256 };

EW_INLINE int32_t at_most(int64_t x, int32_t limit) { return x < limit ? (int32_t)x : limit; }
EW_INLINE int32_t up_to(int64_t x, int32_t step) { return (int32_t)((x - 1) / step + 1); }

static __attribute__((noinline)) void zero(real *y, int64_t n, float value) {
  int64_t i = 0;
  for (; i + VF <= n; i += VF) vf_store(y + i, vf_splat(value));
  EW_PLAIN_FOR (; i < n; i++) y[i] = value;
}

/* ---- patches ---- */

/* Copies one tap of the n positions from `at` on of a plane x to `line`, zero outside of x; or,
 * with `add`, adds `line` to x. Positions after the last belong to the next item, x_batch further
 * on. */
static __attribute__((noinline)) void patches(const ew_window *w, real *x, int64_t x_batch,
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

typedef struct {
  ew_window w;
  int64_t x_volume, x_batch, taps; /* taps: number of taps of the window */
  /* forward: position of column 0; gradient of weights: tap of column 0 */
  int64_t first;
} patch_layout;

/* Packs up to GROUP positions, from column 0 of the panels on, for any window. */
static __attribute__((noinline)) void pack_far(const ew_gemm_job *g, real *panels, int32_t k0,
                                               int32_t kc, int32_t j0, int32_t n) {
  const patch_layout *s = g->b_more;
  int32_t channel = (int32_t)(k0 / s->taps), t = (int32_t)(k0 % s->taps);
  ew_place at = ew_place_of(s->first + j0, s->w.y_size), tap = ew_place_of(t, s->w.taps);
  for (int32_t p = 0; p < kc; p++, panels += NR) {
    real line[GROUP];
    patches(&s->w, (real *)g->b + channel * s->x_volume, 0, tap, at, n, line, false);
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

/* Packs b with rows (channel, tap) and columns positions. */
static void pack_positions(const ew_gemm_job *g, real *panels, int32_t k0, int32_t kc, int32_t j0,
                           int32_t nc) {
  const patch_layout *s = g->b_more;
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
    zero(area, NR, 0), zero(box.at + box.size[0] * box.size[1] * box.size[2], NR, 0);
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

/* Packs b with rows positions of all items and columns (channel, tap). kc is at most 256, the
 * longest block of gemm.c. */
static void pack_taps(const ew_gemm_job *g, real *panels, int32_t k0, int32_t kc, int32_t j0,
                      int32_t nc) {
  const patch_layout *s = g->b_more;
  int64_t y_volume = ew_volume(s->w.y_size);
  ew_place at = ew_place_of(k0 % y_volume, s->w.y_size);
  real *x = (real *)g->b + k0 / y_volume * s->x_batch;
  for (int32_t j = 0; j < nc; j += NR) {
    real lines[NR * 256];
    int32_t cols = at_most(nc - j, NR);
    for (int32_t c = 0; c < cols; c++) {
      int64_t column = s->first + j0 + j + c;
      patches(&s->w, x + column / s->taps * s->x_volume, s->x_batch,
              ew_place_of(column % s->taps, s->w.taps), at, kc, lines + c * kc, false);
    }
    ew_pack_columns(lines, 0, kc, kc, cols, panels + (int64_t)j * kc, false);
  }
}

/* ---- common to all three ---- */

typedef struct {
  ew_context *context;
  ew_window w;
  /* m, c: output and input channels per group; share: pieces per task */
  int32_t batch, groups, m, c, threads, share;
  int64_t x_batch, x_volume, y_volume, taps, pieces;
  real *x, *weights, *y, *scratch;
  const real *bias;
  ew_finish finish;
  /* number of blocks of columns, and columns per block; transposed: channels of a group */
  int32_t blocks, block;
  int32_t row_blocks, rows; /* number of blocks of a group's m, and rows per block */
} convolution;

#define CONVOLUTION(p)                 \
  {.context = ctx,                     \
   .w = EW_WINDOW_OF(p),               \
   .batch = (p)->batch,                \
   .groups = (p)->groups,              \
   .m = (p)->m,                        \
   .c = (p)->c,                        \
   .threads = ew_parallel_width(ctx),  \
   .x_batch = (p)->x_batch,            \
   .x_volume = ew_volume((p)->x_size), \
   .y_volume = ew_volume((p)->y_size), \
   .taps = ew_volume((p)->taps)}

static void in_parallel(ew_context *ctx, convolution *s, int64_t pieces, double each,
                        ew_task task) {
  s->pieces = pieces, s->share = ew_window_share(ctx, pieces, each);
  ew_parallel(ctx, up_to(pieces, s->share), task, s);
}
#define EACH_PIECE(i)                                                     \
  for (int64_t i = (int64_t)index * s->share,                             \
               end = i + s->share < s->pieces ? i + s->share : s->pieces; \
       i < end && !ew_stopping(s->context); i++)

static real *plane_of_x(const convolution *s, int64_t item, int64_t channel) {
  return s->x + item * s->x_batch + channel * s->x_volume;
}

/* ---- tap by tap ---- */

typedef struct {
  real *x, *w, *y;
} planes;

static void forward_row(void *arg, int32_t n, int64_t x_at, int64_t stride, int64_t y_at,
                        int32_t tap) {
  const planes *p = arg;
  const real *x = p->x + x_at;
  real *y = p->y + y_at, w = p->w[tap];
  int32_t i = 0;
  if (stride == 1)
    for (; i + VF <= n; i += VF)
      vf_store(y + i, vf_fma(vf_load(x + i), vf_splat(w), vf_load(y + i)));
  EW_PLAIN_FOR (; i < n; i++) y[i] += w * x[i * stride];
}
static void transpose_row(void *arg, int32_t n, int64_t x_at, int64_t stride, int64_t y_at,
                          int32_t tap) {
  const planes *p = arg;
  real *x = p->x + x_at, w = p->w[tap];
  const real *y = p->y + y_at;
  int32_t i = 0;
  if (stride == 1)
    for (; i + VF <= n; i += VF)
      vf_store(x + i, vf_fma(vf_load(y + i), vf_splat(w), vf_load(x + i)));
  EW_PLAIN_FOR (; i < n; i++) x[i * stride] += w * y[i];
}
static void weight_row(void *arg, int32_t n, int64_t x_at, int64_t stride, int64_t y_at,
                       int32_t tap) {
  const planes *p = arg;
  const real *x = p->x + x_at, *y = p->y + y_at;
  vf sum[4] = {{0}};
  float rest = 0;
  int32_t i = 0;
  if (stride == 1)
    for (; i + 4 * VF <= n; i += 4 * VF)
      for (int u = 0; u < 4; u++)
        sum[u] = vf_fma(vf_load(x + i + u * VF), vf_load(y + i + u * VF), sum[u]);
  EW_PLAIN_FOR (; i < n; i++) rest += x[i * stride] * y[i];
  p->w[tap] += vf_sum((sum[0] + sum[1]) + (sum[2] + sum[3])) + rest;
}

/* ---- tap by tap, in long rows ----
 *
 * x is stored with its padding, de-interleaved by stride: what one tap reads for all positions of a
 * plane is then one long contiguous row, with a few unused elements between the rows of positions.
 */

enum { LONG_TAPS = 64 };

typedef struct {
  ew_window w; /* its taps are the stride remainders */
  /* size of one remainder's part: the positions, plus how far the taps extend beyond them */
  int32_t y_size[3];
  /* row: positions from first to last including the gaps; pitch: distance between rows of positions
   */
  int64_t part, parts, row, pitch;
  int64_t offset[LONG_TAPS];
  real *x, *y; /* parts * part and row elements, each followed by room for AT_ONCE */
} long_rows;
enum { AT_ONCE = 4 * VF };
/* y is 0 after the row */
EW_INLINE int32_t whole_row(const long_rows *l) { return up_to(l->row, AT_ONCE) * AT_ONCE; }

/* Returns whether the plane fits in `floats` of scratch. l->w points into l, which must not be
 * moved. */
static __attribute__((noinline)) bool long_rows_of(const convolution *s, real *scratch,
                                                   int64_t floats, long_rows *l) {
  static const int32_t one[3] = {1, 1, 1};
  const ew_window *w = &s->w;
  if (!scratch || s->taps > LONG_TAPS || s->x_volume > floats || s->y_volume > floats) return false;
  int64_t part = 1, parts = 1;
  for (int d = 0; d < 3; d++) {
    /* each factor is checked first, so that no product wraps */
    if (w->stride[d] > LONG_TAPS || (parts *= w->stride[d]) > LONG_TAPS) return false;
    int64_t size = w->y_size[d] + (w->taps[d] - 1) * (int64_t)w->dilation[d] / w->stride[d];
    if (size > floats || (part *= size) > floats) return false;
    l->y_size[d] = (int32_t)size;
  }
  l->w = (ew_window){w->x_size, l->y_size, w->stride, w->stride, one, w->pad};
  l->part = part, l->parts = parts, l->pitch = l->y_size[2];
  l->row =
      (((int64_t)w->y_size[0] - 1) * l->y_size[1] + w->y_size[1] - 1) * l->pitch + w->y_size[2];
  l->x = scratch, l->y = scratch + l->part * l->parts + AT_ONCE;
  if (l->part * l->parts + l->row + 2 * AT_ONCE > floats) return false;
  for (int64_t t = 0; t < s->taps; t++) {
    ew_place k = ew_place_of(t, w->taps);
    int64_t z = k.z * (int64_t)w->dilation[0], y = k.y * (int64_t)w->dilation[1],
            x = k.x * (int64_t)w->dilation[2];
    int64_t index =
        (z % w->stride[0] * w->stride[1] + y % w->stride[1]) * w->stride[2] + x % w->stride[2];
    l->offset[t] = index * part + (z / w->stride[0] * l->y_size[1] + y / w->stride[1]) * l->pitch +
                   x / w->stride[2];
  }
  zero(l->x, l->part * l->parts + AT_ONCE, 0), zero(l->y + l->row, AT_ONCE, 0);
  return true;
}
/* Copies a plane of x into its parts, whose padding is already 0. */
static __attribute__((noinline)) void into_parts(const long_rows *l, const real *x) {
  const int32_t *stride = l->w.stride, *pad = l->w.pad, *size = l->y_size, *x_size = l->w.x_size;
  int32_t from[LONG_TAPS], to[LONG_TAPS];
  for (int32_t r = 0; r < stride[2]; r++)
    ew_window_range(&l->w, 2, (int64_t)r - pad[2], &from[r], &to[r]);
  real *part = l->x;
  for (int32_t rz = 0; rz < stride[0]; rz++)
    for (int32_t ry = 0; ry < stride[1]; ry++, part += stride[2] * l->part)
      for (int32_t iz = 0; iz < size[0]; iz++) {
        const int64_t z = iz * (int64_t)stride[0] + rz - pad[0];
        if (z < 0 || z >= x_size[0]) continue;
        for (int32_t iy = 0; iy < size[1]; iy++) {
          const int64_t y = iy * (int64_t)stride[1] + ry - pad[1];
          if (y < 0 || y >= x_size[1]) continue;
          const real *row = x + (z * x_size[1] + y) * x_size[2] - pad[2];
          real *line = part + ((int64_t)iz * size[1] + iy) * l->pitch;
          for (int32_t r = 0; r < stride[2]; r++, line += l->part)
            if (from[r] < to[r])
              ew_every(line + from[r], row + from[r] * (int64_t)stride[2] + r, stride[2],
                       to[r] - from[r]);
        }
      }
}
/* Adds the parts to a plane of x. */
static __attribute__((noinline)) void add_parts(const long_rows *l, real *x) {
  for (int64_t i = 0; i < l->parts; i++)
    patches(&l->w, x, 0, ew_place_of(i, l->w.taps), (ew_place){0, 0, 0}, (int32_t)l->part,
            l->x + i * l->part, true);
}
/* Copies between a plane of y and its long row, whose gaps are 0. */
static __attribute__((noinline)) void lines_of(const long_rows *l, const convolution *s, real *y,
                                               bool out) {
  for (int32_t z = 0; z < s->w.y_size[0]; z++)
    for (int32_t i = 0; i < s->w.y_size[1]; i++) {
      real *row = l->y + ((int64_t)z * l->y_size[1] + i) * l->pitch;
      ew_every(out ? y : row, out ? row : y, 1, s->w.y_size[2]);
      y += s->w.y_size[2];
      if (!out) {
        if (row + l->pitch <= l->y + l->row)
          EW_PLAIN_FOR (int64_t j = s->w.y_size[2]; j < l->pitch; j++) row[j] = 0;
      }
    }
  for (int32_t z = 0; !out && z + 1 < s->w.y_size[0]; z++) /* gaps after the rows of a slice */
    zero(l->y + ((int64_t)z * l->y_size[1] + s->w.y_size[1]) * l->pitch,
         (int64_t)(l->y_size[1] - s->w.y_size[1]) * l->pitch, 0);
}

/* Sums over taps, of `vectors` vectors from position j on, starting at `start` or, if NULL, at the
 * current values. */
EW_INLINE void long_sums(int vectors, const long_rows *l, int64_t j, int64_t taps, const real *w,
                         const float *start, const ew_bounds *limit) {
  vf sum[8];
  for (int u = 0; u < vectors; u++) sum[u] = start ? vf_splat(*start) : vf_load(l->y + j + u * VF);
  for (int64_t t = 0; t < taps; t++) {
    const vf k = vf_load_splat(w + t);
    const real *x = l->x + l->offset[t] + j;
    for (int u = 0; u < vectors; u++) sum[u] = vf_fma(vf_load(x + u * VF), k, sum[u]);
  }
  for (int u = 0; u < vectors; u++) vf_store(l->y + j + u * VF, ew_bounded(limit, sum[u]));
}
static __attribute__((noinline)) void long_forward(const long_rows *l, int64_t taps, const real *w,
                                                   const float *start, const ew_bounds *limit) {
  int64_t j = 0;
  /* enough independent sums to hide the latency of a multiply-add */
  for (; j + AT_ONCE < l->row; j += 2 * AT_ONCE) long_sums(8, l, j, taps, w, start, limit);
  if (j < l->row) long_sums(4, l, j, taps, w, start, limit);
}

/* ---- y = w * x ---- */

static void direct_task(void *arg, int32_t index, int32_t thread) {
  const convolution *s = arg;
  int64_t floats = EW_GEMM_B_FLOATS / s->threads;
  long_rows l;
  const bool three = s->c == 1 && ew_is_depthwise(&s->w),
             in_long_rows = !three && long_rows_of(s, s->scratch + floats * thread, floats, &l);
  EACH_PIECE(i) { /* (item, group, m) */
    int64_t gm = i % ((int64_t)s->groups * s->m), item = i / ((int64_t)s->groups * s->m);
    planes p = {.y = s->y + i * s->y_volume};
    ew_finish f = s->finish;
    ew_bounds none = ew_bounds_of(EW_ACTIVATION_NONE), limit = ew_bounds_of(f.activation);
    const float start = f.bias ? f.bias[gm] : 0;
    if (three)
      ew_depthwise_forward(&s->w, plane_of_x(s, item, gm / s->m), s->weights + gm * s->taps, start,
                           &limit, p.y);
    else if (!in_long_rows)
      zero(p.y, s->y_volume, start);
    for (int32_t c = three ? s->c : 0; c < s->c && !ew_stopping(s->context); c++) {
      p.x = plane_of_x(s, item, gm / s->m * s->c + c), p.w = s->weights + (gm * s->c + c) * s->taps;
      if (in_long_rows)
        into_parts(&l, p.x),
            long_forward(&l, s->taps, p.w, c ? NULL : &start, c + 1 < s->c ? &none : &limit);
      else
        ew_window_rows(s->context, &s->w, forward_row, &p);
    }
    if (in_long_rows) lines_of(&l, s, p.y, true);
    f.bias = NULL;
    if (f.residual) f.residual += i * s->y_volume;
    if (f.residual || limit.dear || (f.activation && !in_long_rows && !three))
      ew_finish_row(&f, p.y, p.y, 0, 0, (int32_t)s->y_volume, 0);
  }
}

/* Pieces are (item, group, rows of y's matrix, columns). Each thread packs what it multiplies:
 * threads synchronize once, and a thread reads only what it has written. */
static void product_task(void *arg, int32_t index, int32_t thread) {
  const convolution *s = arg;
  const int64_t b_floats = EW_GEMM_B_FLOATS / s->threads, k = s->c * s->taps;
  EACH_PIECE(i) {
    const int64_t item = i / s->row_blocks / s->blocks, g = item % s->groups;
    const int32_t row = (int32_t)(i / s->blocks % s->row_blocks) * s->rows,
                  from = (int32_t)(i % s->blocks) * s->block;
    const int64_t at = (item * s->m + row) * s->y_volume + from;
    patch_layout layout = {s->w, s->x_volume, 0, s->taps, from};
    ew_gemm_job job = {.m = at_most(s->m - row, s->rows),
                       .n = at_most(s->y_volume - from, s->block),
                       .k = (int32_t)k,
                       .a_row = (int32_t)k,
                       .a_col = 1,
                       .y_row = (int32_t)s->y_volume,
                       .a = s->weights + (g * s->m + row) * k,
                       .y = s->y + at,
                       .finish = s->finish,
                       .pack_b = pack_positions,
                       .b = plane_of_x(s, item / s->groups, g * s->c),
                       .b_more = &layout};
    if (job.m <= 0 || job.n <= 0) continue;
    if (job.finish.bias) job.finish.bias += g * s->m + row;
    if (job.finish.residual) job.finish.residual += at;
    /* The rows of a are contiguous, so nothing is packed; the size only determines how many of them
     * to keep in cache. */
    ew_gemm_run(s->context, &job, s->scratch + b_floats * thread, b_floats, s->scratch,
                EW_GEMM_A_FLOATS, 1);
  }
}

/* Number of blocks of `length` for each of `items`, such that threads can balance their load: a
 * multiple of `threads` if there is enough work. */
static int32_t blocks_for(int64_t items, int32_t length, int32_t least, int32_t threads) {
  const int64_t wanted = (4 * (int64_t)threads - 1) / items + 1;
  int32_t n = at_most(length / least, wanted < 1 ? 1 : (int32_t)wanted);
  return threads == 1 || n < 1 ? 1 : n > threads ? n - n % threads : n;
}

int32_t ew_k_conv(ew_context *ctx, const ew_conv_params *p, void *const *operand) {
  convolution s = CONVOLUTION(p);
  s.x = operand[EW_CONV_X], s.weights = operand[EW_CONV_W], s.y = operand[EW_CONV_Y],
  s.scratch = operand[EW_CONV_SCRATCH];
  s.finish = (ew_finish){.bias = operand[EW_CONV_BIAS],
                         .residual = operand[EW_CONV_RESIDUAL],
                         .activation = p->activation,
                         .alpha = 1,
                         .beta = 1};
  int64_t items = (int64_t)s.batch * s.groups;
  double each = (double)(s.c * s.taps) * (double)s.y_volume;
  if ((s.m >= FEW_CHANNELS || s.groups == 1) && ew_conv_few_positions(ctx, p, operand))
    return EW_OK;
  if (s.m < FEW_CHANNELS) {
    in_parallel(ctx, &s, items * s.m, each, direct_task);
    return EW_OK;
  }
  s.finish.bias_row = 1;
  /* Columns are divided first, since blocks of rows would each pack the same columns; rows are
   * divided if there are few columns. */
  int32_t blocks = blocks_for(items, (int32_t)s.y_volume, 8 * NR, s.threads),
          rows =
              items * blocks >= s.threads ? 1 : at_most(up_to(s.threads, blocks), up_to(s.m, MR));
  s.block = up_to(up_to(s.y_volume, blocks), NR) * NR, s.blocks = up_to(s.y_volume, s.block);
  s.rows = up_to(up_to(s.m, rows), MR) * MR, s.row_blocks = up_to(s.m, s.rows);
  in_parallel(ctx, &s, items * s.blocks * s.row_blocks, each * s.m / s.blocks / s.row_blocks,
              product_task);
  return EW_OK;
}

/* ---- x = w transposed * y ---- */

static void transpose_direct_task(void *arg, int32_t index, int32_t thread) {
  const convolution *s = arg;
  int64_t floats = EW_GEMM_B_FLOATS / s->threads;
  long_rows l;
  bool in_long_rows = long_rows_of(s, s->scratch + floats * thread, floats, &l);
  EACH_PIECE(i) { /* (item, group, c) */
    int64_t gc = i % ((int64_t)s->groups * s->c), item = i / ((int64_t)s->groups * s->c),
            g = gc / s->c;
    planes p = {.x = s->x + i * s->x_volume};
    zero(p.x, s->x_volume, s->bias ? s->bias[gc] : 0);
    if (in_long_rows) zero(l.x, l.part * l.parts, 0);
    for (int64_t m = g * s->m; m < (g + 1) * s->m && !ew_stopping(s->context); m++) {
      p.y = s->y + (item * s->groups * s->m + m) * s->y_volume,
      p.w = s->weights + (m * s->c + gc % s->c) * s->taps;
      if (!in_long_rows) {
        ew_window_rows(s->context, &s->w, transpose_row, &p);
        continue;
      }
      lines_of(&l, s, p.y, false);
      planes whole = {.x = l.x, .w = p.w, .y = l.y};
      for (int32_t t = 0; t < s->taps; t++)
        transpose_row(&whole, whole_row(&l), l.offset[t], 1, 0, t);
    }
    if (in_long_rows) add_parts(&l, p.x);
  }
}

enum { COLUMN_FLOATS = 131072 };

/* One block of channels: multiplies their taps with a range of positions, then adds the row of each
 * tap to its place in x. */
static void transpose_task(void *arg, int32_t index, int32_t thread) {
  const convolution *s = arg;
  static const int32_t one[3] = {1, 1, 1}, none[3] = {0};
  int64_t b_floats = EW_GEMM_B_FLOATS / s->threads, a_floats = EW_GEMM_A_FLOATS / s->threads,
          share = COLUMN_FLOATS / s->threads;
  real *packed_b = s->scratch + b_floats * thread,
       *packed_a = s->scratch + EW_GEMM_B_FLOATS + a_floats * thread,
       *columns = s->scratch + EW_GEMM_B_FLOATS + EW_GEMM_A_FLOATS + share * thread;
  patch_layout layout = {{s->w.y_size, s->w.y_size, one, one, one, none}, s->y_volume, 0, 1, 0};
  EACH_PIECE(i) { /* (item, group, block) */
    int64_t ig = i / s->blocks, g = ig % s->groups, item = ig / s->groups, k = s->c * s->taps;
    int32_t c0 = (int32_t)(i % s->blocks) * s->block, channels = at_most(s->c - c0, s->block);
    int32_t rows = (int32_t)(channels * s->taps), n = at_most(share / rows, (int32_t)s->y_volume);
    if (n > NR) n -= n % NR;
    real *x = s->x + ((item * s->groups + g) * s->c + c0) * s->x_volume;
    for (int32_t c = 0; c < channels; c++)
      zero(x + c * s->x_volume, s->x_volume, s->bias ? s->bias[g * s->c + c0 + c] : 0);
    for (int64_t j = 0; j < s->y_volume; j += n) {
      int32_t count = at_most(s->y_volume - j, n);
      layout.first = j;
      ew_gemm_job job = {.m = rows,
                         .n = count,
                         .k = s->m,
                         .a_row = 1,
                         .a_col = (int32_t)k,
                         .y_row = count,
                         .a = s->weights + g * s->m * k + c0 * s->taps,
                         .y = columns,
                         .finish = {.alpha = 1},
                         .pack_b = pack_positions,
                         .b = s->y + ig * s->m * s->y_volume,
                         .b_more = &layout};
      ew_gemm_run(s->context, &job, packed_b, b_floats, packed_a, a_floats, 1);
      for (int32_t r = 0; r < rows; r++)
        patches(&s->w, x + r / s->taps * s->x_volume, 0, ew_place_of(r % s->taps, s->w.taps),
                ew_place_of(j, s->w.y_size), count, columns + (int64_t)r * count, true);
    }
  }
}

int32_t ew_k_conv_transpose(ew_context *ctx, const ew_conv_transpose_params *p,
                            void *const *operand) {
  convolution s = CONVOLUTION(p);
  s.x = operand[EW_CONV_TRANSPOSE_X], s.weights = operand[EW_CONV_TRANSPOSE_W],
  s.y = operand[EW_CONV_TRANSPOSE_Y], s.scratch = operand[EW_CONV_TRANSPOSE_SCRATCH];
  s.bias = operand[EW_CONV_TRANSPOSE_BIAS];
  int64_t items = (int64_t)s.batch * s.groups;
  double each = (double)(s.m * s.taps) * (double)s.y_volume;
  if (s.m < FEW_CHANNELS || s.taps > MOST_TAPS / s.threads) {
    in_parallel(ctx, &s, items * s.c, each, transpose_direct_task);
    return EW_OK;
  }
  s.block = at_most(256 / s.taps + 1, s.c), s.blocks = up_to(s.c, s.block);
  in_parallel(ctx, &s, items * s.blocks, each * s.block, transpose_task);
  return EW_OK;
}

/* ---- gradient with respect to the weights ---- */

static void weight_direct_task(void *arg, int32_t index, int32_t thread) {
  const convolution *s = arg;
  int64_t floats = EW_GEMM_B_FLOATS / s->threads;
  long_rows l;
  const bool three = ew_is_depthwise(&s->w),
             in_long_rows = !three && long_rows_of(s, s->scratch + floats * thread, floats, &l);
  EACH_PIECE(i) { /* (group, m, c) */
    int64_t gm = i / s->c;
    planes p = {.w = s->weights + i * s->taps};
    zero(p.w, s->taps, 0);
    for (int64_t item = 0; item < s->batch && !ew_stopping(s->context); item++) {
      p.x = plane_of_x(s, item, gm / s->m * s->c + i % s->c),
      p.y = s->y + (gm * s->batch + item) * s->y_volume;
      if (three)
        ew_depthwise_by_weights(&s->w, p.x, p.y, p.w);
      else if (!in_long_rows)
        ew_window_rows(s->context, &s->w, weight_row, &p);
      if (!in_long_rows) continue;
      into_parts(&l, p.x), lines_of(&l, s, p.y, false);
      planes whole = {.x = l.x, .w = p.w, .y = l.y};
      for (int32_t t = 0; t < s->taps; t++) weight_row(&whole, whole_row(&l), l.offset[t], 1, 0, t);
    }
  }
}

/* Pieces are (group, columns). */
static void weight_task(void *arg, int32_t index, int32_t thread) {
  const convolution *s = arg;
  const int64_t b_floats = EW_GEMM_B_FLOATS / s->threads, n = s->c * s->taps,
                k = s->batch * s->y_volume;
  EACH_PIECE(i) {
    const int64_t g = i / s->blocks, from = i % s->blocks * s->block;
    patch_layout layout = {s->w, s->x_volume, s->x_batch, s->taps, from};
    ew_gemm_job job = {.m = s->m,
                       .n = at_most(n - from, s->block),
                       .k = (int32_t)k,
                       .a_row = (int32_t)k,
                       .a_col = 1,
                       .y_row = (int32_t)n,
                       .a = s->y + g * s->m * k,
                       .y = s->weights + g * s->m * n + from,
                       .finish = {.alpha = 1},
                       .pack_b = pack_taps,
                       .b = plane_of_x(s, 0, g * s->c),
                       .b_more = &layout};
    ew_gemm_run(s->context, &job, s->scratch + b_floats * thread, b_floats, s->scratch,
                EW_GEMM_A_FLOATS, 1);
  }
}

int32_t ew_k_conv_weight_grad(ew_context *ctx, const ew_conv_weight_grad_params *p,
                              void *const *operand) {
  convolution s = CONVOLUTION(p);
  s.x = operand[EW_CONV_WEIGHT_GRAD_X], s.weights = operand[EW_CONV_WEIGHT_GRAD_DW],
  s.y = operand[EW_CONV_WEIGHT_GRAD_DY], s.scratch = operand[EW_CONV_WEIGHT_GRAD_SCRATCH];
  double each = (double)(s.batch * s.y_volume) * (double)s.taps;
  if (s.m < FEW_CHANNELS)
    in_parallel(ctx, &s, (int64_t)s.groups * s.m * s.c, each, weight_direct_task);
  else {
    const int32_t blocks = blocks_for(s.groups, (int32_t)(s.c * s.taps), 2 * NR, s.threads);
    s.block = up_to(up_to(s.c * s.taps, blocks), NR) * NR, s.blocks = up_to(s.c * s.taps, s.block);
    in_parallel(ctx, &s, (int64_t)s.groups * s.blocks, each * s.m * s.c / s.blocks, weight_task);
  }
  return EW_OK;
}
