/* Matrix products and convolutions of bytes (MatMulInteger, QLinearMatMul, QGemm, ConvInteger,
 * QLinearConv): y = (a - a_zero) @ (w - w_zero), summed in int32, which wraps; then stored as
 * int32, as float32, or quantized again.
 *
 * A row of a is what one output position reads: a row of the matrix, or the channels of all taps,
 * gathered unless they are contiguous. Weights are packed once into panels of COLUMNS columns in
 * the order in which the inner loop reads them: four consecutive k for byte dot products if the
 * machine has exact ones (vi_dots), otherwise two for products of 16-bit integers. Both take signed
 * weights; narrow ones have a third way (integer_product.h).
 *
 * With w' and a' for bytes as multiplied (possibly shifted by 128, like their zero points):
 *
 *     y = sum(a'w') - a_zero (sum(w') - k w_zero) - w_zero sum(a')
 *
 * A task is a block of rows and columns of one item. The inner loop computes DOT_ROWS or SHORT_ROWS
 * rows by COLUMNS columns in registers. */
#include "kernels/quantized/integer_product.h"
#include "kernels/product/gemm.h"
#include "kernels/convolution/window.h"
#include "activation.h"
#include <string.h>

/* DOT_ROWS, SHORT_ROWS: rows per tile; BLOCK: maximum rows per task */
enum { DOT_ROWS = 6, SHORT_ROWS = 4, BLOCK = 192 };

EW_INLINE int32_t byte_at(const uint8_t *p, int64_t i, bool is_signed) {
  return is_signed ? (int8_t)p[i] : p[i];
}

/* ---- rows of a ---- */

typedef struct {
  ew_context *context;
  const ew_integer_product_params *p;
  ew_window w;
  const uint8_t *a, *weights, *a_zero, *b_zero;
  const int_m *bias;
  const real *factor, *float_bias, *residual;
  float scale;
  uint8_t *y, *scratch;
  int64_t k, k4, w_item, rows, row_bytes, share, y_volume;
  int32_t dots, y_zero, mc, nc, row_tasks, column_tasks; /* mc, nc: rows and columns per task */
  int32_t height;                                        /* rows per tile */
  /* XORed into the bytes of a before multiplication */
  uint8_t flip;
  /* difference between a's bytes as multiplied and their values */
  int32_t shift;
  bool direct, sums, by_index, marked; /* marked: the sums of the weights are */
} product;

static __attribute__((noinline)) uint8_t *put(const product *s, uint8_t *to, const uint8_t *from,
                                              int64_t n) {
  int64_t i = 0;
  if (s->dots) {
    for (; i + 16 <= n; i += 16) *(u8x16_m *)(to + i) = *(const u8x16_m *)(from + i) ^ s->flip;
    EW_PLAIN_FOR (; i < n; i++) to[i] = from[i] ^ s->flip;
    return to + n;
  }
  short_m *y = (short_m *)to;
  if (s->p->a_type == EW_I8) {
    EW_EACH for (i = 0; i < n; i++) y[i] = (int8_t)from[i];
  } else {
    EW_EACH for (i = 0; i < n; i++) y[i] = from[i];
  }
  return to + 2 * n;
}
static __attribute__((noinline)) uint8_t *put_zeros(const product *s, uint8_t *to, int64_t n) {
  int32_t zero = s->a_zero ? byte_at(s->a_zero, 0, s->p->a_type == EW_I8) : 0;
  if (s->dots) {
    memset(to, (uint8_t)(zero + s->shift), (size_t)n);
    return to + n;
  }
  EW_PLAIN_FOR (int64_t i = 0; i < n; i++) ((short_m *)to)[i] = (int16_t)zero;
  return to + 2 * n;
}

