/* Matrix product with few rows of a: b is read once, in place, without packing. Tasks are ranges of
 * columns or of k; rows and columns are vectorized.
 *
 * Performance depends on the order of memory accesses: a single stream from one end to the other
 * reaches 45 GB/s, while adjacent rows, each a stream that ends and starts anew, reach 20 to 30.
 * Therefore one row of b is multiplied with one row of a as a whole, or one column is. Several rows
 * of b are combined, which saves loads of sums, only if there are several rows of a, if b's rows
 * are so short that several form one stream, or if they are so long that the sums leave the L1
 * cache. */
#include "kernels/product/gemm_parts.h"

enum {
  FEW = 16,           /* maximum rows of a, if b is read by rows */
  FEW_COLUMNS = 8,    /* maximum rows of a, if b is read by columns */
  SUMS = 4096,        /* floats of sums on the stack */
  MOST_SUMS = 24576,  /* floats of sums in scratch, at most, with several rows of a */
  SHORT_ROW = 64,     /* elements of a row of b below which several rows form one stream */
  SHORT_COLUMN = 128, /* the same for columns */
  FIRST_CACHE = 6144, /* floats of a that stay in the L1 cache beside a column of b */
  MOST_SCALED = 3072, /* floats of a on the stack, multiplied by EW_RAW_SCALE */
  TOGETHER = 4        /* rows of b that are combined */
};

/* Distance between rows of sums: not a multiple of the L1 cache's way size, where rows would evict
 * each other. */
EW_INLINE int32_t padded(int32_t n) { return n + 16; }

/* What b is read as. RAW: halves that are zero or normal, for one row of a, which has been
 * multiplied by EW_RAW_SCALE instead of all of b. */
enum { FLOATS, HALVES, RAW };
EW_INLINE void load_b(vf *w, int n, const void *b, int64_t i, int form) {
  if (form == RAW)
    for (int u = 0; u < n; u += 2)
      vf_load_raw_halves((const half *)b + i + u * VF, &w[u], &w[u + 1]);
  else
    vf_load_at(w, n, b, i, form == HALVES);
}
EW_INLINE float b_at(const void *b, int64_t i, int form) {
  return real_at(b, i, form != FLOATS) * (form == RAW ? 1 / EW_RAW_SCALE : 1);
}

typedef struct {
  const ew_gemm_job *g;
  const real *a;
  int64_t a_row;
  bool raw;   /* b is read as RAW */
  real *sums; /* scratch for the sums of each task; NULL: on the stack */
  /* room: floats of sums per task; parts: parts of k, which the caller adds if there are several;
   * cols, depth: columns and rows of b per task */
  int32_t room, parts, cols, depth, column_tasks;
} gemm_few_rows;

/* out[rows][cols] = rows of a times columns of b, both contiguous along k; rows * cols * turn <= 8
 * accumulators. */
EW_INLINE void dots(int rows, int cols, int turn, int32_t k, const real *a, int64_t a_row,
                    const void *b, int64_t b_col, int form, float *out) {
  const int wide = form == HALVES ? 2 : turn;
  vf s[8], w[4];
  int32_t p = 0;
  for (int i = 0; i < rows * cols * turn; i++) s[i] = vf_splat(0);
  for (; p + wide * VF <= k; p += wide * VF)
    for (int c = 0; c < cols; c++) {
      load_b(w, wide, b, c * b_col + p, form);
      for (int u = 0; u < wide; u++)
        for (int r = 0; r < rows; r++)
          s[(r * cols + c) * turn + u % turn] = vf_fma(vf_load(a + r * a_row + p + u * VF), w[u],
                                                       s[(r * cols + c) * turn + u % turn]);
    }
  for (int i = 0; i < rows * cols; i++) {
    vf sum = s[i * turn];
    for (int u = 1; u < turn; u++) sum += s[i * turn + u];
    out[i] = vf_sum(sum);
  }
  EW_PLAIN_FOR (; p < k; p++)
    EW_PLAIN_FOR (int i = 0; i < rows * cols; i++)
      out[i] += a[i / cols * a_row + p] * b_at(b, i % cols * b_col + p, form);
}
#define DOTS(name, rows, cols, turn, form)                                               \
  static __attribute__((noinline)) void name(int32_t k, const real *a, int64_t a_row,    \
                                             const void *b, int64_t b_col, float *out) { \
    dots(rows, cols, turn, k, a, a_row, b, b_col, form, out);                            \
  }
