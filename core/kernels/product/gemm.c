/* Matrix product (MatMul, Gemm, fused products): y = activation(alpha a b + beta bias) + residual.
 * b is float32, float16 or bytes with a scale.
 *
 * Large products pack b into blocks, products of few rows read it in place; with enough matrices in
 * a batch, each task computes whole ones. First the blocked product, which other kernels use, too
 * (gemm.h); then few rows; then the packing of b for each layout and type, and the batches. */
/* long: packing, tiles and batches of one product share their sizes and inline functions */
#include "kernels/product/gemm.h"
#include <string.h>

EW_INLINE int32_t at_most(int32_t x, int32_t limit) { return x < limit ? x : limit; }
EW_INLINE int32_t blocks_of(int32_t x, int32_t block) { return x / block + (x % block != 0); }

/* How b is stored: strides in elements and the element type. ew_gemm_job.b_more of the kernel gemm.
 */
typedef struct {
  int64_t row, col;
  int32_t type;
  bool is_half, is_normal; /* is_normal: halves are zero or normal */
} ew_b_layout;
EW_INLINE int64_t ew_bytes_of_b(int32_t type) {
  return type == EW_F32 ? 4 : type == EW_F16 ? 2 : 1;
}

/* Blocked matrix product (Goto, van de Geijn 2008): a block of b and a block of a are packed into
 * panels in the order in which the inner loop reads them, so that it streams through cache with
 * constant strides. Tasks are blocks of rows and columns; the inner loops keep MR x NR sums in
 * vector registers. */