/* Gathers what position `row` reads. */
static void gather(const product *s, const uint8_t *a, int64_t row, uint8_t *to) {
  const ew_integer_product_params *p = s->p;
  const ew_window *w = &s->w;
  int64_t at = row % s->y_volume, c = p->c;
  a += row / s->y_volume * ew_volume(w->x_size) * p->a_row;
  int64_t z0 = at / w->y_size[2] / w->y_size[1] * w->stride[0],
          y0 = at / w->y_size[2] % w->y_size[1] * w->stride[1],
          x0 = at % w->y_size[2] * w->stride[2] - w->pad[2];
  bool together = w->dilation[2] == 1 && p->a_row == c;
  for (int32_t kz = 0; kz < w->taps[0]; kz++)
    for (int32_t ky = 0; ky < w->taps[1]; ky++) {
      int64_t z = z0 + ew_window_at(w, 0, kz), y = y0 + ew_window_at(w, 1, ky), taps = w->taps[2];
      const uint8_t *line = a + (z * w->x_size[1] + y) * w->x_size[2] * p->a_row;
      if (z < 0 || z >= w->x_size[0] || y < 0 || y >= w->x_size[1])
        to = put_zeros(s, to, taps * c);
      else if (together) {
        int64_t from = x0 < 0 ? less(-x0, taps) : 0, end = less(w->x_size[2] - x0, taps);
        if (end < from) end = from;
        if (from) to = put_zeros(s, to, from * c);
        to = put(s, to, line + (x0 + from) * c, (end - from) * c);
        if (end < taps) to = put_zeros(s, to, (taps - end) * c);
      } else
        for (int32_t kx = 0; kx < taps; kx++) {
          int64_t x = x0 + (int64_t)kx * w->dilation[2];
          to =
              x < 0 || x >= w->x_size[2] ? put_zeros(s, to, c) : put(s, to, line + x * p->a_row, c);
        }
    }
}

/* Sum of k bytes (as multiplied) or shorts. */
static int32_t sum_of(const product *s, const uint8_t *row) {
  uint32_t sum = 0;
  if (!s->dots)
    EW_EACH for (int64_t i = 0; i < s->k; i++) sum += (uint32_t)((const short_m *)row)[i];
  else if (s->dots == EW_SIGNED_DOTS)
    EW_EACH for (int64_t i = 0; i < s->k; i++) sum += (uint32_t)(int8_t)row[i];
  else
    EW_EACH for (int64_t i = 0; i < s->k; i++) sum += row[i];
  return (int32_t)sum;
}

/* ---- the inner loop ---- */

EW_INLINE vi load(bool dots, const int8_t *p) {
  if (dots) return *(const vi_m *)p;
  return vi_load_shorts(p);
}

/* Multiplies four bytes, or two shorts, of each row with a vector of as many of each column.
 * `turn`: number of independent sums, used if the rows alone are too few to hide instruction
 * latency. */
EW_INLINE void tile(int rows, int turn, bool dots, int64_t steps, const uint8_t *a, intptr_t a_row,
                    const int8_t *b, int32_t *out) {
  const int step = dots ? 4 * COLUMNS : 2 * COLUMNS;
  vi y[8][2];
  for (int i = 0; i < rows * turn; i++) y[i][0] = y[i][1] = vi_splat(0);
  const uint8_t *end = a + 4 * steps;
  for (const uint8_t *whole = end - steps % turn * 4; a < whole; a += 4 * turn, b += turn * step)
    for (int u = 0; u < turn; u++) {
      const uint8_t *p = a + 4 * u;
      const int8_t *q = b + u * step;
      vi w0 = load(dots, q), w1 = load(dots, q + step / 2);
      for (int r = 0; r < rows; r++, p += a_row) {
        vi x = vi_load_splat((const int_m *)p), *sum = y[r * turn + u];
        sum[0] = dots ? vi_dot_bytes(w0, x, sum[0]) : vi_dot_shorts(x, w0, sum[0]);
        sum[1] = dots ? vi_dot_bytes(w1, x, sum[1]) : vi_dot_shorts(x, w1, sum[1]);
      }
    }
  if (turn > 1)
    for (; a < end; a += 4, b += step) {
      vi x = vi_load_splat((const int_m *)a), w0 = load(dots, b), w1 = load(dots, b + step / 2);
      y[0][0] = dots ? vi_dot_bytes(w0, x, y[0][0]) : vi_dot_shorts(x, w0, y[0][0]);
      y[0][1] = dots ? vi_dot_bytes(w1, x, y[0][1]) : vi_dot_shorts(x, w1, y[0][1]);
    }
  for (int r = 0; r < rows; r++)
    for (int c = 0; c < 2; c++) {
      vu sum = (vu)y[r * turn][c];
      for (int u = 1; u < turn; u++) sum += (vu)y[r * turn + u][c];
      *(vi_m *)(out + r * COLUMNS + c * VF) = (vi)sum;
    }
}
#define TILE(name, rows, turn, dots)                                                          \
  static __attribute__((noinline)) void name(int64_t steps, const uint8_t *a, intptr_t a_row, \
                                             const int8_t *b, int32_t *out) {                 \
    tile(rows, turn, dots, steps, a, a_row, b, out);                                          \
  }