DOTS(dots_1x4, 1, 4, 2, FLOATS)
DOTS(dots_2x4, 2, 4, 1, FLOATS)
DOTS(dots_4x2, 4, 2, 1, FLOATS)
DOTS(dots_1x4_half, 1, 4, 1, HALVES)
DOTS(dots_2x4_half, 2, 4, 1, HALVES)
DOTS(dots_4x2_half, 4, 2, 1, HALVES)
#undef DOTS
/* One column after the other in a single loop: if it were inlined several times, its loads would
 * look like several streams to the prefetcher. As many rows of m as form whole groups are
 * multiplied with a column while it is in cache. out[m][out_row] */
#define COLUMNS(name, rows, turn, form)                                                         \
  static __attribute__((noinline)) void name(int32_t m, int32_t cols, int32_t k, const real *a, \
                                             int64_t a_row, const char *b, int64_t b_col,       \
                                             float *out, int32_t out_row) {                     \
    for (; cols > 0; cols--, b += b_col * (form ? 2 : 4), out++)                                \
      for (int32_t i = 0; i + rows <= m; i += rows) {                                           \
        float t[rows];                                                                          \
        dots(rows, 1, turn, k, a + i * a_row, a_row, b, 0, form, t);                            \
        for (int r = 0; r < rows; r++) out[(i + r) * out_row] = t[r];                           \
      }                                                                                         \
  }
COLUMNS(columns_of_1, 1, 4, FLOATS)
COLUMNS(columns_of_2, 2, 4, FLOATS)
COLUMNS(columns_of_4, 4, 2, FLOATS)
COLUMNS(raw_columns, 1, 4, RAW)
#undef COLUMNS

void ew_dots(int32_t rows, int32_t k, const real *a, int64_t a_row, const void *b, int64_t b_col,
             bool is_half, float *out) {
  if (is_half && EW_USES(B_TYPE, EW_F16)) {
    if (rows == 1)
      dots_1x4_half(k, a, a_row, b, b_col, out);
    else if (rows == 2)
      dots_2x4_half(k, a, a_row, b, b_col, out);
  } else if (rows == 1)
    dots_1x4(k, a, a_row, b, b_col, out);
  else if (rows == 2)
    dots_2x4(k, a, a_row, b, b_col, out);
  for (int c = 0; rows > 2 && c < 4; c += 2) {
    float t[8];
    if (is_half && EW_USES(B_TYPE, EW_F16))
      dots_4x2_half(k, a, a_row, (const char *)b + c * b_col * 2, b_col, t);
    else
      dots_4x2(k, a, a_row, (const char *)b + c * b_col * 4, b_col, t);
    for (int r = 0; r < 4; r++) out[r * 4 + c] = t[r * 2], out[r * 4 + c + 1] = t[r * 2 + 1];
  }
}

static void columns_task(void *arg, int32_t index, int32_t thread) {
  const gemm_few_rows *f = arg;
  const ew_gemm_job *g = f->g;
  const ew_b_layout *s = g->b_more;
  (void)thread;
  const int32_t begin = index * f->cols, end = begin + at_most(g->n - begin, f->cols),
                chunk = SUMS / 4 / FEW_COLUMNS;
  /* rows of a must fit in cache beside a column */
  const bool raw = f->raw && EW_USES(B_TYPE, EW_F16),
             alone = raw || (!s->is_half && g->k >= SHORT_COLUMN &&
                             (g->m < 4 || (int64_t)g->m * g->k <= FIRST_CACHE));
  for (int32_t j0 = begin; j0 < end; j0 += chunk) {
    const int32_t n = at_most(end - j0, chunk);
    float t[SUMS / 4];
    for (int32_t i = 0, rows; alone && i < g->m; i += rows) {
      rows = g->m - i >= 4 ? (g->m - i) / 4 * 4 : ew_dots_rows(g->m - i);
      (raw         ? raw_columns
       : rows >= 4 ? columns_of_4
       : rows == 2 ? columns_of_2
                   : columns_of_1)(rows, n, g->k, f->a + i * f->a_row, f->a_row,
                                   (const char *)g->b + j0 * s->col * (raw ? 2 : 4), s->col,
                                   t + i * chunk, chunk);
    }
    for (int32_t j = alone ? n : 0, cols; j < n; j += cols) {
      const char *b = (const char *)g->b + (j0 + j) * s->col * (s->is_half ? 2 : 4);
      cols = n - j >= 4 ? 4 : 1; /* at the end a single column, used four times */
      for (int32_t i = 0, rows; i < g->m; i += rows) {
        float out[16];
        rows = ew_dots_rows(g->m - i);
        ew_dots(rows, g->k, f->a + i * f->a_row, f->a_row, b, cols == 4 ? s->col : 0, s->is_half,
                out);
        for (int32_t r = 0; r < rows; r++)
          for (int32_t c = 0; c < cols; c++) t[(i + r) * chunk + j + c] = out[r * 4 + c];
      }
    }
    for (int32_t i = 0; i < g->m; i++)
      ew_finish_row(&g->finish, g->y + (int64_t)i * g->y_row + j0, t + i * chunk, i, j0, n,
                    g->y_row);
  }
}

