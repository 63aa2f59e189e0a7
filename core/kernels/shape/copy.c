/* Strided copy of up to six dimensions: Transpose, Slice, Expand, Concat, Split.
 *
 * Adjacent contiguous dimensions are merged. The two innermost dimensions are copied as contiguous
 * rows, as a transpose in tiles (elements of 1, 2 or 4 bytes, vectorized), or one element at a
 * time. Tasks are ranges of strips of the outer dimensions. */
#include "kernels/elementwise/each.h"
#include <string.h>

enum { TILE = 16, LINE = 64 }; /* elements; bytes of a cache line */

typedef struct {
  ew_context *context;
  int nd;
  /* strides in elements; the last two dimensions are the inner loop */
  int64_t dims[6], xs[6], ys[6];
  const uint8_t *x;
  uint8_t *y;
  int32_t size;
  int64_t strips, strip; /* dimension nd - 2 is cut into `strips` strips of `strip` elements */
  int64_t units, per_task;
} copy;

/* Block size in elements, along rows of y and along rows of x, that is transposed in registers. */
static inline intptr_t edge_of_y(int32_t size) { return size == 1 ? 8 : 4; }
static inline intptr_t edge_of_x(int32_t size) { return size == 4 ? 4 : 8; }

/* Transposes four rows of eight elements; each result vector holds two columns. */
EW_INLINE void u16x8_transpose(u16x8 v[4]) {
  const u16x8 ab = __builtin_shufflevector(v[0], v[1], 0, 8, 1, 9, 2, 10, 3, 11),
              AB = __builtin_shufflevector(v[0], v[1], 4, 12, 5, 13, 6, 14, 7, 15);
  const u16x8 cd = __builtin_shufflevector(v[2], v[3], 0, 8, 1, 9, 2, 10, 3, 11),
              CD = __builtin_shufflevector(v[2], v[3], 4, 12, 5, 13, 6, 14, 7, 15);
  v[0] = __builtin_shufflevector(ab, cd, 0, 1, 8, 9, 2, 3, 10, 11),
  v[1] = __builtin_shufflevector(ab, cd, 4, 5, 12, 13, 6, 7, 14, 15);
  v[2] = __builtin_shufflevector(AB, CD, 0, 1, 8, 9, 2, 3, 10, 11),
  v[3] = __builtin_shufflevector(AB, CD, 4, 5, 12, 13, 6, 7, 14, 15);
}

/* y[i * yr + j] = x[i + j * xc] for whole blocks, through a tile on the stack, so that each cache
 * line is read and written once. Elements of 1, 2 or 4 bytes. */
static __attribute__((noinline)) void transpose(const uint8_t *x, uint8_t *y, intptr_t m,
                                                intptr_t n, intptr_t xc, intptr_t yr,
                                                int32_t size) {
  _Alignas(16) uint8_t tile[LINE][LINE];
  const intptr_t side = LINE / size, ie = edge_of_x(size), je = edge_of_y(size);
  xc *= size, yr *= size;
  for (intptr_t i0 = 0; i0 + ie <= m; i0 += side)
    for (intptr_t j0 = 0; j0 + je <= n; j0 += side) {
      const intptr_t is = (m - i0 < side ? m - i0 : side) & -ie,
                     js = (n - j0 < side ? n - j0 : side) & -je;
      for (intptr_t j = 0; j < js; j += je)
        EW_PLAIN_FOR (intptr_t i = 0; i < is; i += ie) {
          const uint8_t *from = x + (i0 + i) * size + (j0 + j) * xc;
          uint8_t *to = &tile[i][j * size];
          if (size == 4) {
            f32x4 v[4];
            for (int k = 0; k < 4; k++) v[k] = *(const f32x4_m *)(from + k * xc);
            f32x4_transpose(&v[0], &v[1], &v[2], &v[3]);
            for (int k = 0; k < 4; k++) *(f32x4 *)(to + k * LINE) = v[k];
          } else {
            u16x8 v[4];
            for (int k = 0; k < 4; k++, from += xc) {
              if (size == 2)
                v[k] = (u16x8) * (const u8x16_m *)from;
              else {
                const u8x8 even = *(const u8x8_m *)from, odd = *(const u8x8_m *)(from += xc);
                v[k] = (u16x8)__builtin_shufflevector(even, odd, 0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5,
                                                      13, 6, 14, 7, 15);
              }
            }
            u16x8_transpose(v);
            typedef int64_t i64x2 __attribute__((vector_size(16)));
            for (int k = 0; k < 8; k++) *(m_i64 *)(to + k * LINE) = ((i64x2)v[k / 2])[k % 2];
          }
        }
      for (intptr_t i = 0; i < is; i++) {
        uint8_t *to = y + (i0 + i) * yr + j0 * size;
        const uint8_t *line = tile[i];
        if (js == side)
          for (intptr_t j = 0; j < LINE; j += 16)
            *(u8x16_m *)(to + j) = *(const u8x16_m *)(line + j);
        else
          EW_PLAIN_FOR (intptr_t j = 0; j < js * size; j += 8)
            *(m_i64 *)(to + j) = *(const m_i64 *)(line + j);
      }
    }
}