TILE(tile_of_bytes, DOT_ROWS, 1, true)
TILE(row_of_bytes, 1, 4, true)
TILE(tile_of_shorts, SHORT_ROWS, 1, false)
TILE(row_of_shorts, 1, 4, false)

#if EW_RELAXED_DOTS
/* Numbers of blocks of marked weights: in turns of those whose sums of four products fit into 16
 * bits, and of others. */
typedef struct {
  int32_t count, blocks[SEGMENTS + 1];
} runs;

static void runs_of(const product *s, const uint8_t *sums, runs *r) {
  const int64_t blocks = s->k / BLOCK_ROWS, segment = ew_segment(s->k);
  uint64_t bits = 0;
  for (int i = 0; i < SEGMENTS / 8; i++) bits |= (uint64_t)sums[4 * i] << 8 * i;
  r->count = 0;
  for (int64_t at = 0, from = 0; from < blocks; r->count++) {
    const int32_t n = bits ? __builtin_ctzll(bits) : SEGMENTS;
    at += n;
    const int64_t to = less(at * segment, blocks);
    r->blocks[r->count] = (int32_t)(to - from);
    bits = ~(bits >> n % SEGMENTS), from = to;
  }
}

/* Multiplies blocks of marked weights. */
EW_INLINE void marked_tile(int rows, const runs *run, const uint8_t *a, intptr_t a_row,
                           const int8_t *b, int32_t *out) {
  static const volatile int32_t pair = 0x10001;
  const vi ones = vi_splat(pair), none = vi_splat(0);
  vi y[SHORT_ROWS][2];
  for (int r = 0; r < rows; r++) y[r][0] = y[r][1] = none;
  for (int32_t i = 0; i < run->count; i++)
    for (int32_t n = run->blocks[i]; n > 0; n--, a += BLOCK_ROWS, b += BLOCK_ROWS * COLUMNS) {
      const vi_m *w = (const vi_m *)b;
      const vi first[2] = {w[0], w[1]}, second[2] = {w[2], w[3]};
      const uint8_t *p = a;
      for (int r = 0; r < rows; r++, p += a_row) {
        const vi u = vi_load_splat((const int_m *)p), v = vi_load_splat((const int_m *)(p + 4));
        for (int c = 0; c < 2; c++)
          y[r][c] = i & 1 ? vi_dot_bytes(second[c], v, vi_dot_bytes(first[c], u, y[r][c]))
                          : vi_dot_shorts(vi_add_shorts(vi_dot_pairs(first[c], u),
                                                        vi_dot_pairs(second[c], v)),
                                          ones, y[r][c]);
      }
    }
  for (int r = 0; r < rows; r++)
    for (int c = 0; c < 2; c++) *(vi_m *)(out + r * COLUMNS + c * VF) = y[r][c];
}
static __attribute__((noinline)) void
tile_of_marked(const runs *run, const uint8_t *a, intptr_t a_row, const int8_t *b, int32_t *out) {
  marked_tile(SHORT_ROWS, run, a, a_row, b, out);
}
static __attribute__((noinline)) void row_of_marked(const runs *run, const uint8_t *a,
                                                    intptr_t a_row, const int8_t *b, int32_t *out) {
  marked_tile(1, run, a, a_row, b, out);
}
#endif

/* ---- epilogue ---- */

typedef struct {
  int32_t offset[COLUMNS], zero[COLUMNS];
  float factor[COLUMNS], bias[COLUMNS];
} columns;