/* y[m][n] += x[m][count] b[count][n]. b stays in registers, `wide` vectors of each row, while it is
 * multiplied with all rows. Returns the number of columns done. */
EW_INLINE int32_t add_vectors(int32_t j, int count, int wide, int32_t m, int32_t n, const real *x,
                              int64_t x_row, const void *b, int64_t b_row, real *y, int64_t y_row,
                              int form) {
  for (; j + wide * VF <= n; j += wide * VF) {
    vf w[TOGETHER][2];
    const real *p = x;
    real *q = y + j;
    for (int r = 0; r < count; r++) load_b(w[r], wide, b, r * b_row + j, form);
    for (int32_t i = 0; i < m; i++, p += x_row, q += y_row) {
      vf t[2];
      for (int c = 0; c < wide; c++) t[c] = vf_load(q + c * VF);
      for (int r = 0; r < count; r++) {
        const vf v = vf_load_splat(p + r);
        for (int c = 0; c < wide; c++) t[c] = vf_fma(v, w[r][c], t[c]);
      }
      for (int c = 0; c < wide; c++) vf_store(q + c * VF, t[c]);
    }
  }
  return j;
}
EW_INLINE void add_rows(int count, int32_t m, int32_t n, const real *x, int64_t x_row,
                        const void *b, int64_t b_row, real *y, int64_t y_row, int form) {
  int32_t j = add_vectors(0, count, 2, m, n, x, x_row, b, b_row, y, y_row, form);
  if (form != RAW) j = add_vectors(j, count, 1, m, n, x, x_row, b, b_row, y, y_row, form);
  EW_PLAIN_FOR (; j < n; j++)
    EW_PLAIN_FOR (int32_t i = 0; i < m; i++)
      EW_PLAIN_FOR (int r = 0; r < count; r++)
        y[i * y_row + j] += x[i * x_row + r] * b_at(b, r * b_row + j, form);
}
/* The same with k rows of b in a single loop, whose loads the prefetcher sees as one stream. */
EW_INLINE void add_all(int count, int32_t k, int32_t m, int32_t n, const real *x, int64_t x_row,
                       const char *b, int64_t b_row, real *y, int64_t y_row, int form) {
  const int64_t bytes = b_row * (form ? 2 : 4);
  for (; k >= count; k -= count, x += count, b += count * bytes)
    add_rows(count, m, n, x, x_row, b, b_row, y, y_row, form);
  for (; count > 1 && k > 0; k--, x++, b += bytes)
    add_rows(1, m, n, x, x_row, b, b_row, y, y_row, form);
}
#define ADD(name, count, m, form)                                                                  \
  static __attribute__((noinline)) void name(int32_t k, int32_t rows, int32_t n, const real *x,    \
                                             int64_t x_row, const void *b, int64_t b_row, real *y, \
                                             int64_t y_row) {                                      \
    (void)rows;                                                                                    \
    add_all(count, k, m, n, x, x_row, b, b_row, y, y_row, form);                                   \
  }
ADD(add_alone, 1, 1, FLOATS)
ADD(add_alone_2, 1, 2, FLOATS)
ADD(add_together, TOGETHER, rows, FLOATS)
ADD(add_together_half, TOGETHER, rows, HALVES)
ADD(add_raw, 1, 1, RAW)
#undef ADD

static void rows_task(void *arg, int32_t index, int32_t thread) {
  const gemm_few_rows *f = arg;
  const ew_gemm_job *g = f->g;
  const ew_b_layout *s = g->b_more;
  (void)thread;
  const int32_t part = index / f->column_tasks, begin = index % f->column_tasks * f->cols,
                end = begin + at_most(g->n - begin, f->cols), k0 = part * f->depth,
                k = at_most(g->k - k0, f->depth);
  /* columns whose sums are kept at a time */
  const int32_t most = (f->sums ? g->m == 1 ? f->room : at_most(f->room, MOST_SUMS) : SUMS) / g->m -
                       padded(0),
                chunk = blocks_of(blocks_of(end - begin, blocks_of(end - begin, most)), NR) * NR;
  for (int32_t j = begin; j < end; j += chunk) {
    float t[SUMS];
    real *y = f->sums ? f->sums + (int64_t)index * f->room : t;
    const int32_t n = at_most(end - j, chunk), row = padded(n);
    const real *a = f->a + k0;
    const char *b = (const char *)g->b + (k0 * s->row + j) * (s->is_half ? 2 : 4);
    memset(y, 0, (size_t)row * (size_t)g->m * sizeof *y);
    const bool alone = g->m <= 2 && n >= SHORT_ROW && g->m * n <= SUMS;
    if (s->is_half && EW_USES(B_TYPE, EW_F16))
      (f->raw ? add_raw : add_together_half)(k, g->m, n, a, f->a_row, b, s->row, y, row);
    else
      (!alone      ? add_together
       : g->m == 1 ? add_alone
                   : add_alone_2)(k, g->m, n, a, f->a_row, b, s->row, y, row);
    for (int32_t i = 0; f->parts == 1 && i < g->m; i++)
      ew_finish_row(&g->finish, g->y + (int64_t)i * g->y_row + j, y + (int64_t)i * row, i, j, n,
                    g->y_row);
  }
}

