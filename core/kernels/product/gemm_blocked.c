/* Blocked matrix product (Goto, van de Geijn 2008): a block of b and a block of a are packed into
 * panels in the order in which the inner loop reads them, so that it streams through cache with
 * constant strides. Tasks are blocks of rows and columns; the inner loops keep MR x NR sums in
 * vector registers. */
#include "kernels/product/gemm_parts.h"

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

void ew_gemm_pack_a(const ew_gemm_job *g, real *rows, int32_t i0, int32_t mc, int32_t k0,
                    int32_t kc) {
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
  vf y[4 * MOST_TILES][2];
  const real *p[MOST_TILES];
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
} gemm_block;

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

static void block_task(void *arg, int32_t index, int32_t thread) {
  gemm_block *s = arg;
  const ew_gemm_job *g = s->g;
  int32_t i0 = index / s->column_tasks * s->mc, mc = at_most(g->m - i0, s->mc);
  int32_t from = index % s->column_tasks * s->nt, to = from + at_most(s->nc - from, s->nt);
  const real *a = g->a + (int64_t)i0 * g->a_row + s->k0;
  int64_t a_row = g->a_row;
  if (g->a_col != 1) {
    real *packed = s->packed_a + s->a_share * thread;
    ew_gemm_pack_a(g, packed, i0, mc, s->k0, s->kc);
    a = packed, a_row = s->kc;
  }
  const ew_finish *f = &g->finish;
  /* simple: no epilogue except possibly a residual, which is the initial value */
  const bool simple = f->activation == EW_ACTIVATION_NONE && f->alpha == 1 && !f->bias,
             direct = !s->last || simple;
  for (int32_t j = from; j < to; j += NR) {
    const real *b = s->packed_b + (int64_t)j * s->kc;
    int32_t cols = at_most(to - j, NR);
    for (int32_t i = 0, rows; i < mc; i += rows) {
      float t[MOST_TILES * MR * NR], *sums = t;
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