static __attribute__((noinline)) void columns_of(const product *s, int64_t item, int32_t j,
                                                 int64_t row, columns *c) {
  const ew_integer_product_params *p = s->p;
  const int_m *sums = (const int_m *)(s->weights + item * s->w_item);
  const int32_t bits = s->marked ? 8 : 0, moved = s->marked ? SUM_OFFSET : 0;
  uint32_t a_zero =
      (uint32_t)((s->a_zero ? byte_at(s->a_zero, p->a_zeros > 1 ? row : 0, p->a_type == EW_I8)
                            : 0) +
                 s->shift);
  /* the common panel in vectors: with few rows this is a large part of the work */
  if (j + COLUMNS <= p->n && p->b_zeros <= 1 && s->factor && !s->bias) {
    const int32_t zero = (s->b_zero ? byte_at(s->b_zero, 0, p->b_type == EW_I8) : 0) -
                         (p->b_type == EW_I8 ? 0 : 128);
    const real *factor = p->factors > 1 ? s->factor + item * p->column_item + j : NULL;
    const real *bias = s->float_bias ? s->float_bias + item * p->column_item + j : NULL;
    const uint32_t constant = a_zero * (uint32_t)s->k * (uint32_t)zero;
    for (int i = 0; i < COLUMNS; i += VF) {
      *(vi_m *)(c->zero + i) = vi_splat(zero);
      *(vi_m *)(c->offset + i) = (vi)((vu)vi_splat((int32_t)constant) -
                                      (vu)vi_splat((int32_t)a_zero) *
                                          (vu)((*(const vi_m *)(sums + j + i) >> bits) - moved));
      vf_store(c->factor + i, (factor ? vf_load(factor + i) : vf_splat(*s->factor)) * s->scale);
      vf_store(c->bias + i, bias ? vf_load(bias + i) : vf_splat(0));
    }
    return;
  }
  EW_PLAIN_FOR (int32_t i = 0; i < COLUMNS; i++) {
    int64_t at = item * p->column_item + j + i;
    bool there = j + i < p->n;
    int32_t zero =
        (s->b_zero && there ? byte_at(s->b_zero, p->b_zeros > 1 ? at : 0, p->b_type == EW_I8) : 0) -
        (p->b_type == EW_I8 ? 0 : 128);
    c->zero[i] = zero;
    c->offset[i] = there ? (int32_t)((s->bias ? (uint32_t)s->bias[at] : 0) -
                                     a_zero * ((uint32_t)((sums[j + i] >> bits) - moved) -
                                               (uint32_t)s->k * (uint32_t)zero))
                         : 0;
    c->factor[i] = there && s->factor ? s->factor[p->factors > 1 ? at : 0] * s->scale : s->scale;
    c->bias[i] = there && s->float_bias ? s->float_bias[at] : 0;
  }
}

/* Writes floats: activation(t) + residual. `at`: the first element of y. */
static __attribute__((noinline)) void put_floats(const product *s, real *t, int32_t rows,
                                                 int64_t at, int32_t cols) {
  ew_activate(t, rows * COLUMNS, s->p->activation);
  for (; rows > 0; rows--, t += COLUMNS, at += s->p->y_row) {
    real *y = (real *)s->y + at;
    const real *residual = s->residual ? s->residual + at : NULL;
    if (cols == COLUMNS)
      for (int i = 0; i < COLUMNS; i += VF)
        vf_store(y + i, residual ? vf_load(t + i) + vf_load(residual + i) : vf_load(t + i));
    else
      EW_PLAIN_FOR (int32_t i = 0; i < cols; i++) y[i] = residual ? t[i] + residual[i] : t[i];
  }
}

/* Writes `rows` rows of sums as rows of `cols` results, from element `at` of y on. */
static __attribute__((noinline)) void finish(const product *s, int32_t *sums, const columns *c,
                                             const int32_t *row_sum, int32_t rows, int64_t at,
                                             int32_t cols) {
  const ew_integer_product_params *p = s->p;
  const int64_t size = p->y_type == EW_I32 || p->y_type == EW_F32 ? 4 : 1;
  const vf rounder = vf_splat(0x1.8p23f), low = vf_splat((float)(p->low - s->y_zero)),
           high = vf_splat((float)(p->high - s->y_zero)), u = vf_load(c->factor),
           v = vf_load(c->factor + VF);
  const vi back = vi_splat(s->y_zero) - (vi)rounder, m = *(const vi_m *)c->offset,
           n = *(const vi_m *)(c->offset + VF);
  const ew_bounds limit = ew_bounds_of(p->activation);
  const bool later = p->y_type == EW_F32 && (limit.dear || s->residual || cols < COLUMNS);
  int32_t *const first = sums;
  uint8_t *y = s->y + at * size;
  for (int32_t r = 0; r < rows; r++, sums += COLUMNS, y += p->y_row * size) {
    uint8_t t[4 * COLUMNS], *to = later ? (uint8_t *)sums : cols == COLUMNS ? y : t;
    vi a = (vi)((vu) * (const vi_m *)sums + (vu)m),
       b = (vi)((vu) * (const vi_m *)(sums + VF) + (vu)n);
    if (s->sums)
      a = (vi)((vu)a - (vu) * (const vi_m *)c->zero * (uint32_t)row_sum[r]),
      b = (vi)((vu)b - (vu) * (const vi_m *)(c->zero + VF) * (uint32_t)row_sum[r]);
    if (p->y_type == EW_I32)
      *(vi_m *)to = a, *(vi_m *)(to + 4 * VF) = b;
    else {
      vf e = __builtin_convertvector(a, vf) * u, f = __builtin_convertvector(b, vf) * v;
      if (p->y_type == EW_F32)
        vf_store((real *)to, ew_bounded(&limit, e + vf_load(c->bias))),
            vf_store((real *)to + VF, ew_bounded(&limit, f + vf_load(c->bias + VF)));
      else
        vi_store_bytes(to, (vi)(vf_min(vf_max(e, low), high) + rounder) + back,
                       (vi)(vf_min(vf_max(f, low), high) + rounder) + back);
    }
    if (to == t) memcpy(y, t, (size_t)(cols * size));
  }
  if (later) put_floats(s, (real *)first, rows, at, cols);
}

