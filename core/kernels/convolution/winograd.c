/* Convolution with 3 x 3 taps and stride 1 in 4/9 of the multiplications (Winograd 1980; Lavin,
 * Gray 2016, F(2 x 2, 3 x 3)). y is divided into tiles of 2 x 2, each of which reads 4 x 4 elements
 * of x. With
 *
 *     B' = 1  0 -1  0      A' = 1  1  1  0      G =  1    0    0
 *          0  1  1  0           0  1 -1 -1          1/2  1/2  1/2
 *          0 -1  1  0                               1/2 -1/2  1/2
 *          0  1  0 -1                                0    0    1
 *
 * y = A' (sum over channels of (G w G') * (B' x B)) A, where * is elementwise: 16 matrix products,
 * one per element of the 4 x 4 tile. The weights arrive transformed, as u = G w G'. All elements of
 * A and B are 0, 1 or -1, so the loss of precision is about that of summing in another order.
 *
 * Tasks are channels (transform of x), then blocks of rows and tiles (products and transform of y).
 * Transforms are computed for four tiles at a time, one per lane. */
#include "kernels/product/gemm.h"
#include "kernels/convolution/window.h"

/* PLACES: elements of a transformed tile; X_FLOATS, SUM_FLOATS: scratch for transformed x and for
 * sums; SUMS: floats of sums per task; AT_ONCE: tiles transformed at a time */
enum { PLACES = 16, X_FLOATS = 262144, SUM_FLOATS = 131072 + 16384, SUMS = 16384, AT_ONCE = 4 };
/* Padding in floats between the 16 elements of the transformed tiles, which are read and written
 * together. Without it they are often a multiple of 4096 bytes apart and evict each other from the
 * L1 cache. */
enum { APART = 16 };

EW_INLINE int32_t at_most(int64_t x, int32_t limit) { return x < limit ? (int32_t)x : limit; }
EW_INLINE int32_t up_to(int64_t x, int32_t step) { return (int32_t)((x - 1) / step + 1); }

typedef struct {
  ew_window w; /* y_size is rounded up to whole tiles */
  const int32_t *y_size;
  int32_t m, c, across, tiles; /* tiles per item, `across` of them in a row */
  int64_t x_batch, x_volume, y_volume;
  int64_t first;                     /* first tile of the block, counted over all items */
  int32_t n, panels, channels;       /* tiles of the block, panels they fill, channels per task */
  int32_t rows, row_blocks, columns; /* rows of m and tiles per task */
  const real *x, *u;
  /* seen: B' x B as [16][panels][c][NR]; sums: per thread [16][rows][columns]; the 16 parts are
   * APART floats further apart than their size */
  real *y, *seen, *sums;
  int64_t sums_share;
  ew_finish finish;
} winograd;

/* d[0..3] = B' d */
EW_INLINE void seen_along(f32x4 *d, int step) {
  const f32x4 a = d[0], b = d[step], c = d[2 * step], e = d[3 * step];
  d[0] = a - c, d[step] = b + c, d[2 * step] = c - b, d[3 * step] = b - e;
}

/* Transforms four tiles whose input patches begin at p[0..3] with row stride `pitch`: columns t ..
 * t + 3 of the block, of which `left` exist. */
static __attribute__((noinline)) void see(const winograd *s, const real *const p[AT_ONCE],
                                          int32_t pitch, int32_t t, int32_t left, int32_t channel) {
  f32x4 d[PLACES];
  for (int r = 0; r < 4; r++) {
    f32x4 *row = d + 4 * r;
    for (int i = 0; i < 4; i++) row[i] = *(const f32x4_m *)(p[i] + r * pitch);
    f32x4_transpose(&row[0], &row[1], &row[2], &row[3]);
    seen_along(row, 1);
  }
  const int64_t place = (int64_t)s->panels * s->c * NR + APART;
  for (int i = 0; i < 4; i++) seen_along(d + i, 4);
  real *to = s->seen + ((int64_t)(t / NR) * s->c + channel) * NR + t % NR;
  if (t % NR <= NR - AT_ONCE)
    for (int i = 0; i < PLACES; i++) *(f32x4_m *)(to + i * place) = d[i];
  else /* the tiles lie in two panels */
    for (int i = 0; i < PLACES; i++)
      for (int j = 0; j < AT_ONCE && j < left; j++)
        to[i * place + j + (t % NR + j >= NR ? (s->c - 1) * (int64_t)NR : 0)] = d[i][j];
}

#if VF > 4
/* With vectors of more than four lanes, VF adjacent tiles of a row are transformed together, from
 * the even and the odd columns. */
#  if VF == 16
#    define EVERY_OTHER(a, b, o)                                                                   \
      __builtin_shufflevector(a, b, o, 2 + o, 4 + o, 6 + o, 8 + o, 10 + o, 12 + o, 14 + o, 16 + o, \
                              18 + o, 20 + o, 22 + o, 24 + o, 26 + o, 28 + o, 30 + o)
