/* Convolution, transposed convolution (its gradient with respect to x), and its gradient with
 * respect to the weights, in up to three dimensions.
 *
 * They are matrix products whose b is gathered from x while it is packed (implicit im2col): patches
 * are never stored. Convolutions with few output channels per group, such as depthwise ones, go tap
 * by tap instead. Tasks are blocks of rows and columns of (item, group); inner loops are those of
 * gemm.h, depthwise.h or convolution_rows.c. */
#include "kernels/convolution/convolution.h"
#include "kernels/convolution/convolution_few.h"
#include "kernels/convolution/depthwise.h"

/* FEW_CHANNELS: with fewer output channels per group, convolutions go tap by tap. MAX_TAPS: so
 * does the transposed one if it has more than MAX_TAPS / threads taps. */
enum { FEW_CHANNELS = 4, MAX_TAPS = 2048 };

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

static void in_parallel(ew_context *ctx, ew_convolution *s, int64_t pieces, double each,
                        ew_task task) {
  s->pieces = pieces, s->share = ew_window_share(ctx, pieces, each);
  ew_parallel(ctx, up_to(pieces, s->share), task, s);
}
#define EACH_PIECE(i)                                                     \
  for (int64_t i = (int64_t)index * s->share,                             \
               end = i + s->share < s->pieces ? i + s->share : s->pieces; \
       i < end && !ew_stopping(s->context); i++)

static real *plane_of_x(const ew_convolution *s, int64_t item, int64_t channel) {
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

/* ---- y = w * x ---- */

static void direct_task(void *arg, int32_t index, int32_t thread) {
  const ew_convolution *s = arg;
  int64_t floats = EW_GEMM_B_FLOATS / s->threads;
  ew_long_rows l;
  const bool three = s->c == 1 && ew_is_depthwise(&s->w),
             in_long_rows =
                 !three && ew_long_rows_open(s, s->scratch + floats * thread, floats, &l);
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
      ew_conv_fill(p.y, s->y_volume, start);
    for (int32_t c = three ? s->c : 0; c < s->c && !ew_stopping(s->context); c++) {
      p.x = plane_of_x(s, item, gm / s->m * s->c + c), p.w = s->weights + (gm * s->c + c) * s->taps;
      if (in_long_rows)
        ew_long_rows_load_x(&l, p.x), ew_long_rows_forward(&l, s->taps, p.w, c ? NULL : &start,
                                                           c + 1 < s->c ? &none : &limit);
      else
        ew_window_rows(s->context, &s->w, forward_row, &p);
    }
    if (in_long_rows) ew_long_rows_copy_y(&l, s, p.y, true);
    f.bias = NULL;
    if (f.residual) f.residual += i * s->y_volume;
    if (f.residual || limit.dear || (f.activation && !in_long_rows && !three))
      ew_finish_row(&f, p.y, p.y, 0, 0, (int32_t)s->y_volume, 0);
  }
}

/* Pieces are (item, group, rows of y's matrix, columns). Each thread packs what it multiplies:
 * threads synchronize once, and a thread reads only what it has written. */