static void product_task(void *arg, int32_t index, int32_t thread) {
  const product *s = arg;
  const ew_integer_product_params *p = s->p;
  int32_t column = index % s->column_tasks, block = index / s->column_tasks % s->row_tasks;
  int64_t item = index / s->column_tasks / s->row_tasks, first = (int64_t)block * s->mc,
          mc = less(s->rows - first, s->mc), a_row = s->direct ? p->a_row : s->row_bytes;
  const int64_t y_at = item * p->y_item + first * p->y_row;
  const uint8_t *a = s->a + item * p->a_item;
  int32_t sum[BLOCK] = {0}, t[DOT_ROWS * COLUMNS], from = column * s->nc,
          to = from + (int32_t)less(p->n - from, s->nc);
  if (s->direct)
    a += first * p->a_row;
  else {
    uint8_t *rows = s->scratch + s->share * (s->by_index ? index : thread);
    for (int64_t i = 0; i < mc; i++) gather(s, a, first + i, rows + i * s->row_bytes);
    a = rows;
  }
  if (s->sums)
    for (int64_t i = 0; i < mc; i++) sum[i] = sum_of(s, a + i * a_row);
  const int32_t height = s->height;
  const uint8_t *weights = s->weights + item * s->w_item + up_to(p->n, WIDEST) * WIDEST * 4;
  for (int32_t j = from; j < to && !ew_stopping(s->context); j += COLUMNS) {
    columns c;
    columns_of(s, item, j, first, &c);
#if EW_RELAXED_DOTS
    runs r;
    if (s->marked) runs_of(s, s->weights + item * s->w_item + 4 * (int64_t)j, &r);
#endif
    for (int64_t i = 0; i < mc;) {
      /* computes some rows again rather than the last ones one by one */
      if (mc >= height && mc - i < height && mc - i >= height / 2) i = mc - height;
      int32_t rows = mc - i >= height ? height : 1;
      const int8_t *panel = (const int8_t *)weights + j * s->k4;
#if EW_RELAXED_DOTS
      if (s->marked)
        (rows > 1 ? tile_of_marked : row_of_marked)(&r, a + i * a_row, a_row, panel, t);
      else
#endif
        (s->dots ? rows > 1 ? tile_of_bytes : row_of_bytes
         : rows > 1
             ? tile_of_shorts
             : row_of_shorts)(s->dots ? s->k4 / 4 : s->k4 / 2, a + i * a_row, a_row, panel, t);
      const int64_t at = y_at + i * p->y_row + j;
      if (p->a_zeros <= 1)
        finish(s, t, &c, sum + i, rows, at, (int32_t)less(to - j, COLUMNS));
      else
        for (int32_t row = 0; row < rows; row++) {
          columns_of(s, item, j, first + i + row, &c);
          finish(s, t + row * COLUMNS, &c, sum + i + row, 1, at + (int64_t)row * p->y_row,
                 (int32_t)less(to - j, COLUMNS));
        }
      i += rows;
    }
  }
}

