/* MaxPool, AveragePool, LpPool's sums, and their gradients, over planes [batch x channels][up to
 * three dimensions].
 *
 * A task is a range of planes. Rows of stride 1 are vectorized: first the maxima or sums over the
 * vertical taps, then over the horizontal ones. Other windows are computed one position at a time.
 */
#include "kernels/convolution/window.h"
#include <math.h>

/* LENGTH: elements of a row held in a buffer; TAPS: taps whose position ranges are precomputed */
enum { LENGTH = 1024, TAPS = 16 };

typedef struct {
  ew_context *context;
  ew_window w;
  const int32_t *tail;
  int32_t op, include_pad, planes, share;
  int64_t x_volume, y_volume;
  const real *x, *dy;
  real *y, *dx;
  long_m *index;
} pool;

#define POOL(p)                        \
  {.context = ctx,                     \
   .w = EW_WINDOW_OF(p),               \
   .tail = (p)->tail,                  \
   .op = (p)->op,                      \
   .include_pad = (p)->include_pad,    \
   .planes = (p)->planes,              \
   .x_volume = ew_volume((p)->x_size), \
   .y_volume = ew_volume((p)->y_size)}

static void max_row(void *arg, int32_t n, int64_t x_at, int64_t stride, int64_t y_at, int32_t tap) {
  const pool *s = arg;
  const real *x = s->x + x_at;
  real *y = s->y + y_at;
  int32_t i = 0;
  (void)tap;
  if (stride == 1)
    for (; i + VF <= n; i += VF) {
      vf v = vf_load(x + i), a = vf_load(y + i);
      vf_store(y + i, vf_select((v > a) | (v != v), v, a));
    }
#if VF > 4
  if (stride == 1)
    for (; i + 4 <= n; i += 4) {
      const f32x4 v = *(const f32x4_m *)(x + i), a = *(const f32x4_m *)(y + i);
      const i32x4 above = (v > a) | (v != v);
      *(f32x4_m *)(y + i) = (f32x4)((above & (i32x4)v) | (~above & (i32x4)a));
    }
#endif
  EW_PLAIN_FOR (; i < n; i++) {
    const float v = x[i * stride], a = y[i];
    y[i] = v > a || v != v ? v : a;
  }
}
static void sum_row(void *arg, int32_t n, int64_t x_at, int64_t stride, int64_t y_at, int32_t tap) {
  const pool *s = arg;
  const real *x = s->x + x_at;
  real *y = s->y + y_at;
  int32_t i = 0;
  (void)tap;
  if (stride == 1)
    for (; i + VF <= n; i += VF) vf_store(y + i, vf_load(y + i) + vf_load(x + i));
  EW_PLAIN_FOR (; i < n; i++) y[i] += x[i * stride];
}

/* Processes a plane: reduces the vertical taps of each row first, then the horizontal ones. */
static __attribute__((noinline)) void rows(const pool *s, ew_window_row row, float nothing) {
  const ew_window *w = &s->w;
  const int32_t *size = w->x_size;
  real column[LENGTH], line[LENGTH], *y = s->y;
  pool down = *s, along = *s;
  /* position ranges of the first taps, which are the same for all rows and cost divisions */
  int32_t from[TAPS], to[TAPS];
  for (int32_t k = 0; k < w->taps[2] && k < TAPS; k++)
    ew_window_range(w, 2, ew_window_at(w, 2, k), &from[k], &to[k]);
  down.y = column, along.x = line;
  for (int32_t oz = 0; oz < w->y_size[0]; oz++)
    for (int32_t oy = 0; oy < w->y_size[1] && !ew_stopping(s->context); oy++, y += w->y_size[2]) {
      int32_t kz, end_z, first_y, end_y;
      ew_window_taps(w, 1, oy, &first_y, &end_y);
      EW_PLAIN_FOR (int32_t i = 0; i < size[2]; i++) column[i] = nothing;
      EW_PLAIN_FOR (int32_t i = 0; i < w->y_size[2]; i++) y[i] = nothing;
      for (ew_window_taps(w, 0, oz, &kz, &end_z); kz < end_z; kz++)
        for (int32_t ky = first_y; ky < end_y; ky++) {
          const int64_t iz = oz * (int64_t)w->stride[0] + ew_window_at(w, 0, kz),
                        iy = oy * (int64_t)w->stride[1] + ew_window_at(w, 1, ky);
          row(&down, size[2], (iz * size[1] + iy) * size[2], 1, 0, 0);
        }
      for (int32_t kx = 0; kx < w->taps[2]; kx++) {
        int32_t begin = kx < TAPS ? from[kx] : 0, end = kx < TAPS ? to[kx] : 0;
        if (kx >= TAPS) ew_window_range(w, 2, ew_window_at(w, 2, kx), &begin, &end);
        if (begin >= end) continue;
        ew_every(line, column + begin * (int64_t)w->stride[2] + ew_window_at(w, 2, kx),
                 w->stride[2], end - begin);
        along.y = y + begin, row(&along, end - begin, 0, 1, 0, 0);
      }
    }
}

/* The taps [from, to) of position o along dimension d that lie inside x, the coordinate of tap
 * `from`, and the number of taps that count for an average. */
typedef struct {
  int64_t at;
  int32_t from, to, count;
} span;
static __attribute__((noinline)) span span_of(const pool *s, int d, int32_t o) {
  const ew_window *w = &s->w;
  int32_t from, to;
  ew_window_taps(w, d, o, &from, &to);
  const int64_t at = (int64_t)o * w->stride[d] - w->pad[d], step = w->dilation[d],
                taps = w->taps[d], all = (w->x_size[d] - at + s->tail[d] - 1) / step + 1;
  return (span){at + from * step, from, to,
                s->include_pad ? (int32_t)(all < taps ? all : taps) : to - from};
}

