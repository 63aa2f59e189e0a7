/* Forward convolution with few output positions per plane: the last layers of a network, or frames
 * of audio. A tile of the blocked product is NR positions wide, so with one position most of it
 * would be padding.
 *
 * Here the patches of all positions are gathered first, as rows of k = channels * taps elements. A
 * few of them are multiplied with the rows of the weights as dot products, which reads each weight
 * once, in place (a task is a range of channels). Many of them, from a batch of many items, become
 * the columns of one blocked product (a task is a range of items). */
#include "kernels/convolution/convolution_few.h"
#include "kernels/product/gemm.h"
#include "kernels/convolution/window.h"

enum {
  FEW_ROWS = NR / 2, /* rows of patches up to which dot products are faster than padded tiles */
  SUMS = 1024,       /* sums of y that a task keeps on its stack */
  SCRATCH = EW_GEMM_B_FLOATS, /* floats, as declared */
};

typedef struct {
  ew_context *context;
  ew_window w;
  int32_t batch, groups, m, c, threads; /* m, c: channels per group */
  int64_t x_batch, x_volume, positions, k, rows;
  const real *x, *weights;
  real *y, *scratch;
  ew_finish finish;
  /* dot products: channels per task; product: rows of patches per task */
  int32_t group, channels, chunk;
} few_positions;

/* Gathers the patch at one position of one item, for the group that begins at plane x: out[c][tap],
 * 0 outside of x. */
static void gather(const few_positions *s, const real *x, ew_place at, real *out) {
  const ew_window *w = &s->w;
  const int64_t z0 = at.z * (int64_t)w->stride[0] - w->pad[0],
                y0 = at.y * (int64_t)w->stride[1] - w->pad[1];
  const int64_t x0 = at.x * (int64_t)w->stride[2] - w->pad[2], step = w->dilation[2];
  const int32_t taps = w->taps[2];
  int32_t from = 0, to = taps; /* taps of a row that lie inside x */
  while (from < to && x0 + from * step < 0) from++;
  while (to > from && x0 + (to - 1) * step >= w->x_size[2]) to--;
  for (int32_t c = 0; c < s->c; c++, x += s->x_volume)
    for (int32_t kz = 0; kz < w->taps[0]; kz++)
      for (int32_t ky = 0; ky < w->taps[1]; ky++, out += taps) {
        const int64_t z = z0 + kz * (int64_t)w->dilation[0], y = y0 + ky * (int64_t)w->dilation[1];
        const bool inside = z >= 0 && z < w->x_size[0] && y >= 0 && y < w->x_size[1];
        const int32_t begin = inside ? from : 0, end = inside ? to : 0;
        EW_PLAIN_FOR (int32_t i = 0; i < begin; i++) out[i] = 0;
        if (begin < end)
          ew_every(out + begin, x + (z * w->x_size[1] + y) * w->x_size[2] + x0 + begin * step, step,
                   end - begin);
        EW_PLAIN_FOR (int32_t i = end; i < taps; i++) out[i] = 0;
      }
}

/* Gathers `count` patches from row `first` on; rows are (item, position). */
static void gather_rows(const few_positions *s, int32_t group, int64_t first, int64_t count,
                        real *out) {
  for (int64_t i = first; i < first + count; i++, out += s->k)
    gather(s, s->x + i / s->positions * s->x_batch + (int64_t)group * s->c * s->x_volume,
           ew_place_of(i % s->positions, s->w.y_size), out);
}

/* Applies the epilogue to `channels` channels of one item from channel `m` on; sums have the layout
 * of y. */
static void finish(const few_positions *s, int64_t item, int64_t m, int64_t channels,
                   const real *sums) {
  const int64_t at = (item * s->groups * s->m + m) * s->positions;
  ew_finish f = s->finish;
  f.bias = NULL;
  if (f.residual) f.residual += at;
  ew_finish_row(&f, s->y + at, sums, 0, 0, (int32_t)(channels * s->positions), 0);
}

/* Dot products of all patches, which lie in the scratch, with a range of channels of the group. */
static void dots_task(void *arg, int32_t index, int32_t thread) {
  const few_positions *s = arg;
  (void)thread;
  const int32_t rows = (int32_t)s->rows, most = SUMS / rows, begin = index * s->channels;
  const int32_t end = s->m - begin < s->channels ? s->m : begin + s->channels;
  for (int32_t m0 = begin; m0 < end && !ew_stopping(s->context); m0 += most) {
    real sums[SUMS];
    const int32_t count = end - m0 < most ? end - m0 : most;
    /* plane: sums of one item */
    const int64_t channel = (int64_t)s->group * s->m + m0, plane = count * s->positions;
    for (int32_t j = 0, cols; j < count; j += cols) {
      const real *w = s->weights + (channel + j) * s->k;
      cols = count - j >= 4 ? 4 : 1; /* at the end a single channel, used four times */
      for (int32_t i = 0, some; i < rows; i += some) {
        float out[16];
        some = ew_dots_rows(rows - i);
        ew_dots(some, (int32_t)s->k, s->scratch + i * s->k, s->k, w, cols == 4 ? s->k : 0, false,
                out);
        for (int32_t r = 0; r < some; r++) {
          real *to = sums + (i + r) / s->positions * plane + (i + r) % s->positions;
          for (int32_t c = 0; c < cols; c++)
            to[(j + c) * s->positions] =
                out[r * 4 + c] + (s->finish.bias ? s->finish.bias[channel + j + c] : 0);
        }
      }
    }
    for (int64_t item = 0; item < s->batch; item++)
      finish(s, item, channel, count, sums + item * plane);
  }
}