static void copy_plane(const copy *c, const uint8_t *x, uint8_t *y, int64_t m, int64_t n) {
  const int64_t xr = c->xs[c->nd - 2], xc = c->xs[c->nd - 1], yr = c->ys[c->nd - 2],
                yc = c->ys[c->nd - 1];
  const int32_t size = c->size;
  if (xc == 1 && yc == 1) {
    for (int64_t i = 0; i < m; i++)
      memcpy(y + i * yr * size, x + i * xr * size, (size_t)(n * size));
    return;
  }
  const bool by_rows = xr == 1 && yc == 1;
  const int64_t ie = edge_of_x(size), je = edge_of_y(size), mb = m & -(by_rows ? ie : je),
                nb = n & -(by_rows ? je : ie);
  if (size <= 4 && mb && nb && (by_rows || (xc == 1 && yr == 1))) {
    transpose(x, y, (intptr_t)(by_rows ? m : n), (intptr_t)(by_rows ? n : m),
              (intptr_t)(by_rows ? xc : xr), (intptr_t)(by_rows ? yr : yc), size);
    /* the remaining columns and rows */
    if (nb < n) copy_plane(c, x + nb * xc * size, y + nb * yc * size, m, n - nb);
    x += mb * xr * size, y += mb * yr * size, m -= mb, n = nb;
  }
  /* tile only if the other dimension is contiguous in x or y */
  const int64_t j_tile = xr == 1 || yr == 1 ? LINE : n;
  for (int64_t i0 = 0; i0 < m; i0 += TILE)
    for (int64_t j0 = 0; j0 < n; j0 += j_tile)
      for (int64_t i = i0; i < m && i < i0 + TILE; i++) {
        const uint8_t *from = x + (i * xr + j0 * xc) * size;
        uint8_t *to = y + (i * yr + j0 * yc) * size, *const end =
                                                         to + (n - j0 < j_tile ? n - j0 : j_tile) *
                                                                  yc * size;
#define RUN(T)                                                                       \
  EW_PLAIN_FOR (; to != end; from += (intptr_t)xc * size, to += (intptr_t)yc * size) \
    *(T *)to = *(const T *)from;                                                     \
  break
        switch (EW_CHOICE(COPY_SIZE, size)) {
        case 1: RUN(m_u8);
        case 2: RUN(m_u16);
        case 4: RUN(m_u32);
        default: RUN(m_u64);
        }
      }
#undef RUN
}

static void copy_task(void *arg, int32_t index, int32_t thread) {
  (void)thread;
  const copy *c = arg;
  int64_t end = (index + 1) * c->per_task < c->units ? (index + 1) * c->per_task : c->units;
  for (int64_t unit = index * c->per_task; unit < end && !ew_stopping(c->context); unit++) {
    const int64_t first = unit % c->strips * c->strip,
                  m = c->dims[c->nd - 2] - first < c->strip ? c->dims[c->nd - 2] - first : c->strip;
    int64_t rest = unit / c->strips, x = first * c->xs[c->nd - 2], y = first * c->ys[c->nd - 2];
    for (int d = c->nd - 3; d >= 0 && rest; d--)
      x += rest % c->dims[d] * c->xs[d], y += rest % c->dims[d] * c->ys[d], rest /= c->dims[d];
    copy_plane(c, c->x + x * c->size, c->y + y * c->size, m, c->dims[c->nd - 1]);
  }
}

