/* GridSample (bilinear, nearest, bicubic; zeros, border and reflection padding) and its gradients
 * with respect to x and the grid. A task is a range of output positions; for dx a batch item, since
 * positions of one item may write to the same element. */
#include "kernels/elementwise/each.h"
#include <math.h>

enum { NEAREST, LINEAR, CUBIC, ZEROS = 0, BORDER, REFLECTION };

/* One dimension of one sample: up to four elements of x (-1: outside, counted as zero), their
 * weights, and the derivatives of the weights with respect to the grid coordinate. */
typedef struct {
  int32_t n;
  int64_t at[4];
  float weight[4], slope[4];
} taps;

/* Reflects u at low and high until it lies between them. *sign: derivative of the result, 1 or -1.
 */
static __attribute__((noinline)) float reflected(float u, float low, float high, float *sign) {
  float span = high - low, v = fabsf(u - low);
  *sign = u < low ? -1 : 1;
  if (span <= 0) return *sign = 0;
  float turns = floorf(v / span);
  v -= turns * span;
  if (fmodf(turns, 2) != 0) {
    *sign = -*sign;
    return high - v;
  }
  return low + v;
}

static __attribute__((noinline)) int64_t inside(const ew_grid_sample_params *p, float i,
                                                int32_t size) {
  float sign;
  if (p->padding == BORDER || p->padding == REFLECTION) {
    if (p->padding == REFLECTION)
      i = p->align ? reflected(i, 0, (float)(size - 1), &sign)
                   : reflected(i, -0.5f, (float)size - 0.5f, &sign);
    i = i<0 ? 0 : i>(float)(size - 1) ? (float)(size - 1) : i;
  }
  int64_t at = (int64_t)rintf(i);
  return at >= 0 && at < size ? at : -1;
}

static __attribute__((noinline)) taps taps_of(const ew_grid_sample_params *p, float u,
                                              int32_t size) {
  taps t = {0};
  float high = (float)(size - 1), scale = p->align ? 0.5f * high : 0.5f * (float)size;
  u = p->align ? (u + 1) * 0.5f * high : ((u + 1) * (float)size - 1) * 0.5f;
  if (!(u > -0x1p30f)) u = -0x1p30f, scale = 0; /* also for NaN */
  if (u > 0x1p30f) u = 0x1p30f, scale = 0;
  if (p->mode != CUBIC && p->padding != ZEROS) {
    if (p->padding == REFLECTION) {
      float sign;
      u = p->align ? reflected(u, 0, high, &sign) : reflected(u, -0.5f, high + 0.5f, &sign);
      scale *= sign;
    }
    if (u < 0) u = 0, scale = 0;
    if (u > high) u = high, scale = 0;
  }
  if (p->mode == NEAREST) {
    t.n = 1, t.at[0] = inside(p, rintf(u), size), t.weight[0] = 1;
    return t;
  }
  float base = floorf(u), f = u - base;
  if (p->mode == LINEAR) {
    t.n = 2, t.weight[0] = 1 - f, t.weight[1] = f, t.slope[0] = -scale, t.slope[1] = scale;
    for (int i = 0; i < 2; i++) t.at[i] = inside(p, base + (float)i, size);
    return t;
  }
  t.n = 4;
  for (int i = 0; i < 4; i++) { /* cubic convolution (Keys, 1981) with a = -0.75 */
    float d = fabsf(f - (float)(i - 1)), sign = f - (float)(i - 1) < 0 ? -scale : scale;
    t.at[i] = inside(p, base + (float)(i - 1), size);
    t.weight[i] = d <= 1 ? (1.25f * d - 2.25f) * d * d + 1 : ((-0.75f * d + 3.75f) * d - 6) * d + 3;
    t.slope[i] = sign * (d <= 1 ? (3.75f * d - 4.5f) * d : (-2.25f * d + 7.5f) * d - 6);
  }
  return t;
}

typedef struct {
  ew_context *context;
  const ew_grid_sample_params *p;
  const real *x, *grid, *dy;
  real *y, *dx, *dgrid;
  int64_t pieces, share;
} grid_sample;

/* Channels [c0, c1) of position i of an item: computes y or, if dy is given, adds to dx or dgrid.
 */