#    define IN_TURN(a, b, o)                                                                       \
      __builtin_shufflevector(a, b, o, 16 + o, 1 + o, 17 + o, 2 + o, 18 + o, 3 + o, 19 + o, 4 + o, \
                              20 + o, 5 + o, 21 + o, 6 + o, 22 + o, 7 + o, 23 + o)
#  else
#    define EVERY_OTHER(a, b, o) \
      __builtin_shufflevector(a, b, o, 2 + o, 4 + o, 6 + o, 8 + o, 10 + o, 12 + o, 14 + o)
#    define IN_TURN(a, b, o) \
      __builtin_shufflevector(a, b, o, 8 + o, 1 + o, 9 + o, 2 + o, 10 + o, 3 + o, 11 + o)
#  endif

/* `see` for VF adjacent tiles of a row that lie in one panel; p: input patch of the first one. */
static __attribute__((noinline)) void see_wide(const winograd *s, const real *p, int32_t pitch,
                                               int32_t t, int32_t channel) {
  vf d[4][4];
  for (int r = 0; r < 4; r++, p += pitch) {
    const vf a = vf_load(p), b = vf_load(p + VF), c = vf_load(p + 2), e = vf_load(p + 2 + VF);
    const vf x0 = EVERY_OTHER(a, b, 0), x1 = EVERY_OTHER(a, b, 1), x2 = EVERY_OTHER(c, e, 0),
             x3 = EVERY_OTHER(c, e, 1);
    d[r][0] = x0 - x2, d[r][1] = x1 + x2, d[r][2] = x2 - x1, d[r][3] = x1 - x3;
  }
  const int64_t place = (int64_t)s->panels * s->c * NR + APART;
  real *to = s->seen + ((int64_t)(t / NR) * s->c + channel) * NR + t % NR;
  for (int i = 0; i < 4; i++, to += place) {
    vf_store(to, d[0][i] - d[2][i]), vf_store(to + 4 * place, d[1][i] + d[2][i]);
    vf_store(to + 8 * place, d[2][i] - d[1][i]), vf_store(to + 12 * place, d[1][i] - d[3][i]);
  }
}

/* `write_tiles` for VF adjacent tiles of a row whose outputs lie completely inside y; limit: bounds
 * of an activation that is not `dear`. */
static __attribute__((noinline)) void write_wide(const winograd *s, const real *sums, int32_t row,
                                                 int64_t from, const ew_bounds *limit) {
  vf v[2][4];
  const int64_t place = (int64_t)s->rows * s->columns + APART;
  const int32_t width = s->y_size[2];
  for (int j = 0; j < 4; j++) {
    vf d[4];
    for (int i = 0; i < 4; i++) d[i] = vf_load(sums + (4 * i + j) * place);
    v[0][j] = d[0] + d[1] + d[2], v[1][j] = d[1] - d[2] - d[3];
  }
  const float bias = s->finish.bias ? s->finish.bias[row] : 0;
  for (int i = 0; i < 2; i++) {
    const vf left = v[i][0] + v[i][1] + v[i][2], right = v[i][1] - v[i][2] - v[i][3];
    vf z[2] = {IN_TURN(left, right, 0), IN_TURN(left, right, VF / 2)};
    for (int h = 0; h < 2; h++) {
      const int64_t to = from + i * width + h * VF;
      z[h] = ew_bounded(limit, z[h] + bias);
      vf_store(s->y + to, s->finish.residual ? z[h] + vf_load(s->finish.residual + to) : z[h]);
    }
  }
}
#endif

static void see_task(void *arg, int32_t index, int32_t thread) {
  const winograd *s = arg;
  real area[EW_BOX_FLOATS];
  (void)thread;
  for (int32_t channel = index * s->channels, end = channel + at_most(s->c - channel, s->channels);
       channel < end; channel++)
    for (int32_t t = 0; t < s->n;) {
      /* rows of tiles of one item, as many as fit */
      const int64_t tile = s->first + t, item = tile / s->tiles;
      const int32_t at = (int32_t)(tile % s->tiles), line = at / s->across, width = s->w.y_size[2];
      ew_window_box box = {.at = area};
      int32_t lines = up_to(at % s->across + s->n - t, s->across);
      lines = at_most(s->tiles / s->across - line, lines);
      while (!ew_box_of(&s->w, (int64_t)2 * line * width, 2 * lines * width, &box) && lines > 1)
        lines = up_to(lines, 2);
      ew_fill_box(&box, s->x + item * s->x_batch + channel * s->x_volume);
      const int32_t stop = t + at_most((line + lines) * s->across - at, s->n - t);
      for (int32_t i = at; t < stop; t += AT_ONCE, i += AT_ONCE) {
        const real *p[AT_ONCE];
#if VF > 4
        for (int32_t column = i % s->across;
             column + VF <= s->across && t + VF <= stop && t % NR <= NR - VF;
             column += VF, t += VF, i += VF)
          see_wide(s, area + (int64_t)2 * (i / s->across - line) * box.pitch + 2 * column,
                   box.pitch, t, channel);
        if (t >= stop) break;
#endif
        const int32_t left = stop - t;
        for (int j = 0; j < AT_ONCE; j++) {
          const int32_t k = i + at_most(j, left - 1);
          p[j] = area + (int64_t)2 * (k / s->across - line) * box.pitch + 2 * (k % s->across);
        }
        see(s, p, box.pitch, t, left, channel);
      }
      t = stop;
    }
}