static void swap_dims(copy *c, int a, int b) {
  int64_t d = c->dims[a], x = c->xs[a], y = c->ys[a];
  c->dims[a] = c->dims[b], c->xs[a] = c->xs[b], c->ys[a] = c->ys[b];
  c->dims[b] = d, c->xs[b] = x, c->ys[b] = y;
}

int32_t ew_k_copy(ew_context *context, const ew_copy_params *p, void *const *operand) {
  copy c = {.context = context, .x = operand[EW_COPY_X], .y = operand[EW_COPY_Y], .size = p->size};
  EW_PLAIN_FOR (int d = 0; d < 6; d++) {
    if (p->dims[d] == 1) continue;
    const int last = c.nd - 1;
    if (c.nd && c.xs[last] == (int64_t)p->xs[d] * p->dims[d] &&
        c.ys[last] == (int64_t)p->ys[d] * p->dims[d])
      c.dims[last] *= p->dims[d], c.xs[last] = p->xs[d], c.ys[last] = p->ys[d];
    else
      c.dims[c.nd] = p->dims[d], c.xs[c.nd] = p->xs[d], c.ys[c.nd] = p->ys[d], c.nd++;
  }
  int64_t n = 1;
  EW_PLAIN_FOR (int d = 0; d < c.nd; d++) n *= c.dims[d];
  /* a single long row: split it into rows, so that threads can share it */
  if (c.nd == 1 && c.xs[0] == 1 && c.ys[0] == 1 && n > 1 << 16) {
    const int64_t row = 1 << 14;
    const int64_t whole = n / row * row;
    memcpy(c.y + whole * c.size, c.x + whole * c.size, (size_t)((n - whole) * c.size));
    c.nd = 2, c.dims[0] = n / row, c.xs[0] = c.ys[0] = row, c.dims[1] = row, c.xs[1] = c.ys[1] = 1;
  }
  while (c.nd < 2) { /* prepend a dimension of size 1 */
    if (c.nd)
      c.dims[1] = c.dims[0], c.xs[1] = c.xs[0], c.ys[1] = c.ys[0], c.dims[0] = 1,
      c.xs[0] = c.ys[0] = 0;
    else
      c.dims[0] = 1, c.xs[0] = c.ys[0] = 1;
    c.nd++;
  }
  /* If the last dimension is contiguous on one side only, move the dimension that is contiguous on
   * the other side next to it. */
  const int last = c.nd - 1;
  if (c.xs[last] != 1 || c.ys[last] != 1)
    EW_PLAIN_FOR (int d = last - 1; d >= 0; d--)
      if (c.dims[d] > 1 && (c.xs[last] == 1 ? c.ys[d] == 1 : c.xs[d] == 1)) {
        swap_dims(&c, d, last - 1);
        break;
      }
  int64_t outer = 1;
  EW_PLAIN_FOR (int d = 0; d < c.nd - 2; d++) outer *= c.dims[d];
  const int64_t m = c.dims[c.nd - 2], row = c.dims[c.nd - 1];
  const int64_t tile = c.size < 4 ? LINE / c.size : TILE;
  /* whole tiles: about 16k elements, fewer if they are large */
  c.strip = tile * 1024 / row / tile * tile;
  c.strip = c.strip < tile ? tile : c.strip > m ? m : c.strip;
  c.strips = (m + c.strip - 1) / c.strip;
  c.units = outer * c.strips;
  const int32_t tasks = ew_tasks(context, n, 32768, c.units);
  c.per_task = (c.units + tasks - 1) / tasks;
  ew_parallel(context, (int32_t)((c.units + c.per_task - 1) / c.per_task), copy_task, &c);
  return EW_OK;
}