/* scaled[k] = EW_RAW_SCALE a[k]; false if a number is too large. */
static bool scale(int32_t k, const real *a, real *scaled) {
  bool fits = true;
  EW_PLAIN_FOR (int32_t p = 0; p < k; p++) {
    fits &= a[p] < 0x1p15f && a[p] > -0x1p15f;
    scaled[p] = a[p] * EW_RAW_SCALE;
  }
  return fits;
}

bool ew_gemm_few(ew_context *ctx, const ew_gemm_job *g, real *packed_b, int64_t b_floats,
                 real *packed_a, int64_t a_floats, int32_t threads) {
  const ew_b_layout *s = g->b_more;
  const bool by_rows = s->row != 1;
  if (g->m > (!by_rows           ? FEW_COLUMNS
              : g->n < SHORT_ROW ? TOGETHER
                                 : FEW) ||
      (by_rows && s->col != 1) || ew_bytes_of_b(s->type) == 1)
    return false;
  gemm_few_rows f = {.g = g, .a = g->a, .a_row = g->a_row, .depth = g->k, .parts = 1, .cols = g->n};
  if (g->a_col != 1) {
    if (!packed_a || (int64_t)g->m * g->k > a_floats) return false;
    ew_gemm_pack_a(g, packed_a, 0, g->m, 0, g->k);
    f.a = packed_a, f.a_row = g->k;
    /* rows that would all map to the same cache sets */
  } else if (g->m > 2 && g->a_row % 512 == 0 && packed_a &&
             (int64_t)g->m * padded(g->k) <= a_floats) {
    for (int32_t i = 0; i < g->m; i++)
      memcpy(packed_a + (int64_t)i * padded(g->k), g->a + (int64_t)i * g->a_row,
             (size_t)g->k * sizeof *packed_a);
    f.a = packed_a, f.a_row = padded(g->k);
  }
  float scaled[MOST_SCALED];
  if (s->is_normal && g->m == 1 && g->k <= MOST_SCALED && scale(g->k, f.a, scaled))
    f.a = scaled, f.raw = true;
  /* A task takes about 30 microseconds: 2^17 multiply-adds that are mostly bound by memory. Columns
   * are divided among tasks, or k if rows would have to be cut otherwise. */
  const int64_t room = (int64_t)g->m * padded(g->n), worth = (int64_t)g->n * g->m * g->k >> 17;
  const int32_t tasks = worth < threads ? (int32_t)worth + 1 : threads;
  if (by_rows && packed_b && tasks > 1 && room <= (g->m == 1 ? b_floats / tasks : MOST_SUMS))
    f.depth = blocks_of(g->k, tasks), f.parts = blocks_of(g->k, f.depth);
  else
    f.cols = at_most((blocks_of(g->n, tasks) + 15) / 16 * 16, g->n);
  f.column_tasks = blocks_of(g->n, f.cols);
  const int32_t count = f.column_tasks * f.parts;
  if (by_rows && packed_b && room > SUMS / (f.parts > 1 ? SUMS : 1))
    f.sums = packed_b, f.room = (int32_t)(b_floats / count);
  if (count == 1)
    (by_rows ? rows_task : columns_task)(&f, 0, 0);
  else
    ew_parallel(ctx, count, by_rows ? rows_task : columns_task, &f);
  for (int32_t i = 0; f.parts > 1 && i < g->m; i++) {
    real *y = f.sums + (int64_t)i * padded(g->n);
    for (int32_t part = 1; part < f.parts; part++)
      add_alone(1, 1, g->n, &(const float){1}, 0, y + (int64_t)part * f.room, 0, y, 0);
    ew_finish_row(&g->finish, g->y + (int64_t)i * g->y_row, y, i, 0, g->n, g->y_row);
  }
  return true;
}