/* Transforms four tiles of row r of the sums, from tile t of the block on, into y. */
static __attribute__((noinline)) void write_tiles(const winograd *s, const real *sums, int32_t row,
                                                  int32_t t, int32_t left) {
  f32x4 v[2][4], out[2][2];
  const int64_t place = (int64_t)s->rows * s->columns + APART, tile = s->first + t,
                item = tile / s->tiles;
  for (int j = 0; j < 4; j++) {
    f32x4 d[4];
    for (int i = 0; i < 4; i++) d[i] = *(const f32x4_m *)(sums + (4 * i + j) * place);
    v[0][j] = d[0] + d[1] + d[2], v[1][j] = d[1] - d[2] - d[3];
  }
  for (int i = 0; i < 2; i++)
    out[i][0] = v[i][0] + v[i][1] + v[i][2], out[i][1] = v[i][1] - v[i][2] - v[i][3];
  const ew_finish *f = &s->finish;
  const ew_bounds limit = ew_bounds_of(f->activation);
  const int32_t at = (int32_t)(tile % s->tiles), width = s->y_size[2], y0 = at / s->across * 2,
                x0 = at % s->across * 2;
  const int64_t plane = (item * s->m + row) * s->y_volume, from = plane + (int64_t)y0 * width + x0;
  const bool whole = at % s->across + AT_ONCE <= s->across && left >= AT_ONCE &&
                     x0 + 2 * AT_ONCE <= width && y0 + 2 <= s->y_size[1] && !limit.dear;
  const float bias = f->bias ? f->bias[row] : 0;
  float part[2][2 * AT_ONCE];
  for (int i = 0; i < 2; i++)
    for (int h = 0; h < 2; h++) {
      f32x4 z = h ? __builtin_shufflevector(out[i][0], out[i][1], 2, 6, 3, 7)
                  : __builtin_shufflevector(out[i][0], out[i][1], 0, 4, 1, 5);
      real *to = part[i] + 4 * h;
      z += bias;
      if (whole) {
        /* as ew_bounded, for four lanes */
        const f32x4 low = {limit.low[0], limit.low[0], limit.low[0], limit.low[0]},
                    high = {limit.high[0], limit.high[0], limit.high[0], limit.high[0]};
        i32x4 below = z < low;
        z = (f32x4)((below & (i32x4)low) | (~below & (i32x4)z));
        i32x4 above = high < z;
        z = (f32x4)((above & (i32x4)high) | (~above & (i32x4)z));
        to = s->y + from + i * width + 4 * h;
        if (f->residual) z += (f32x4) * (const f32x4_m *)(f->residual + from + i * width + 4 * h);
      }
      *(f32x4_m *)to = z;
    }
  if (whole) return;
  const ew_finish activation = {.activation = f->activation, .alpha = 1, .beta = 1};
  ew_finish_row(&activation, part[0], part[0], 0, 0, 4 * AT_ONCE, 0);
  for (int32_t j = 0; j < AT_ONCE && j < left; j++) {
    const int64_t k = tile + j, in = k % s->tiles, y = in / s->across * 2, x = in % s->across * 2;
    const int64_t base = (k / s->tiles * s->m + row) * s->y_volume + y * width + x;
    for (int i = 0; i < 4; i++) {
      const int64_t to = base + i / 2 * width + i % 2;
      if (y + i / 2 < s->y_size[1] && x + i % 2 < width)
        s->y[to] = part[i / 2][2 * j + i % 2] + (f->residual ? f->residual[to] : 0);
    }
  }
}