static void product_task(void *arg, int32_t index, int32_t thread) {
  const ew_convolution *s = arg;
  const int64_t b_floats = EW_GEMM_B_FLOATS / s->threads, k = s->c * s->taps;
  EACH_PIECE(i) {
    const int64_t item = i / s->row_blocks / s->blocks, g = item % s->groups;
    const int32_t row = (int32_t)(i / s->blocks % s->row_blocks) * s->rows,
                  from = (int32_t)(i % s->blocks) * s->block;
    const int64_t at = (item * s->m + row) * s->y_volume + from;
    ew_patch_layout layout = {s->w, s->x_volume, 0, s->taps, from};
    ew_gemm_job job = {.m = at_most(s->m - row, s->rows),
                       .n = at_most(s->y_volume - from, s->block),
                       .k = (int32_t)k,
                       .a_row = (int32_t)k,
                       .a_col = 1,
                       .y_row = (int32_t)s->y_volume,
                       .a = s->weights + (g * s->m + row) * k,
                       .y = s->y + at,
                       .finish = s->finish,
                       .pack_b = ew_conv_pack_positions,
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
  ew_convolution s = CONVOLUTION(p);
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
  const ew_convolution *s = arg;
  int64_t floats = EW_GEMM_B_FLOATS / s->threads;
  ew_long_rows l;
  bool in_long_rows = ew_long_rows_open(s, s->scratch + floats * thread, floats, &l);
  EACH_PIECE(i) { /* (item, group, c) */
    int64_t gc = i % ((int64_t)s->groups * s->c), item = i / ((int64_t)s->groups * s->c),
            g = gc / s->c;
    planes p = {.x = s->x + i * s->x_volume};
    ew_conv_fill(p.x, s->x_volume, s->bias ? s->bias[gc] : 0);
    if (in_long_rows) ew_conv_fill(l.x, l.part * l.parts, 0);
    for (int64_t m = g * s->m; m < (g + 1) * s->m && !ew_stopping(s->context); m++) {
      p.y = s->y + (item * s->groups * s->m + m) * s->y_volume,
      p.w = s->weights + (m * s->c + gc % s->c) * s->taps;
      if (!in_long_rows) {
        ew_window_rows(s->context, &s->w, transpose_row, &p);
        continue;
      }
      ew_long_rows_copy_y(&l, s, p.y, false);
      planes whole = {.x = l.x, .w = p.w, .y = l.y};
      for (int32_t t = 0; t < s->taps; t++)
        transpose_row(&whole, ew_long_row_floats(&l), l.offset[t], 1, 0, t);
    }
    if (in_long_rows) ew_long_rows_add_x(&l, p.x);
  }
}

enum { COLUMN_FLOATS = 131072 }; /* scratch for the products of taps with positions */

/* One block of channels: multiplies their taps with a range of positions, then adds the row of each
 * tap to its place in x. */
static void transpose_task(void *arg, int32_t index, int32_t thread) {
  const ew_convolution *s = arg;
  static const int32_t one[3] = {1, 1, 1}, none[3] = {0};
  int64_t b_floats = EW_GEMM_B_FLOATS / s->threads, a_floats = EW_GEMM_A_FLOATS / s->threads,
          share = COLUMN_FLOATS / s->threads;
  real *packed_b = s->scratch + b_floats * thread,
       *packed_a = s->scratch + EW_GEMM_B_FLOATS + a_floats * thread,
       *columns = s->scratch + EW_GEMM_B_FLOATS + EW_GEMM_A_FLOATS + share * thread;
  ew_patch_layout layout = {{s->w.y_size, s->w.y_size, one, one, one, none}, s->y_volume, 0, 1, 0};
  EACH_PIECE(i) { /* (item, group, block) */
    int64_t ig = i / s->blocks, g = ig % s->groups, item = ig / s->groups, k = s->c * s->taps;
    int32_t c0 = (int32_t)(i % s->blocks) * s->block, channels = at_most(s->c - c0, s->block);
    int32_t rows = (int32_t)(channels * s->taps), n = at_most(share / rows, (int32_t)s->y_volume);
    if (n > NR) n -= n % NR;
    real *x = s->x + ((item * s->groups + g) * s->c + c0) * s->x_volume;
    for (int32_t c = 0; c < channels; c++)
      ew_conv_fill(x + c * s->x_volume, s->x_volume, s->bias ? s->bias[g * s->c + c0 + c] : 0);
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
                         .pack_b = ew_conv_pack_positions,
                         .b = s->y + ig * s->m * s->y_volume,
                         .b_more = &layout};
      ew_gemm_run(s->context, &job, packed_b, b_floats, packed_a, a_floats, 1);
      for (int32_t r = 0; r < rows; r++)
        ew_conv_tap(&s->w, x + r / s->taps * s->x_volume, 0, ew_place_of(r % s->taps, s->w.taps),
                    ew_place_of(j, s->w.y_size), count, columns + (int64_t)r * count, true);
    }
  }
}