int32_t ew_k_integer_product(ew_context *ctx, const ew_integer_product_params *p,
                             void *const *operand) {
  product s = {.context = ctx,
               .p = p,
               .w = EW_WINDOW_OF(p),
               .a = operand[EW_INTEGER_PRODUCT_A],
               .weights = operand[EW_INTEGER_PRODUCT_W],
               .a_zero = operand[EW_INTEGER_PRODUCT_A_ZERO],
               .b_zero = operand[EW_INTEGER_PRODUCT_B_ZERO],
               .bias = operand[EW_INTEGER_PRODUCT_SUM_BIAS],
               .factor = operand[EW_INTEGER_PRODUCT_FACTOR],
               .float_bias = operand[EW_INTEGER_PRODUCT_BIAS],
               .residual = operand[EW_INTEGER_PRODUCT_RESIDUAL],
               .scale = 1,
               .y = operand[EW_INTEGER_PRODUCT_Y],
               .scratch = operand[EW_INTEGER_PRODUCT_SCRATCH],
               .dots = vi_dots()};
  const int32_t threads = ew_parallel_width(ctx);
  const bool is_signed = p->a_type == EW_I8;
  if (operand[EW_INTEGER_PRODUCT_A_SCALE])
    s.scale = *(const real *)operand[EW_INTEGER_PRODUCT_A_SCALE];
  if (operand[EW_INTEGER_PRODUCT_Y_ZERO])
    s.y_zero = byte_at(operand[EW_INTEGER_PRODUCT_Y_ZERO], 0, p->y_type == EW_I8);
  s.y_volume = ew_volume(p->y_size), s.rows = p->batch * s.y_volume,
  s.k = ew_volume(p->taps) * p->c, s.k4 = up_to(s.k, 4) * 4;
  s.w_item = p->w_each ? up_to(p->n, WIDEST) * WIDEST * (4 + s.k4) : 0;
  if (EW_RELAXED_DOTS && ew_may_mark(s.k) && *(const int_m *)s.weights >= MARK)
    s.marked = true, s.dots = EW_UNSIGNED_DOTS;
  if (s.dots == EW_UNSIGNED_DOTS && is_signed) s.flip = 128, s.shift = 128;
  if (s.dots == EW_SIGNED_DOTS && !is_signed) s.flip = 128, s.shift = -128;
  s.row_bytes = s.dots ? s.k4 : 2 * s.k4;
  s.sums = p->b_type == EW_U8 || operand[EW_INTEGER_PRODUCT_B_ZERO];
  if (s.sums) { /* unless all corrections are zero */
    const uint8_t *zero = operand[EW_INTEGER_PRODUCT_B_ZERO], none = p->b_type == EW_I8 ? 0 : 128;
    int64_t count = p->b_zeros > 1 ? (int64_t)(p->items - 1) * p->column_item + p->n : 1, i = 0;
    while (zero && i < count && zero[i] == none) i++;
    s.sums = i < count;
  }
  s.direct = s.dots && !s.flip && s.k == s.k4 && ew_volume(p->taps) == 1 && p->stride[0] == 1 &&
             p->stride[1] == 1 && p->stride[2] == 1 && p->pad[0] == 0 && p->pad[1] == 0 &&
             p->pad[2] == 0 && ew_volume(p->x_size) == s.y_volume;
  const int32_t height = s.height = s.dots && !s.marked ? DOT_ROWS : SHORT_ROWS;
  int64_t shares = less(p->scratch_bytes / (height * s.row_bytes), threads),
          mc = s.direct ? BLOCK / 2 : BLOCK;
  s.share = p->scratch_bytes / shares;
  if (!s.direct) mc = less(mc, s.share / s.row_bytes);
  mc = less(mc, up_to(s.rows * p->items, 4 * threads));
  mc = mc < height ? height : mc / height * height;
  s.mc = (int32_t)mc, s.row_tasks = (int32_t)up_to(s.rows, mc);
  const int64_t columns = up_to(p->n, COLUMNS);
  const double work = (double)s.k * (double)s.rows * p->items * p->n;
  /* few rows: divide the columns as well */
  int64_t split =
      threads > 1 ? less(up_to(2 * threads, (int64_t)s.row_tasks * p->items), columns) : 1;
  if (split > 1 && work / 262144 < (double)split) split = (int64_t)(work / 262144) + 1;
  s.nc = (int32_t)up_to(columns, split) * COLUMNS,
  s.column_tasks = (int32_t)up_to(columns, s.nc / COLUMNS);
  int64_t tasks = (int64_t)s.row_tasks * p->items * s.column_tasks;
  /* long rows and many threads: the scratch does not suffice for all threads */
  if (!s.direct && shares < threads && tasks > shares) {
    for (int64_t i = 0; i < tasks && !ew_stopping(ctx); i++) product_task(&s, (int32_t)i, 0);
    return EW_OK;
  }
  s.by_index = shares < threads;
  ew_parallel(ctx, (int32_t)tasks, product_task, &s);
  return EW_OK;
}