/* Not inlined: one copy in the engine, because activations are long. */
__attribute__((noinline)) void ew_activate(real *t, int32_t n, int32_t activation) {
#define EACH(NAME)                                                        \
  case EW_ACTIVATION_##NAME:                                              \
    for (int32_t j = 0; j < n; j += VF)                                   \
      vf_store(t + j, vf_activate(vf_load(t + j), EW_ACTIVATION_##NAME)); \
    break
  switch (EW_CHOICE(ACTIVATION, activation)) {
    EACH(GELU);
    EACH(GELU_TANH);
    EACH(SILU);
    EACH(TANH);
    EACH(SIGMOID);
    EACH(QUICK_GELU);
  }
#undef EACH
}

void ew_finish_row(const ew_finish *f, real *y, const real *sums, int32_t row, int32_t col,
                   int32_t n, int32_t y_row) {
  enum { LENGTH = 16 * VF };
  const real *bias =
      f->bias ? f->bias + (int64_t)row * f->bias_row + (int64_t)col * f->bias_col : NULL;
  const real *residual = f->residual ? f->residual + (int64_t)row * y_row + col : NULL;
  const ew_bounds limit = ew_bounds_of(f->activation);
  float t[LENGTH], b[VF];
  vf same = vf_splat(bias && !f->bias_col ? *bias * f->beta : 0);
  for (int32_t j = 0, count; j < n; j += count) {
    count = at_most(n - j, LENGTH);
    int32_t whole = count - count % VF, i = 0;
    /* The last vector may extend beyond the elements; the excess lanes are ignored. */
    for (; i < count; i += VF) {
      const int32_t some = at_most(count - i, VF);
      vf sum, add = same;
      if (some == VF)
        sum = vf_load(sums + j + i);
      else {
        for (int32_t c = 0; c < VF; c++) b[c] = c < some ? sums[j + i + c] : 0;
        sum = vf_load(b);
      }
      if (bias && f->bias_col == 1 && some == VF)
        add = vf_load(bias + j + i) * f->beta;
      else if (bias && f->bias_col) {
        for (int32_t c = 0; c < VF; c++)
          b[c] = c < some ? bias[(int64_t)(j + i + c) * f->bias_col] * f->beta : 0;
        add = vf_load(b);
      }
      vf_store(t + i, ew_bounded(&limit, vf_fma(sum, vf_splat(f->alpha), add)));
    }
    if (limit.dear) ew_activate(t, i, f->activation);
    for (i = 0; i < whole; i += VF)
      vf_store(y + j + i, residual ? vf_load(t + i) + vf_load(residual + j + i) : vf_load(t + i));
    for (; i < count; i++) y[j + i] = residual ? t[i] + residual[j + i] : t[i];
  }
}

/* Copies rows from i0 on of a into contiguous rows [mc][kc]. */
static __attribute__((noinline)) void pack_a(const ew_gemm_job *g, real *rows, int32_t i0,
                                             int32_t mc, int32_t k0, int32_t kc) {
  int64_t row = g->a_row, col = g->a_col;
  const real *a = g->a + i0 * row + k0 * col;
  int32_t i = 0;
  for (; row == 1 && i + 4 <= mc; i += 4) {
    int32_t p = 0;
    for (; p + 4 <= kc; p += 4) {
      f32x4 v[4];
      for (int c = 0; c < 4; c++) v[c] = *(const f32x4_m *)(a + i + (p + c) * col);
      f32x4_transpose(&v[0], &v[1], &v[2], &v[3]);
      for (int r = 0; r < 4; r++) *(f32x4_m *)(rows + (int64_t)(i + r) * kc + p) = v[r];
    }
    EW_PLAIN_FOR (; p < kc; p++)
      for (int r = 0; r < 4; r++) rows[(int64_t)(i + r) * kc + p] = a[i + r + p * col];
  }
  EW_PLAIN_FOR (; i < mc; i++)
    EW_PLAIN_FOR (int32_t p = 0; p < kc; p++) rows[(int64_t)i * kc + p] = a[i * row + p * col];
}

/* ---- the inner loop ---- */

/* The address of each row is computed from that of the previous one, so that few pointers are live:
 * V8 keeps all of this in registers. */
EW_INLINE void tile(int rows, int32_t kc, const real *a, intptr_t a_row, const real *b, real *out,
                    intptr_t out_row, const real *from) {
  vf y[MR][2];
  for (int r = 0; r < rows; r++)
    for (int c = 0; c < 2; c++) y[r][c] = from ? vf_load(from + r * out_row + c * VF) : vf_splat(0);
  for (const real *end = a + kc; a < end; a++, b += NR) {
    const real *p = a;
    vf row[2];
    for (int c = 0; c < 2; c++) row[c] = vf_load(b + c * VF);
    for (int r = 0; r < rows; r++, p += a_row) {
      vf x = vf_load_splat(p);
      for (int c = 0; c < 2; c++) y[r][c] = vf_fma(x, row[c], y[r][c]);
    }
  }
  for (int r = 0; r < rows; r++)
    for (int c = 0; c < 2; c++) vf_store(out + r * out_row + c * VF, y[r][c]);
}
__attribute__((noinline)) void ew_tile(int32_t kc, const real *a, intptr_t a_row, const real *b,
                                       real *out, intptr_t out_row, const real *from) {
  tile(MR, kc, a, a_row, b, out, out_row, from);
}
#if VF == 16
/* Rows in groups of four, addressed as one register plus 0 to 3 times a_row. */
EW_INLINE void tall_tile(int groups, int vectors, int32_t kc, const real *a, intptr_t a_row,
                         const real *b, real *out, intptr_t out_row, const real *from) {
  vf y[4 * MAX_TILES][2];
  const real *p[MAX_TILES];
  for (int g = 0; g < groups; g++) p[g] = a + 4 * g * a_row;
  for (int r = 0; r < 4 * groups; r++)
    for (int c = 0; c < vectors; c++)
      y[r][c] = from ? vf_load(from + r * out_row + c * VF) : vf_splat(0);
  for (const real *end = b + (intptr_t)kc * NR; b < end; b += NR) {
    vf row[2];
    for (int c = 0; c < vectors; c++) row[c] = vf_load(b + c * VF);
    for (int g = 0; g < groups; g++, p[g - 1]++)
      for (int r = 0; r < 4; r++) {
        const vf x = vf_load_splat(p[g] + r * a_row);
        for (int c = 0; c < vectors; c++) y[4 * g + r][c] = vf_fma(x, row[c], y[4 * g + r][c]);
      }
  }
  for (int r = 0; r < 4 * groups; r++)
    for (int c = 0; c < vectors; c++) vf_store(out + r * out_row + c * VF, y[r][c]);
}
void ew_tiles(int32_t tiles, int32_t kc, const real *a, intptr_t a_row, const real *b, real *out,
              intptr_t out_row, const real *from) {
  if (tiles == 3)
    tall_tile(3, 2, kc, a, a_row, b, out, out_row, from);
  else if (tiles == 2)
    tall_tile(2, 2, kc, a, a_row, b, out, out_row, from);
  else
    tall_tile(1, 2, kc, a, a_row, b, out, out_row, from);
}
/* Computes only the first half of the columns, for a last panel that has no more. */
static void half_tiles(int32_t tiles, int32_t kc, const real *a, intptr_t a_row, const real *b,
                       real *out) {
  if (tiles == 3)
    tall_tile(3, 1, kc, a, a_row, b, out, NR, NULL);
  else if (tiles == 2)
    tall_tile(2, 1, kc, a, a_row, b, out, NR, NULL);
  else
    tall_tile(1, 1, kc, a, a_row, b, out, NR, NULL);
}
#else
EW_INLINE void half_tiles(int32_t tiles, int32_t kc, const real *a, intptr_t a_row, const real *b,
                          real *out) {
  ew_tiles(tiles, kc, a, a_row, b, out, NR, NULL);
}
#endif
/* Together with tiles of 4 rows, those of 6 cover every even number of rows. */
enum { SHORT = 4 };
static __attribute__((noinline)) void short_tile(int32_t kc, const real *a, intptr_t a_row,
                                                 const real *b, real *out, intptr_t out_row,
                                                 const real *from) {
  tile(SHORT, kc, a, a_row, b, out, out_row, from);
}

void ew_tile_of(int32_t kc, const real *const rows[MR], const real *b, real *out, intptr_t out_row,
                const real *from) {
  enum { LENGTH = 256 };
  float a[MR * LENGTH];
  bool even = true;
  for (int r = 2; r < MR; r++)
    even =
        even && (intptr_t)rows[r] - (intptr_t)rows[r - 1] == (intptr_t)rows[1] - (intptr_t)rows[0];
  if (even) {
    ew_tile(kc, rows[0], ((intptr_t)rows[1] - (intptr_t)rows[0]) / (intptr_t)sizeof(real), b, out,
            out_row, from);
    return;
  }
  int32_t k = 0;
  do {
    int32_t n = at_most(kc - k, LENGTH);
    for (int r = 0; r < MR; r++) memcpy(a + r * LENGTH, rows[r] + k, (size_t)n * sizeof *a);
    ew_tile(n, a, LENGTH, b + (int64_t)k * NR, out, out_row, k > 0 ? out : from);
    k += n;
  } while (k < kc);
}

typedef struct {
  const ew_gemm_job *g;
  real *packed_b, *packed_a;
  int64_t a_share; /* floats of packed_a per thread */
  /* j0, nc, k0, kc: block of b; mc, nt: rows and columns per task */
  int32_t j0, nc, k0, kc, mc, nt;
  int32_t column_tasks;
  bool first, last;
  /* rows of the block of b that is packed next, of which each tile prefetches a share */
  const char *next;
  int64_t next_row; /* bytes from row to row */
  int32_t next_rows, next_bytes, next_share;
} gemm_block;

/* The packing of rows waits for memory, the tiles do not. */
EW_INLINE void prefetch_next(gemm_block *s) {
  for (int32_t i = 0; i < s->next_share && s->next_rows > 0; i++, s->next_rows--) {
    for (int32_t at = 0; at < s->next_bytes; at += 64) __builtin_prefetch(s->next + at, 0, 2);
    if (s->next_rows > 1) s->next += s->next_row;
  }
}

static void pack_b_task(void *arg, int32_t index, int32_t thread) {
  gemm_block *s = arg;
  (void)thread;
  int32_t j = index * s->nt;
  s->g->pack_b(s->g, s->packed_b + (int64_t)j * s->kc, s->k0, s->kc, s->j0 + j,
               at_most(s->nc - j, s->nt));
}

/* Stores the sums of a tile: partial sums into y or, in the last block of k, the results. */
static __attribute__((noinline)) void finish_tile(const gemm_block *s, float *sums, real *y,
                                                  int32_t row, int32_t col, int32_t rows,
                                                  int32_t cols) {
  const ew_gemm_job *g = s->g;
  const ew_finish *f = &g->finish;
  const ew_bounds limit = ew_bounds_of(s->last ? f->activation : EW_ACTIVATION_NONE);
  const bool fast = cols == NR && (!f->bias || f->bias_col <= 1);
  const real *bias = f->bias && s->last
                         ? f->bias + (int64_t)row * f->bias_row + (int64_t)col * f->bias_col
                         : NULL,
             *residual = f->residual && s->last ? f->residual + (y - g->y) : NULL;
  const float alpha = s->last ? f->alpha : 1;
  for (int32_t r = 0; fast && r < rows; r++)
    for (int c = 0; c < NR; c += VF) {
      vf v = vf_load(sums + r * NR + c), b = vf_splat(0);
      if (!s->first) v += vf_load(y + (int64_t)r * g->y_row + c);
      if (bias)
        b = (f->bias_col ? vf_load(bias + (int64_t)r * f->bias_row + c)
                         : vf_load_splat(bias + (int64_t)r * f->bias_row)) *
            f->beta;
      v = ew_bounded(&limit, vf_fma(v, vf_splat(alpha), b));
      if (!limit.dear) {
        if (residual) v += vf_load(residual + (int64_t)r * g->y_row + c);
        vf_store(y + (int64_t)r * g->y_row + c, v);
      } else
        vf_store(sums + r * NR + c, v);
    }
  if (fast && limit.dear) {
    ew_activate(sums, rows * NR, f->activation);
    for (int32_t r = 0; r < rows; r++)
      for (int c = 0; c < NR; c += VF) {
        vf v = vf_load(sums + r * NR + c);
        vf_store(y + (int64_t)r * g->y_row + c,
                 residual ? v + vf_load(residual + (int64_t)r * g->y_row + c) : v);
      }
  }
  for (int32_t r = 0; !fast && r < rows; r++, sums += NR, y += g->y_row) {
    for (int32_t c = 0; !s->first && c < cols; c++) sums[c] += y[c];
    if (s->last)
      ew_finish_row(f, y, sums, row + r, col, cols, g->y_row);
    else
      for (int32_t c = 0; c < cols; c++) y[c] = sums[c];
  }
}

static void columns_of_1(int32_t m, int32_t cols, int32_t k, const real *a, int64_t a_row,
                         const char *b, int64_t b_col, float *out, int32_t out_row);
static void columns_of_2(int32_t m, int32_t cols, int32_t k, const real *a, int64_t a_row,
                         const char *b, int64_t b_col, float *out, int32_t out_row);

/* The only column of a last panel or of its half, such as that of 7 x 7 positions, without products
 * for the others.
 * Rows are vectorized along k, the epilogue along rows. */
enum { COLUMN = 512, COLUMN_ROWS = 4 * VF }; /* elements of the column; rows at a time */
static __attribute__((noinline)) void one_column(const gemm_block *s, const real *a, int64_t a_row,
                                                 const real *panel, int32_t row, int32_t mc,
                                                 int32_t col) {
  const ew_gemm_job *g = s->g;
  const ew_finish *f = &g->finish;
  const bool last = s->last;
  const ew_bounds limit = ew_bounds_of(f->activation);
  float b[COLUMN], t[COLUMN_ROWS];
  EW_PLAIN_FOR (int32_t p = 0; p < s->kc; p++) b[p] = panel[p * NR];
  for (int32_t i = 0, n; i < mc; i += n, row += n) {
    n = at_most(mc - i, COLUMN_ROWS);
    real *y = g->y + (int64_t)row * g->y_row + col;
    memset(t, 0, sizeof t);
    const real *from = a + i * a_row;
    columns_of_2(n, 1, s->kc, from, a_row, (const char *)b, 0, t, 1);
    if (n & 1)
      columns_of_1(1, 1, s->kc, from + (n - 1) * a_row, a_row, (const char *)b, 0, t + n - 1, 1);
    EW_PLAIN_FOR (int32_t r = 0; r < n; r++) {
      if (!s->first) t[r] += y[(int64_t)r * g->y_row];
      if (last && f->bias)
        t[r] = t[r] * f->alpha +
               f->bias[(int64_t)(row + r) * f->bias_row + (int64_t)col * f->bias_col] * f->beta;
      else if (last)
        t[r] *= f->alpha;
    }
    if (last && limit.dear) ew_activate(t, COLUMN_ROWS, f->activation);
    EW_PLAIN_FOR (int32_t r = 0; last && !limit.dear && r < n; r += VF)
      vf_store(t + r, ew_bounded(&limit, vf_load(t + r)));
    EW_PLAIN_FOR (int32_t r = 0; r < n; r++, y += g->y_row)
      *y = last && f->residual ? t[r] + f->residual[y - g->y] : t[r];
  }
}

enum { PREFETCH_Y = 64 }; /* products of a sum that take longer than prefetches of its lines */

static void block_task(void *arg, int32_t index, int32_t thread) {
  gemm_block *s = arg;
  const ew_gemm_job *g = s->g;
  int32_t i0 = index / s->column_tasks * s->mc, mc = at_most(g->m - i0, s->mc);
  int32_t from = index % s->column_tasks * s->nt, to = from + at_most(s->nc - from, s->nt);
  const real *a = g->a + (int64_t)i0 * g->a_row + s->k0;
  int64_t a_row = g->a_row;
  if (g->a_col != 1) {
    real *packed = s->packed_a + s->a_share * thread;
    pack_a(g, packed, i0, mc, s->k0, s->kc);
    a = packed, a_row = s->kc;
  }
  const ew_finish *f = &g->finish;
  /* simple: no epilogue except possibly a residual, which is the initial value */
  const bool simple = f->activation == EW_ACTIVATION_NONE && f->alpha == 1 && !f->bias,
             direct = !s->last || simple;
  for (int32_t j = from; j < to; j += NR) {
    const real *b = s->packed_b + (int64_t)j * s->kc;
    int32_t cols = at_most(to - j, NR);
    if ((cols == 1 || (VF == 16 && cols == VF + 1)) && g->m >= MR && s->kc <= COLUMN) {
      cols--;
      one_column(s, a, a_row, b + cols, i0, mc, s->j0 + j + cols);
      if (!cols) continue;
    }
    for (int32_t i = 0, rows; i < mc; i += rows) {
      float t[MAX_TILES * MR * NR], *sums = t;
      const real *first = a + i * a_row, *row[MR];
      int64_t at = (int64_t)(i0 + i) * g->y_row + s->j0 + j;
      real *y = g->y + at;
      rows = mc - i < MR ? mc - i : MR * ew_tiles_of(mc - i);
      const bool is_short = (int)SHORT < (int)MR && (mc - i == SHORT || mc - i == 2 * SHORT),
                 alone = rows < MR && mc < MR && !is_short;
      const int32_t tiles = rows < MR ? 1 : rows / MR;
      if (is_short) rows = SHORT;
      /* computes some rows again, whose results are ignored */
      else if (rows < MR && mc >= MR)
        first -= (MR - rows) * a_row, sums += (MR - rows) * NR;
      else if (rows < MR) {
        for (int32_t r = 0; r < MR; r++) row[r] = first + at_most(r, rows - 1) * a_row;
        ew_tile_of(s->kc, row, b, t, NR, NULL);
      }
#if VF > 4
      prefetch_next(s);
      /* y has left the cache, and its lines arrive while their sums are computed */
      for (int32_t r = 0; s->kc >= PREFETCH_Y && r < rows; r++)
        for (int32_t c = 0; c < cols; c += 16) __builtin_prefetch(y + (int64_t)r * g->y_row + c, 1);
#endif
      const bool in_place = direct && cols == NR && !alone && sums == t;
      real *out = in_place ? y : t;
      const intptr_t out_row = in_place ? g->y_row : NR;
      const real *start = !in_place               ? NULL
                          : !s->first             ? y
                          : simple && f->residual ? f->residual + at
                                                  : NULL;
      if (is_short)
        short_tile(s->kc, first, a_row, b, out, out_row, start);
      else if (VF == 16 && !alone && cols <= VF)
        half_tiles(tiles, s->kc, first, a_row, b, t);
      else if (!alone)
        ew_tiles(tiles, s->kc, first, a_row, b, out, out_row, start);
      if (!in_place) { finish_tile(s, sums, y, i0 + i, s->j0 + j, rows, cols); }
    }
  }
}

/* For shapes that fit no block: k is too long for partial sums to be stored outside of registers.
 */
static void gemm_plain(ew_context *ctx, const ew_gemm_job *g) {
  for (int32_t i = 0; i < g->m; i++)
    for (int32_t j = 0; j < g->n && !ew_stopping(ctx); j++) {
      float sum = 0, column[64 * NR];
      for (int32_t k0 = 0; k0 < g->k; k0 += 64) {
        int32_t kc = at_most(g->k - k0, 64);
        g->pack_b(g, column, k0, kc, j, 1);
        float part = 0; /* sums of partial sums: smaller rounding errors */
        for (int32_t p = 0; p < kc; p++)
          part += g->a[(int64_t)i * g->a_row + (int64_t)(k0 + p) * g->a_col] * column[p * NR];
        sum += part;
      }
      ew_finish_row(&g->finish, g->y + (int64_t)i * g->y_row + j, &sum, i, j, 1, g->y_row);
    }
}

/* Rows of a up to which a block of b is used too briefly to hide how long its packing takes, and
 * panels of b in a block whose next one is prefetched. */
enum { AHEAD_ROWS = 256, AHEAD_PANELS = 8 };

static void pack_b(const ew_gemm_job *g, real *panels, int32_t k0, int32_t kc, int32_t j0,
                   int32_t nc);
/* Whether b is a matrix of contiguous rows. */
static bool in_rows(const ew_gemm_job *g) {
  const ew_b_layout *layout = g->pack_b == pack_b ? g->b_more : NULL;
  return layout && layout->col == 1 && layout->row != 1;
}

/* Has the tiles prefetch the block of b from row k0 and column j0 on, which may be none. */
static void next_block(gemm_block *s, int32_t k0, int32_t j0, int32_t kc, int32_t nc) {
  const ew_gemm_job *g = s->g;
  const ew_b_layout *layout = g->b_more;
  const int32_t bytes = (int32_t)ew_bytes_of_b(layout->type);
  s->next_rows = 0;
  if (j0 >= g->n) return;
  s->next = (const char *)g->b + (k0 * layout->row + j0) * bytes, s->next_row = layout->row * bytes;
  s->next_rows = at_most(g->k - k0, kc), s->next_bytes = at_most(g->n - j0, nc) * bytes;
  s->next_share = blocks_of(s->next_rows, blocks_of(s->nc, NR) * blocks_of(g->m, MR * MAX_TILES));
}

void ew_gemm_run(ew_context *ctx, const ew_gemm_job *g, real *packed_b, int64_t b_floats,
                 real *packed_a, int64_t a_floats, int32_t threads) {
  float stack[4096 + 1536];
  if (!packed_b)
    packed_b = stack, b_floats = 4096, packed_a = stack + 4096, a_floats = 1536, threads = 1;
  gemm_block s = {
      .g = g, .packed_b = packed_b, .packed_a = packed_a, .a_share = a_floats / threads};

  /* If y is also the residual it cannot hold partial sums: all of k is one block. */
  bool whole = g->finish.residual == g->y && g->finish.residual;
  int32_t kc_max = whole ? g->k : at_most((int32_t)(s.a_share / MR), b_floats < 65536 ? 128 : 256);
  if (kc_max < 1) kc_max = 1;
  int32_t k_blocks = blocks_of(g->k, kc_max);
  int32_t kc = k_blocks ? blocks_of(g->k, k_blocks) : 1;
  if ((int64_t)kc * NR > b_floats || (int64_t)kc * MR > s.a_share) {
    gemm_plain(ctx, g);
    return;
  }
  int64_t nc = b_floats / kc / NR * NR, mc = s.a_share / kc / MR * MR;
  /* small blocks, the next of which fits in cache beside this one */
  const bool ahead = VF > 4 && threads == 1 && g->m <= AHEAD_ROWS && in_rows(g);
  if (ahead && nc > AHEAD_PANELS * NR) nc = AHEAD_PANELS * NR;
  if (nc > g->n) nc = (int64_t)blocks_of(g->n, NR) * NR;
  if (mc > g->m) mc = (int64_t)blocks_of(g->m, MR) * MR;
  s.mc = (int32_t)mc;
  for (int32_t j0 = 0; j0 < g->n; j0 += (int32_t)nc) {
    s.j0 = j0, s.nc = at_most(g->n - j0, (int32_t)nc);
    for (int32_t k0 = 0;; k0 += kc) {
      s.k0 = k0, s.kc = at_most(g->k - k0, kc), s.first = k0 == 0, s.last = k0 + s.kc >= g->k;
      if (threads == 1) {
        s.nt = (int32_t)nc, s.column_tasks = 1;
        pack_b_task(&s, 0, 0);
        if (ahead) next_block(&s, s.last ? 0 : k0 + s.kc, s.last ? j0 + s.nc : j0, kc, (int32_t)nc);
        for (int32_t i = 0; i < blocks_of(g->m, s.mc); i++) {
          if (ew_stopping(ctx)) return;
          block_task(&s, i, 0);
        }
      } else {
        /* Several tasks per thread, since threads are rarely equally fast. Columns are divided
         * first; if a must be packed, each task of columns packs it again. */
        const int64_t worth = (int64_t)s.nc * s.kc / 32 * g->m >> 12;
        const int32_t tasks = worth < 4 * threads ? (int32_t)worth + 1 : 4 * threads,
                      panels = blocks_of(s.nc, NR), most = g->a_col == 1 ? tasks : threads;
        s.nt = blocks_of(panels, at_most(panels, most)) * NR;
        s.column_tasks = blocks_of(s.nc, s.nt);
        s.mc = at_most(blocks_of(blocks_of(g->m, blocks_of(tasks, s.column_tasks)), MR) * MR,
                       (int32_t)mc);
        ew_parallel(ctx, s.column_tasks, pack_b_task, &s);
        ew_parallel(ctx, s.column_tasks * blocks_of(g->m, s.mc), block_task, &s);
      }
      if (s.last) break;
    }
    if (g->n - j0 <= (int32_t)nc) break;
  }
}

/* Matrix product with few rows of a: b is read once, in place, without packing. Tasks are ranges of
 * columns or of k; rows and columns are vectorized.
 *
 * Performance depends on the order of memory accesses: a single stream from one end to the other
 * reaches 45 GB/s, while adjacent rows, each a stream that ends and starts anew, reach 20 to 30.
 * Therefore one row of b is multiplied with one row of a as a whole, or one column is. Several rows
 * of b are combined, which saves loads of sums, only if there are several rows of a, if b's rows
 * are so short that several form one stream, or if they are so long that the sums leave the L1
 * cache. */

enum {
  FEW = 16,           /* maximum rows of a, if b is read by rows */
  FEW_COLUMNS = 16,   /* maximum rows of a, if b is read by columns */
  SUMS = 4096,        /* floats of sums on the stack */
  MAX_SUMS = 24576,   /* floats of sums in scratch, at most, with several rows of a */
  SHORT_ROW = 64,     /* elements of a row of b below which several rows form one stream */
  SHORT_COLUMN = 128, /* the same for columns */
  FIRST_CACHE = 6144, /* floats of a that stay in the L1 cache beside a column of b */
  MAX_SCALED = 3072,  /* floats of a on the stack, multiplied by EW_RAW_SCALE */
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
  int32_t inner; /* rows of b per part of k that a task adds itself, after one another */
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
 * multiplied with a column while it is in cache. A row has the same accumulators in groups of one
 * and two, and so the same bits. out[m][out_row] */
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
  const bool raw = f->raw && EW_USES(B_TYPE, EW_F16),
             alone = raw || (!s->is_half && g->k >= SHORT_COLUMN);
  /* rows of a must fit in cache beside a column */
  const int32_t fitting = at_most(FIRST_CACHE / (g->k + 1) / 2 + 1, FEW_COLUMNS / 2) * 2;
  for (int32_t j0 = begin; j0 < end; j0 += chunk) {
    const int32_t n = at_most(end - j0, chunk);
    float t[SUMS / 4];
    for (int32_t i = 0, rows; alone && i < g->m; i += rows) {
      rows = g->m - i >= 2 ? at_most((g->m - i) / 2 * 2, fitting) : 1;
      (raw         ? raw_columns
       : rows >= 2 ? columns_of_2
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
  const int32_t buffers = k > f->inner ? 2 : 1,
                most = (f->sums ? g->m == 1 ? f->room : at_most(f->room / buffers, MAX_SUMS)
                                : SUMS / buffers) /
                           g->m -
                       padded(0),
                chunk = blocks_of(blocks_of(end - begin, blocks_of(end - begin, most)), NR) * NR;
  for (int32_t j = begin; j < end; j += chunk) {
    float t[SUMS];
    real *y = f->sums ? f->sums + (int64_t)index * f->room : t;
    const int32_t n = at_most(end - j, chunk), row = padded(n);
    const real *a = f->a + k0;
    const char *b = (const char *)g->b + (k0 * s->row + j) * (s->is_half ? 2 : 4);
    const bool alone = g->m <= 2 && n >= SHORT_ROW && g->m * n <= SUMS;
    for (int32_t k1 = 0; k1 < k; k1 += f->inner) {
      real *to = k1 ? y + (int64_t)g->m * row : y;
      const int32_t depth = at_most(k - k1, f->inner);
      const char *from = b + k1 * s->row * (s->is_half ? 2 : 4);
      memset(to, 0, (size_t)row * (size_t)g->m * sizeof *to);
      if (s->is_half && EW_USES(B_TYPE, EW_F16))
        (f->raw ? add_raw : add_together_half)(depth, g->m, n, a + k1, f->a_row, from, s->row, to,
                                               row);
      else
        (!alone      ? add_together
         : g->m == 1 ? add_alone
                     : add_alone_2)(depth, g->m, n, a + k1, f->a_row, from, s->row, to, row);
      if (k1) add_alone(1, 1, g->m * row, &(const float){1}, 0, to, 0, y, 0);
    }
    if (!k) memset(y, 0, (size_t)row * (size_t)g->m * sizeof *y);
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

/* Computes a product of few rows and returns true, or returns false if packing b is faster.
 * Arguments as for ew_gemm_run. */
static __attribute__((noinline)) bool few_rows(ew_context *ctx, const ew_gemm_job *g,
                                               real *packed_b, int64_t b_floats, real *packed_a,
                                               int64_t a_floats, int32_t threads) {
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
    pack_a(g, packed_a, 0, g->m, 0, g->k);
    f.a = packed_a, f.a_row = g->k;
    /* rows that would all map to the same cache sets */
  } else if (g->m > 2 && g->a_row % 512 == 0 && packed_a &&
             (int64_t)g->m * padded(g->k) <= a_floats) {
    for (int32_t i = 0; i < g->m; i++)
      memcpy(packed_a + (int64_t)i * padded(g->k), g->a + (int64_t)i * g->a_row,
             (size_t)g->k * sizeof *packed_a);
    f.a = packed_a, f.a_row = padded(g->k);
  }
  float scaled[MAX_SCALED];
  if (s->is_normal && g->m == 1 && g->k <= MAX_SCALED && scale(g->k, f.a, scaled))
    f.a = scaled, f.raw = true;
  /* A task takes about 30 microseconds: 2^17 multiply-adds that are mostly bound by memory. Columns
   * are divided among tasks, or k if rows would have to be cut otherwise. k has the parts that it
   * has for one row of a, so that each row has the bits of a product of that row alone. */
  const int64_t room = (int64_t)g->m * padded(g->n), one = (int64_t)g->n * g->k >> 17,
                worth = (int64_t)g->n * g->m * g->k >> 17;
  const int32_t tasks = worth < threads ? (int32_t)worth + 1 : threads,
                tasks_of_one = one < threads ? (int32_t)one + 1 : threads;
  f.inner = g->k > 0 ? g->k : 1;
  if (by_rows && packed_b && tasks_of_one > 1 && padded(g->n) <= b_floats / tasks_of_one)
    f.inner = blocks_of(g->k, tasks_of_one);
  if (f.inner < g->k && (g->m == 1 || (room <= MAX_SUMS && room <= b_floats / tasks_of_one)))
    f.depth = f.inner, f.parts = blocks_of(g->k, f.depth);
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

/* b as the kernel declares it, and batches. */

EW_INLINE void pack_b_of(const ew_gemm_job *g, real *panels, int32_t k0, int32_t kc, int32_t j0,
                         int32_t nc, bool is_half) {
  const ew_b_layout *s = g->b_more;
  int32_t whole = nc / NR * NR;
  int64_t at = k0 * s->row + j0 * s->col;
  if (s->row == 1) {
    EW_PLAIN_FOR (int32_t j = 0; j < nc; j += NR)
      ew_pack_columns(g->b, at + j * s->col, s->col, kc, at_most(nc - j, NR),
                      panels + (int64_t)j * kc, is_half);
    return;
  }
  if (s->col == 1) {
    /* Packs along the rows of b, since memory is fastest when read in order; in groups of panels,
     * so that the cache lines being written stay in cache. */
    enum { GROUP = 8 * NR, AHEAD = 8 };
    for (int32_t group = 0; group < whole; group += GROUP)
      for (int32_t p = 0; p < kc; p++) {
        const int64_t from = at + p * s->row + group;
#if VF > 4
        /* hardware prefetchers follow a row but not the step to the next one */
        if (p + AHEAD < kc)
          for (int32_t j = 0; j < GROUP && group + j < whole; j += 16)
            __builtin_prefetch((const char *)g->b +
                               (from + AHEAD * s->row + j) * (is_half ? 2 : 4));
#endif
        EW_PLAIN_FOR (int32_t j = 0; j < GROUP && group + j < whole; j += NR)
          vf_copy_at(panels + (int64_t)(group + j) * kc + p * NR, g->b, from + j, is_half);
      }
  } else
    whole = 0;
  for (int32_t j = whole; j < nc; j += NR) {
    real *panel = panels + (int64_t)j * kc;
    EW_PLAIN_FOR (int32_t p = 0; p < kc; p++)
      EW_PLAIN_FOR (int32_t c = 0; c < NR; c++)
        panel[p * NR + c] =
            j + c < nc ? real_at(g->b, at + p * s->row + (j + c) * s->col, is_half) : 0;
  }
}
/* Packs bytes; unsigned ones are made signed by a flip, which subtracts 128. Blocks of four columns
 * by four rows are transposed if the columns are contiguous. */
static void pack_b_bytes(const ew_gemm_job *g, real *panels, int32_t k0, int32_t kc, int32_t j0,
                         int32_t nc) {
  typedef int8_t i8x4 __attribute__((vector_size(4)));
  const ew_b_layout *s = g->b_more;
  const int8_t flip = s->type == EW_U8 ? -128 : 0;
  const float offset = s->type == EW_U8 ? 128 : 0;
  for (int32_t j = 0; j < nc; j += NR, panels += (int64_t)kc * NR)
    EW_PLAIN_FOR (int32_t c = 0; c < NR; c += 4) {
      const int8_t *b = (const int8_t *)g->b + k0 * s->row + (j0 + j + c) * s->col;
      const int32_t cols = nc - j - c < 4 ? nc - j - c : 4;
      int32_t p = 0;
      if (cols == 4 && s->row == 1)
        EW_PLAIN_FOR (; p + 4 <= kc; p += 4) {
          f32x4 v[4];
          for (int i = 0; i < 4; i++) {
            i8x4 x;
            __builtin_memcpy(&x, b + i * s->col + p, 4);
            v[i] = __builtin_convertvector(x ^ flip, f32x4) + offset;
          }
          f32x4_transpose(&v[0], &v[1], &v[2], &v[3]);
          for (int i = 0; i < 4; i++) *(f32x4_m *)(panels + (p + i) * NR + c) = v[i];
        }
      EW_PLAIN_FOR (; p < kc; p++)
        EW_PLAIN_FOR (int i = 0; i < 4; i++)
          panels[p * NR + c + i] =
              i < cols ? (float)(int8_t)(b[p * s->row + i * s->col] ^ flip) + offset : 0;
    }
}
static void pack_b(const ew_gemm_job *g, real *panels, int32_t k0, int32_t kc, int32_t j0,
                   int32_t nc) {
  switch (EW_CHOICE(B_TYPE, ((const ew_b_layout *)g->b_more)->type)) {
  case EW_F32: pack_b_of(g, panels, k0, kc, j0, nc, false); break;
  case EW_F16: pack_b_of(g, panels, k0, kc, j0, nc, true); break;
  default: pack_b_bytes(g, panels, k0, kc, j0, nc);
  }
}

static ew_gemm_job job_of(const ew_gemm_params *p, void *const *operand, int64_t item,
                          const ew_b_layout *layout) {
  int64_t i0 = item / p->batch1, i1 = item % p->batch1;
  int64_t b = i0 * p->b0 + i1 * p->b1, y = i0 * p->y0 + i1 * p->y1;
  const real *residual = operand[EW_GEMM_RESIDUAL];
  return (ew_gemm_job){.m = p->m,
                       .n = p->n,
                       .k = p->k,
                       .a_row = p->a_row,
                       .a_col = p->a_col,
                       .y_row = p->y_row,
                       .a = (const real *)operand[EW_GEMM_A] + i0 * p->a0 + i1 * p->a1,
                       .y = (real *)operand[EW_GEMM_Y] + y,
                       .finish = {operand[EW_GEMM_BIAS], residual ? residual + y : NULL,
                                  p->bias_row, p->bias_col, p->activation, p->alpha, p->beta},
                       .pack_b = pack_b,
                       .b = (const char *)operand[EW_GEMM_B] + b * ew_bytes_of_b(p->b_type),
                       .b_more = layout};
}

static void run(ew_context *ctx, const ew_gemm_job *g, real *packed_b, int64_t b_floats,
                real *packed_a, int64_t a_floats, int32_t threads) {
  if (!few_rows(ctx, g, packed_b, b_floats, packed_a, a_floats, threads))
    ew_gemm_run(ctx, g, packed_b, b_floats, packed_a, a_floats, threads);
}

typedef struct {
  ew_context *context;
  const ew_gemm_params *p;
  void *const *operand;
  const ew_b_layout *layout;
  int64_t items, items_per_task;
  int32_t threads;
} gemm_batch;

static void batch_task(void *arg, int32_t index, int32_t thread) {
  const gemm_batch *s = arg;
  real *scratch = s->operand[EW_GEMM_SCRATCH];
  int64_t b_share = EW_GEMM_B_FLOATS / s->threads, a_share = EW_GEMM_A_FLOATS / s->threads,
          end = (index + (int64_t)1) * s->items_per_task;
  for (int64_t item = index * s->items_per_task;
       item < end && item < s->items && !ew_stopping(s->context); item++) {
    ew_gemm_job g = job_of(s->p, s->operand, item, s->layout);
    run(s->context, &g, scratch ? scratch + b_share * thread : NULL, b_share,
        scratch ? scratch + EW_GEMM_B_FLOATS + a_share * thread : NULL, a_share, 1);
  }
}

int32_t ew_k_gemm(ew_context *ctx, const ew_gemm_params *p, void *const *operand) {
  ew_b_layout layout = {p->b_row, p->b_col, p->b_type, p->b_type == EW_F16,
                        p->b_type == EW_F16 && p->b_normal};
  real *scratch = operand[EW_GEMM_SCRATCH];
  int32_t threads = ew_parallel_width(ctx);
  int64_t items = (int64_t)p->batch0 * p->batch1;
  if (items >= threads && threads > 1) { /* each thread computes whole matrices */
    int64_t least = (1 << 19) / ((int64_t)p->m * p->n * p->k + 1) + 1,
            share = (items - 1) / (4 * (int64_t)threads) + 1;
    gemm_batch s = {ctx, p, operand, &layout, items, share > least ? share : least, threads};
    ew_parallel(ctx, (int32_t)((items - 1) / s.items_per_task + 1), batch_task, &s);
    return EW_OK;
  }
  for (int64_t item = 0; item < items && !ew_stopping(ctx); item++) {
    ew_gemm_job g = job_of(p, operand, item, &layout);
    run(ctx, &g, scratch, EW_GEMM_B_FLOATS, scratch ? scratch + EW_GEMM_B_FLOATS : NULL,
        EW_GEMM_A_FLOATS, threads);
  }
  return EW_OK;
}