/* One position at a time: the maximum with its index, the sum, or gradients to each tap. */
static __attribute__((noinline)) void positions(const pool *s, int64_t plane) {
  const ew_window *w = &s->w;
  const int32_t *size = w->x_size, *step = w->dilation;
  const real *x = s->x + plane * s->x_volume;
  real *dx = s->dx + plane * s->x_volume;
  int64_t i = plane * s->y_volume;
  const bool long_window = ew_volume(w->taps) > 4096;
  for (int32_t oz = 0; oz < w->y_size[0]; oz++) {
    span z = span_of(s, 0, oz);
    for (int32_t oy = 0; oy < w->y_size[1] && !ew_stopping(s->context); oy++) {
      span y = span_of(s, 1, oy);
      for (int32_t ox = 0; ox < w->y_size[2]; ox++, i++) {
        if (long_window && ew_stopping(s->context)) return;
        span c = span_of(s, 2, ox);
        int64_t best = -1;
        float most = -INFINITY, part = 0, sum = 0;
        if (s->dy)
          part = s->op == EW_POOL_OP_AVERAGE
                     ? s->dy[i] / ((float)z.count * (float)y.count * (float)c.count)
                     : s->dy[i];
        for (int32_t kz = z.from; kz < z.to; kz++)
          for (int32_t ky = y.from; ky < y.to; ky++) {
            int64_t at = ((z.at + (int64_t)(kz - z.from) * step[0]) * size[1] + y.at +
                          (int64_t)(ky - y.from) * step[1]) *
                             size[2] +
                         c.at;
            EW_PLAIN_FOR (int32_t kx = c.from; kx < c.to; kx++, at += step[2]) {
              if (s->op != EW_POOL_OP_MAX) {
                if (s->dy)
                  dx[at] += part;
                else
                  sum += x[at];
              } else if (best < 0 || x[at] > most || (x[at] != x[at] && most == most))
                best = at, most = x[at];
            }
          }
        if (s->dy) {
          if (s->op == EW_POOL_OP_MAX && best >= 0) dx[best] += part;
          continue;
        }
        s->y[i] = s->op == EW_POOL_OP_MAX ? most : sum;
        if (s->index) s->index[i] = best < 0 ? 0 : plane * s->x_volume + best;
      }
    }
  }
}

static void divide(const pool *s, real *y) {
  for (int32_t oz = 0; oz < s->w.y_size[0]; oz++)
    for (int32_t oy = 0; oy < s->w.y_size[1]; oy++) {
      float rows = (float)span_of(s, 0, oz).count * (float)span_of(s, 1, oy).count;
      for (int32_t ox = 0; ox < s->w.y_size[2]; ox++) *y++ /= rows * (float)span_of(s, 2, ox).count;
    }
}

static void pool_task(void *arg, int32_t index, int32_t thread) {
  const pool *s = arg;
  (void)thread;
  for (int64_t i = (int64_t)index * s->share,
               end = i + s->share < s->planes ? i + s->share : s->planes;
       i < end; i++) {
    if (s->index) {
      positions(s, i);
      continue;
    }
    pool one = *s;
    one.x += i * s->x_volume, one.y += i * s->y_volume;
    const ew_window_row row = s->op == EW_POOL_OP_MAX ? max_row : sum_row;
    const float nothing = s->op == EW_POOL_OP_MAX ? -INFINITY : 0;
    /* The other paths visit all taps of a row, including those that lie outside x for every
     * position. */
    if (s->w.taps[2] > s->w.x_size[2])
      positions(s, i);
    else if (s->w.x_size[2] <= LENGTH)
      rows(&one, row, nothing);
    else {
      EW_PLAIN_FOR (int64_t j = 0; j < s->y_volume; j++) one.y[j] = nothing;
      ew_window_rows(s->context, &s->w, row, &one);
    }
    if (s->op == EW_POOL_OP_AVERAGE) divide(s, one.y);
  }
}
static void grad_task(void *arg, int32_t index, int32_t thread) {
  const pool *s = arg;
  (void)thread;
  for (int64_t i = (int64_t)index * s->share,
               end = i + s->share < s->planes ? i + s->share : s->planes;
       i < end; i++) {
    EW_PLAIN_FOR (int64_t j = 0; j < s->x_volume; j++) s->dx[i * s->x_volume + j] = 0;
    positions(s, i);
  }
}

static void run(ew_context *ctx, pool *s, ew_task task) {
  s->share = ew_window_share(
      ctx, s->planes, (double)ew_volume(s->w.taps) * (double)s->y_volume + (double)s->x_volume);
  ew_parallel(ctx, (s->planes - 1) / s->share + 1, task, s);
}

int32_t ew_k_pool(ew_context *ctx, const ew_pool_params *p, void *const *operand) {
  pool s = POOL(p);
  s.x = operand[EW_POOL_X], s.y = operand[EW_POOL_Y], s.index = operand[EW_POOL_INDEX];
  if (s.index && s.op != EW_POOL_OP_MAX) return EW_E_PARAM;
  run(ctx, &s, pool_task);
  return EW_OK;
}

int32_t ew_k_pool_grad(ew_context *ctx, const ew_pool_grad_params *p, void *const *operand) {
  pool s = POOL(p);
  s.x = operand[EW_POOL_GRAD_X], s.dy = operand[EW_POOL_GRAD_DY], s.dx = operand[EW_POOL_GRAD_DX];
  if (!s.x && s.op == EW_POOL_OP_MAX) return EW_E_PARAM;
  run(ctx, &s, grad_task);
  return EW_OK;
}