static void product_task(void *arg, int32_t index, int32_t thread) {
  const winograd *s = arg;
  const int32_t row = index % s->row_blocks * s->rows, rows = at_most(s->m - row, s->rows),
                t = index / s->row_blocks * s->columns, n = at_most(s->n - t, s->columns);
  real *sums = s->sums + s->sums_share * thread;
#if VF > 4
  const ew_bounds limit = ew_bounds_of(s->finish.activation);
#endif
  for (int32_t i = 0; i < PLACES; i++)
    for (int32_t j = 0; j < n; j += NR)
      for (int32_t r = 0, tiles; r < rows; r += tiles * MR) {
        /* the last rows are counted from the end; some are computed again */
        const int32_t at = rows - r >= MR ? row + r : s->m - MR < row ? row : s->m - MR;
        const real *b = s->seen + i * ((int64_t)s->panels * s->c * NR + APART) +
                        (int64_t)((t + j) / NR) * s->c * NR,
                   *a = s->u + ((int64_t)i * s->m + at) * s->c;
        real *to = sums + i * ((int64_t)s->rows * s->columns + APART) +
                   (int64_t)(at - row) * s->columns + j;
        tiles = rows - r < MR ? 1 : ew_tiles_of(rows - r);
        if (s->m - at >= MR)
          ew_tiles(tiles, s->c, a, s->c, b, to, s->columns, NULL);
        else {
          const real *each[MR];
          for (int k = 0; k < MR; k++) each[k] = a + (int64_t)at_most(k, s->m - at - 1) * s->c;
          ew_tile_of(s->c, each, b, to, s->columns, NULL);
        }
      }
  for (int32_t r = 0; r < rows; r++)
    for (int32_t j = 0; j < n; j += AT_ONCE) {
      const real *from = sums + (int64_t)r * s->columns + j;
#if VF > 4
      const int64_t tile = s->first + t + j;
      const int32_t at = (int32_t)(tile % s->tiles), y0 = at / s->across * 2,
                    x0 = at % s->across * 2;
      if (!limit.dear && j + VF <= n && x0 + 2 * VF <= s->y_size[2] && y0 + 2 <= s->y_size[1]) {
        write_wide(s, from, row + r,
                   (tile / s->tiles * s->m + row + r) * s->y_volume + (int64_t)y0 * s->y_size[2] +
                       x0,
                   &limit);
        j += VF - AT_ONCE;
        continue;
      }
#endif
      write_tiles(s, from, row + r, t + j, n - j);
    }
}

int32_t ew_k_conv_winograd(ew_context *ctx, const ew_conv_winograd_params *p,
                           void *const *operand) {
  static const int32_t taps[3] = {1, 3, 3}, one[3] = {1, 1, 1};
  const int32_t threads = ew_parallel_width(ctx),
                whole[3] = {1, p->y_size[1] + p->y_size[1] % 2, p->y_size[2] + p->y_size[2] % 2};
  winograd s = {.w = {p->x_size, whole, taps, one, one, p->pad},
                .y_size = p->y_size,
                .m = p->m,
                .c = p->c,
                .across = whole[2] / 2,
                .tiles = whole[1] / 2 * (whole[2] / 2),
                .x_batch = p->x_batch,
                .x_volume = ew_volume(p->x_size),
                .y_volume = ew_volume(p->y_size),
                .x = operand[EW_CONV_WINOGRAD_X],
                .u = operand[EW_CONV_WINOGRAD_U],
                .y = operand[EW_CONV_WINOGRAD_Y],
                .finish = {.bias = operand[EW_CONV_WINOGRAD_BIAS],
                           .residual = operand[EW_CONV_WINOGRAD_RESIDUAL],
                           .activation = p->activation}};
  s.seen = operand[EW_CONV_WINOGRAD_SCRATCH], s.sums = s.seen + X_FLOATS + PLACES * APART,
  s.sums_share = SUM_FLOATS / threads;
  const int64_t all = (int64_t)p->batch * s.tiles, most = X_FLOATS / PLACES / p->c / NR * NR;
  const int32_t share = at_most(s.sums_share - PLACES * APART, SUMS);
  s.rows = at_most(share / PLACES / NR / MR * MR, at_most(4 * MR, up_to(s.m, MR) * MR));
  s.row_blocks = up_to(s.m, s.rows), s.rows = up_to(up_to(s.m, s.row_blocks), MR) * MR,
  s.row_blocks = up_to(s.m, s.rows);
  s.channels = threads == 1 ? s.c : up_to(s.c, 4 * threads);
  /* blocks of nearly equal size */
  const int64_t block = up_to(up_to(all, up_to(all, (int32_t)most)), NR) * (int64_t)NR;
  for (; s.first < all; s.first += block) {
    s.n = at_most(all - s.first, (int32_t)block), s.panels = up_to(s.n, NR);
    const int32_t parts = up_to(s.panels, share / PLACES / s.rows / NR);
    s.columns = up_to(s.panels, parts) * NR;
    ew_parallel(ctx, up_to(s.c, s.channels), see_task, &s);
    ew_parallel(ctx, s.row_blocks * up_to(s.n, s.columns), product_task, &s);
  }
  return EW_OK;
}