static __attribute__((noinline)) void sample(const grid_sample *s, int64_t item, int64_t i,
                                             int64_t c0, int64_t c1) {
  const ew_grid_sample_params *p = s->p;
  const int64_t volume = (int64_t)p->x_size[0] * p->x_size[1] * p->x_size[2];
  const real *place = s->grid + (item * p->positions + i) * p->dims;
  taps t[3];
  int64_t at[64], count = 0;
  float weight[64], slope[3][64], sum[3] = {0};
  for (int d = 0; d < 3; d++)
    t[d] = d < p->dims ? taps_of(p, place[d], p->x_size[2 - d]) : (taps){.n = 1, .weight = {1}};
  for (int32_t z = 0; z < t[2].n; z++)
    for (int32_t y = 0; y < t[1].n; y++)
      for (int32_t x = 0; x < t[0].n; x++) {
        if (t[2].at[z] < 0 || t[1].at[y] < 0 || t[0].at[x] < 0) continue;
        at[count] = (t[2].at[z] * p->x_size[1] + t[1].at[y]) * p->x_size[2] + t[0].at[x];
        weight[count] = t[0].weight[x] * t[1].weight[y] * t[2].weight[z];
        slope[0][count] = t[0].slope[x] * t[1].weight[y] * t[2].weight[z];
        slope[1][count] = t[0].weight[x] * t[1].slope[y] * t[2].weight[z];
        slope[2][count++] = t[0].weight[x] * t[1].weight[y] * t[2].slope[z];
      }
  for (int64_t c = c0; c < c1; c++) {
    const int64_t plane = (item * p->channels + c) * volume,
                  out = (item * p->channels + c) * p->positions + i;
    if (s->y) {
      float v = 0;
      EW_PLAIN_FOR (int64_t k = 0; k < count; k++) v += weight[k] * s->x[plane + at[k]];
      s->y[out] = v;
    } else if (s->dx) {
      EW_PLAIN_FOR (int64_t k = 0; k < count; k++) s->dx[plane + at[k]] += weight[k] * s->dy[out];
    } else
      EW_PLAIN_FOR (int64_t k = 0; k < count; k++)
        for (int d = 0; d < 3; d++) sum[d] += slope[d][k] * s->x[plane + at[k]] * s->dy[out];
  }
  if (s->dgrid)
    for (int d = 0; d < p->dims; d++) s->dgrid[(item * p->positions + i) * p->dims + d] = sum[d];
}

static void by_position(void *arg, int32_t index, int32_t thread) {
  const grid_sample *s = arg;
  (void)thread;
  for (int64_t i = index * s->share, end = i + s->share < s->pieces ? i + s->share : s->pieces;
       i < end && !ew_stopping(s->context); i++)
    sample(s, i / s->p->positions, i % s->p->positions, 0, s->p->channels);
}
/* One task per item: several positions of an item may add to the same element of dx. */
static void by_item(void *arg, int32_t index, int32_t thread) {
  const grid_sample *s = arg;
  const int64_t n = (int64_t)s->p->channels * s->p->x_size[0] * s->p->x_size[1] * s->p->x_size[2];
  (void)thread;
  for (int64_t i = 0; i < n; i++) s->dx[index * n + i] = 0;
  for (int64_t i = 0; i < s->p->positions && !ew_stopping(s->context); i++)
    sample(s, index, i, 0, s->p->channels);
}

static void positions(ew_context *ctx, grid_sample *s) {
  s->pieces = (int64_t)s->p->batch * s->p->positions;
  int32_t tasks = ew_tasks(ctx, s->pieces * (16 + s->p->channels), 4096, s->pieces);
  s->share = (s->pieces - 1) / tasks + 1;
  ew_parallel(ctx, (int32_t)((s->pieces - 1) / s->share + 1), by_position, s);
}

int32_t ew_k_grid_sample(ew_context *ctx, const ew_grid_sample_params *p, void *const *operand) {
  grid_sample s = {.context = ctx,
                   .p = p,
                   .x = operand[EW_GRID_SAMPLE_X],
                   .grid = operand[EW_GRID_SAMPLE_GRID],
                   .dy = operand[EW_GRID_SAMPLE_DY],
                   .y = operand[EW_GRID_SAMPLE_Y]};
  if (!s.y == !s.dy) return EW_E_PARAM;
  if (s.y) positions(ctx, &s);
  if (s.dy && (s.dx = operand[EW_GRID_SAMPLE_DX])) ew_parallel(ctx, p->batch, by_item, &s);
  s.dx = NULL;
  if (s.dy && (s.dgrid = operand[EW_GRID_SAMPLE_DGRID])) positions(ctx, &s);
  return EW_OK;
}