int32_t ew_k_conv_transpose(ew_context *ctx, const ew_conv_transpose_params *p,
                            void *const *operand) {
  ew_convolution s = CONVOLUTION(p);
  s.x = operand[EW_CONV_TRANSPOSE_X], s.weights = operand[EW_CONV_TRANSPOSE_W],
  s.y = operand[EW_CONV_TRANSPOSE_Y], s.scratch = operand[EW_CONV_TRANSPOSE_SCRATCH];
  s.bias = operand[EW_CONV_TRANSPOSE_BIAS];
  int64_t items = (int64_t)s.batch * s.groups;
  double each = (double)(s.m * s.taps) * (double)s.y_volume;
  if (s.m < FEW_CHANNELS || s.taps > MAX_TAPS / s.threads) {
    in_parallel(ctx, &s, items * s.c, each, transpose_direct_task);
    return EW_OK;
  }
  s.block = at_most(256 / s.taps + 1, s.c), s.blocks = up_to(s.c, s.block);
  in_parallel(ctx, &s, items * s.blocks, each * s.block, transpose_task);
  return EW_OK;
}

/* ---- gradient with respect to the weights ---- */

static void weight_direct_task(void *arg, int32_t index, int32_t thread) {
  const ew_convolution *s = arg;
  int64_t floats = EW_GEMM_B_FLOATS / s->threads;
  ew_long_rows l;
  const bool three = ew_is_depthwise(&s->w),
             in_long_rows =
                 !three && ew_long_rows_open(s, s->scratch + floats * thread, floats, &l);
  EACH_PIECE(i) { /* (group, m, c) */
    int64_t gm = i / s->c;
    planes p = {.w = s->weights + i * s->taps};
    ew_conv_fill(p.w, s->taps, 0);
    for (int64_t item = 0; item < s->batch && !ew_stopping(s->context); item++) {
      p.x = plane_of_x(s, item, gm / s->m * s->c + i % s->c),
      p.y = s->y + (gm * s->batch + item) * s->y_volume;
      if (three)
        ew_depthwise_by_weights(&s->w, p.x, p.y, p.w);
      else if (!in_long_rows)
        ew_window_rows(s->context, &s->w, weight_row, &p);
      if (!in_long_rows) continue;
      ew_long_rows_load_x(&l, p.x), ew_long_rows_copy_y(&l, s, p.y, false);
      planes whole = {.x = l.x, .w = p.w, .y = l.y};
      for (int32_t t = 0; t < s->taps; t++)
        weight_row(&whole, ew_long_row_floats(&l), l.offset[t], 1, 0, t);
    }
  }
}

/* Pieces are (group, columns). */
static void weight_task(void *arg, int32_t index, int32_t thread) {
  const ew_convolution *s = arg;
  const int64_t b_floats = EW_GEMM_B_FLOATS / s->threads, n = s->c * s->taps,
                k = s->batch * s->y_volume;
  EACH_PIECE(i) {
    const int64_t g = i / s->blocks, from = i % s->blocks * s->block;
    ew_patch_layout layout = {s->w, s->x_volume, s->x_batch, s->taps, from};
    ew_gemm_job job = {.m = s->m,
                       .n = at_most(n - from, s->block),
                       .k = (int32_t)k,
                       .a_row = (int32_t)k,
                       .a_col = 1,
                       .y_row = (int32_t)n,
                       .a = s->y + g * s->m * k,
                       .y = s->weights + g * s->m * n + from,
                       .finish = {.alpha = 1},
                       .pack_b = ew_conv_pack_taps,
                       .b = plane_of_x(s, 0, g * s->c),
                       .b_more = &layout};
    ew_gemm_run(s->context, &job, s->scratch + b_floats * thread, b_floats, s->scratch,
                EW_GEMM_A_FLOATS, 1);
  }
}

int32_t ew_k_conv_weight_grad(ew_context *ctx, const ew_conv_weight_grad_params *p,
                              void *const *operand) {
  ew_convolution s = CONVOLUTION(p);
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