/* The columns of the product are rows of patches, which are contiguous. */
static void pack_rows(const ew_gemm_job *g, real *panels, int32_t k0, int32_t kc, int32_t j0,
                      int32_t nc) {
  for (int32_t j = 0; j < nc; j += NR)
    ew_pack_columns(g->b, (int64_t)(j0 + j) * g->k + k0, g->k, kc, nc - j < NR ? nc - j : NR,
                    panels + (int64_t)j * kc, false);
}

/* Some items of a group: gathers their patches, multiplies, and stores the columns as planes of y.
 */
static void product_task(void *arg, int32_t index, int32_t thread) {
  const few_positions *s = arg;
  const int64_t share = SCRATCH / s->threads, items = s->chunk / s->positions,
                first = index * items;
  const int64_t count = s->batch - first < items ? s->batch - first : items,
                rows = count * s->positions;
  real *patches = s->scratch + share * thread, *product = patches + share / 2,
       *packed = product + share / 4;
  const int32_t most = (int32_t)(share / 4 / rows); /* channels that fit `product` */
  gather_rows(s, s->group, first * s->positions, rows, patches);
  for (int32_t m0 = 0; m0 < s->m && !ew_stopping(s->context); m0 += most) {
    const int32_t channels = s->m - m0 < most ? s->m - m0 : most;
    const int64_t channel = (int64_t)s->group * s->m + m0;
    ew_gemm_job job = {.m = channels,
                       .n = (int32_t)rows,
                       .k = (int32_t)s->k,
                       .a_row = (int32_t)s->k,
                       .a_col = 1,
                       .y_row = (int32_t)rows,
                       .a = s->weights + channel * s->k,
                       .y = product,
                       .pack_b = pack_rows,
                       .b = patches,
                       .finish = {.bias = s->finish.bias ? s->finish.bias + channel : NULL,
                                  .bias_row = 1,
                                  .alpha = 1,
                                  .beta = 1}};
    ew_gemm_run(s->context, &job, packed, share / 4, s->scratch, EW_GEMM_A_FLOATS, 1);
    for (int64_t item = 0; item < count; item++)
      for (int32_t c = 0; c < channels; c++)
        finish(s, first + item, channel + c, 1, product + c * rows + item * s->positions);
  }
}

bool ew_conv_few_positions(ew_context *ctx, const ew_conv_params *p, void *const *operand) {
  few_positions s = {.context = ctx,
                     .w = EW_WINDOW_OF(p),
                     .batch = p->batch,
                     .groups = p->groups,
                     .m = p->m,
                     .c = p->c,
                     .threads = ew_parallel_width(ctx),
                     .x_batch = p->x_batch,
                     .x_volume = ew_volume(p->x_size),
                     .positions = ew_volume(p->y_size),
                     .k = p->c * ew_volume(p->taps)};
  s.rows = s.batch * s.positions;
  s.x = operand[EW_CONV_X], s.weights = operand[EW_CONV_W], s.y = operand[EW_CONV_Y],
  s.scratch = operand[EW_CONV_SCRATCH];
  s.finish = (ew_finish){.bias = operand[EW_CONV_BIAS],
                         .residual = operand[EW_CONV_RESIDUAL],
                         .activation = p->activation,
                         .alpha = 1,
                         .beta = 1};
  if (s.positions >= NR || !s.scratch || s.k > INT32_MAX || s.weights == NULL) return false;
  if (s.rows <= FEW_ROWS && s.rows * s.k <= SCRATCH) {
    const int64_t worth = s.rows * s.k * s.m >> 15; /* a task takes a few microseconds */
    const int32_t tasks = worth < s.threads ? (int32_t)worth + 1 : s.threads;
    s.channels = ((s.m - 1) / tasks / 4 + 1) * 4;
    for (s.group = 0; s.group < s.groups; s.group++) {
      gather_rows(&s, s.group, 0, s.rows, s.scratch);
      ew_parallel(ctx, (s.m - 1) / s.channels + 1, dots_task, &s);
    }
    return true;
  }
  /* items whose patches fit the scratch */
  const int64_t room = SCRATCH / s.threads, items = room / 2 / s.k / s.positions;
  if (s.batch == 1 || items * s.positions < NR || s.positions * 4 > room) return false;
  const int64_t even = (s.batch - 1) / s.threads + 1;
  s.chunk = (int32_t)((items < even ? items : even) * s.positions);
  if (s.chunk > room / 4) s.chunk = (int32_t)(room / 4 / s.positions * s.positions);
  for (s.group = 0; s.group < s.groups; s.group++)
    ew_parallel(ctx, (int32_t)((s.batch - 1) / (s.chunk / s.positions) + 1), product_task, &s);
  return true;
}
