/* MatMulNBits of 4 bits at accuracy_level 4: blocks of a are rounded to bytes with a scale each, so
 * that the sum over a block is an integer:
 *
 *     y = sum over blocks of a_scale * b_scale * (sum(a b) - zero * sum(a))
 *
 * Every LANES-th block is added to one of LANES sums, and these to each other at the end, for any
 * number of rows of a: each row has the bits of a product of that row alone.
 *
 * - Fewer than MIN_TILED rows are multiplied with the packed weights, LANES blocks of a column in a
 *   vector. The even and odd elements of a block of a lie apart, as those of the weights do.
 * - More are multiplied with weights that are unpacked to bytes, NR columns per panel, four
 *   consecutive k together.
 *
 * Where there is no exact dot product of bytes as one instruction (vi_dots), pairs of products are
 * added in 16 bits: of a byte and 4 bits, those of 32 rows of b fit. */
#include "kernels/product/matmul_nbits.h"

#if EW_PAIR_DOTS
/* gcc would add the products of an unrolled loop in another order, with all of them in memory. */
#  ifdef __clang__
#    define ROLLED
#  else
#    define ROLLED _Pragma("GCC unroll 1")
#  endif
enum {
  LANES = VF / 4,
  COLS = EW_NBITS_COLS,                    /* columns per call with few rows */
  TILE_ROWS = 4,                           /* rows of a per tile */
  MIN_TILED = VF > 4 ? 8 : (int)TILE_ROWS, /* rows that are worth unpacking for */
  MIN_ROWS = 8,                            /* rows that are left for another pass, at least */
  ROOM = 1 << 18                           /* floats of scratch */
};

typedef struct {
  ew_context *context;
  const ew_nbits *w;
  const ew_gemm_job *g;
  /* rows of a, per block: scale, -8 sum, -sum (both times the scale), unused, then the bytes */
  real *ready;
  /* with few rows: the same rows, per LANES blocks: VF scales, of each block four times, so many of
   * -8 sum or, if b has zero points, -sum; then for each 32 rows of b the even and odd bytes */
  real *lanes;
  /* one panel per thread, per block: NR scales, NR zero points times scales, then the bytes */
  real *panels;
  int32_t row, lane_row, panel, cols; /* floats per row, twice, and per panel; columns per task */
  int32_t from, rows;                 /* range of the rows of a that are prepared */
  bool too_small;                     /* a row has a block below EW_NBITS_TINY */
  bool pairs;
} by_blocks;

static void ready_task(void *arg, int32_t index, int32_t thread) {
  by_blocks *f = arg;
  const int32_t block = f->w->p->block;
  const real *a = f->g->a + (int64_t)(f->from + index) * f->g->a_row;
  real *ready = f->ready + (int64_t)index * f->row;
  const vf rounder = vf_splat(0x1.8p23f);
  (void)thread;
  for (int32_t b = 0; b < f->w->blocks; b++, a += block, ready += 4 + block / 4) {
    vf most = vf_splat(0), sum = vf_splat(0);
    vu sums = (vu)vi_splat(0);
    for (int32_t i = 0; i < block; i += VF) {
      vf x = vf_load(a + i);
      most = vf_max(most, vf_max(x, -x)), sum += x;
    }
    const float largest = vf_highest(most), inverse = largest > 0 ? 127 / largest : 0;
    /* adding 1.5 * 2^23 leaves the rounded number in the low bits */
    for (int32_t i = 0; i < block; i += 2 * VF) {
      vi x = (vi)((vu)(vf_load(a + i) * inverse + rounder) - (vu)rounder),
         y = (vi)((vu)(vf_load(a + i + VF) * inverse + rounder) - (vu)rounder);
      sums += (vu)x + (vu)y;
      vi_store_bytes((uint8_t *)(ready + 4) + i, x, y);
    }
    uint32_t whole = 0; /* wraps for infinities and NaNs, whose scale is NaN */
    for (int i = 0; i < VF; i++) whole += sums[i];
    if (largest > 0 && largest < EW_NBITS_TINY)
      __atomic_store_n(&f->too_small, true, __ATOMIC_RELAXED);
    ready[0] = largest / 127 + 0 * vf_sum(sum); /* NaN for infinities and NaNs */
    *(int_m *)(ready + 1) = (int32_t)(0u - 8u * whole);
    ready[2] = -(float)(int32_t)whole * ready[0];
  }
}

/* ---- few rows ---- */

/* Prepared blocks of a row of a beside each other; the last ones are filled up with zeros. */
static void put_lanes(const by_blocks *f, const real *row, real *to) {
  const int32_t block = f->w->p->block, blocks = f->w->blocks;
  EW_PLAIN_FOR (int32_t b = 0; b < (blocks + LANES - 1) / LANES * LANES; b++) {
    const bool there = b < blocks;
    const real *from = row + (int64_t)(there ? b : 0) * (4 + block / 4);
    real *y = to + (int64_t)(b / LANES) * (2 * VF + block / 4 * LANES) + b % LANES * 4;
    const int32_t mask = there ? -1 : 0;
    EW_PLAIN_FOR (int i = 0; i < 4; i++) {
      ((int_m *)y)[i] = ((const int_m *)from)[0] & mask;
      ((int_m *)y)[VF + i] = ((const int_m *)from)[f->w->zeros ? 2 : 1] & mask;
    }
    y += 2 * VF;
    EW_PLAIN_FOR (int32_t i = 0; i < block; i += 32, y += 2 * VF) {
      const u8x16 p = *(const u8x16_m *)((const uint8_t *)(from + 4) + i),
                  q = *(const u8x16_m *)((const uint8_t *)(from + 4) + i + 16),
                  all = (u8x16)(mask - (i32x4){0});
      *(u8x16_m *)y = all & __builtin_shufflevector(p, q, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22,
                                                    24, 26, 28, 30);
      *(u8x16_m *)(y + VF) = all & __builtin_shufflevector(p, q, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19,
                                                           21, 23, 25, 27, 29, 31);
    }
  }
}

/* 16 bytes of n blocks, which are `stride` apart. Other lanes are zero. */
EW_INLINE vi lanes_of(const uint8_t *p, intptr_t stride, int32_t n) {
#  if VF > 4
  if (n < LANES) {
#    if VF == 16
    __m512i v = _mm512_zextsi128_si512(_mm_loadu_si128((const __m128i *)p));
    if (n > 1) v = _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i *)(p + stride)), 1);
    if (n > 2) v = _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i *)(p + 2 * stride)), 2);
    return (vi)v;
#    else
    return (vi)_mm256_zextsi128_si256(_mm_loadu_si128((const __m128i *)p));
#    endif
  }
#  endif
  (void)n;
  if (stride != 16) return vi_load_lanes(p, stride);
  return *(const vi_m *)p;
}

/* Scales of n blocks, from `at` on, of COLS columns that lie `column` scales apart, in the lanes of
 * the blocks. */
EW_INLINE vf scales_of(const ew_nbits *w, int64_t at, int64_t column, int32_t n, bool half_scales) {
#  if VF == 16
  const __mmask8 some = (__mmask8)((1 << n) - 1);
  __m128 s[COLS];
  for (int r = 0; r < COLS; r++, at += column)
    s[r] = half_scales ? _mm_cvtph_ps(_mm_maskz_loadu_epi16(some, (const half *)w->scales + at))
                       : _mm_maskz_loadu_ps(some, (const real *)w->scales + at);
  const __m512 v = _mm512_insertf32x4(
      _mm512_insertf32x4(_mm512_insertf32x4(_mm512_castps128_ps512(s[0]), s[1], 1), s[2], 2), s[3],
      3);
  return (vf)_mm512_permutexvar_ps(
      _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), v);
#  elif VF == 8
  __m128 s[COLS];
  for (int r = 0; r < COLS; r++, at += column) {
    const half *h = (const half *)w->scales + at;
    const real *x = (const real *)w->scales + at;
    s[r] = half_scales ? _mm_cvtph_ps(_mm_cvtsi32_si128(n > 1 ? *(const int_m *)h : *h))
           : n > 1     ? _mm_castsi128_ps(_mm_loadl_epi64((const __m128i *)x))
                       : _mm_set_ss(*x);
  }
  const __m128 p = _mm_unpacklo_ps(s[0], s[1]), q = _mm_unpacklo_ps(s[2], s[3]);
  return (vf)_mm256_set_m128(_mm_movehl_ps(q, p), _mm_movelh_ps(p, q));
#  else
  (void)n;
  if (half_scales) {
    const half *h = (const half *)w->scales + at,
               four[COLS] = {h[0], h[column], h[2 * column], h[3 * column]};
    return f32x4_load_half(four);
  }
  const real *s = (const real *)w->scales + at;
  return (vf){s[0], s[column], s[2 * column], s[3 * column]};
#  endif
}

/* Zero points likewise, from block `at` of columns j, j + step and so on. */
static
#  if VF == 4
    __attribute__((noinline))
#  endif
    vf zeros_of(const ew_nbits *w, int32_t j, int32_t step, int32_t at, int32_t n) {
  if (w->p->zero_type != EW_U8) {
    real t[VF] = {0};
    EW_PLAIN_FOR (int32_t i = 0; i < n; i++)
      EW_PLAIN_FOR (int r = 0; r < COLS; r++) t[4 * i + r] = ew_nbits_zero(w, j + r * step, at + i);
    return vf_load(t);
  }
  const int64_t row = (w->blocks + 1) / 2;
  const uint8_t *z = w->zeros + j * row + at / 2;
  i32x4 fields;
  for (int r = 0; r < COLS; r++, z += step * row) fields[r] = n > 2 ? *(const half *)z : *z;
#  if VF == 16
  const vi shift = {0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12};
#  elif VF == 8
  const vi shift = {0, 0, 0, 0, 4, 4, 4, 4};
#  else
  const vi shift = vi_splat(at % 2 * 4);
#  endif
  return __builtin_convertvector((vi_repeat((u8x16)fields) >> shift) & 15, vf);
}

/* Adds the products of n blocks, from `at` on, of columns j, j + step and so on with those of a row
 * of a. */
EW_INLINE vf add_blocks(const by_blocks *f, const real *a, const uint8_t *b, int32_t j,
                        int32_t step, int32_t at, int32_t n, int32_t groups, bool pairs,
                        bool half_scales, vf sum) {
  const ew_nbits *w = f->w;
  const int64_t blocks = w->blocks, blocks_apart = blocks * step;
  const intptr_t stride = 16 * (intptr_t)groups, column = (intptr_t)(blocks_apart * stride);
  const vf a_scale = vf_load(a), more = vf_load(a + VF);
  vi x[COLS], all = w->zeros ? vi_splat(0) : (vi)more;
  for (int r = 0; r < COLS; r++) x[r] = vi_splat(0);
  a += 2 * VF;
  for (int32_t g = 0; g < groups; g++, b += 16, a += 2 * VF) {
    const vi even = (vi)vf_load(a), odd = (vi)vf_load(a + VF);
    for (int r = 0; r < COLS; r++) {
      const vi v = lanes_of(b + r * column, stride, n), low = v & 0x0f0f0f0f,
               high = (vi)((vu)v >> 4) & 0x0f0f0f0f;
      x[r] = pairs ? vi_add_pairs(odd, high, vi_dot_pairs(even, low))
                   : vi_dot_bytes(odd, high, vi_dot_bytes(even, low, x[r]));
    }
    if (pairs) all = (vi)((vu)all + (vu)vi_sum_shorts(vi_sums_of_shorts(x[0], x[1], x[2], x[3])));
  }
  if (!pairs) all = (vi)((vu)all + (vu)vi_sums_of_four(x[0], x[1], x[2], x[3]));
  const vf scale = scales_of(w, j * blocks + at, blocks_apart, n, half_scales);
  sum = vf_fma(__builtin_convertvector(all, vf), scale * a_scale, sum);
  return w->zeros ? vf_fma(more, scale * zeros_of(w, j, step, at, n), sum) : sum;
}

/* out[COLS]: a row of a times columns j, j + step and so on */
EW_INLINE void columns(const by_blocks *f, const real *a, int32_t j, int32_t step, int32_t groups,
                       bool pairs, real *out) {
  const int32_t blocks = f->w->blocks;
  const bool half_scales = ew_nbits_half_scales(f->w); /* a call */
  const intptr_t bytes = 16 * LANES * (intptr_t)groups;
  const uint8_t *b = f->w->b + (int64_t)j * blocks * groups * 16;
  vf sum = vf_splat(0);
  int32_t at = 0;
  for (; at + LANES <= blocks; at += LANES, b += bytes, a += 2 * VF * (1 + groups))
    sum = add_blocks(f, a, b, j, step, at, LANES, groups, pairs, half_scales, sum);
  if (LANES > 1 && at < blocks)
    sum = add_blocks(f, a, b, j, step, at, blocks - at, groups, pairs, half_scales, sum);
  real t[VF];
  vf_store(t, sum);
  f32x4 y = *(const f32x4_m *)t;
  if (LANES > 1) y += *(const f32x4_m *)(t + VF - 4 * (LANES - 1));
  if (LANES > 2) y += *(const f32x4_m *)(t + VF / 2) + *(const f32x4_m *)(t + VF - 4);
  *(f32x4_m *)out = y;
}
#  define COLUMNS(name, pairs)                                                               \
    static __attribute__((noinline)) void name(const by_blocks *f, const real *a, int32_t j, \
                                               int32_t step, real *out) {                    \
      const int32_t groups = f->w->p->block / 32;                                            \
      if (VF > 4 && groups == 1)                                                             \
        columns(f, a, j, step, 1, pairs, out);                                               \
      else                                                                                   \
        columns(f, a, j, step, groups, pairs, out);                                          \
    }
COLUMNS(columns_by_pairs, true)
COLUMNS(columns_by_fours, false)
#  undef COLUMNS

static void columns_of_rows(const void *arg, int32_t j, int32_t step, real *out) {
  const by_blocks *f = arg;
  for (int32_t i = 0; i < f->rows; i++, out += COLS)
    (f->pairs ? columns_by_pairs : columns_by_fours)(f, f->lanes + (int64_t)i * f->lane_row, j,
                                                     step, out);
}

/* ---- many rows ---- */

/* Unpacks columns j .. j + NR - 1. */
static void unpack_panel(const by_blocks *f, int32_t j, real *panel) {
  const ew_nbits *w = f->w;
  const bool half_scales = ew_nbits_half_scales(w);
  const int32_t block = w->p->block;
  for (int32_t b = 0; b < w->blocks; b++) {
    EW_PLAIN_FOR (int32_t c = 0; c < NR; c++) {
      const bool there = j + c < w->p->n;
      panel[c] = there ? ew_nbits_scale(w, (int64_t)(j + c) * w->blocks + b, half_scales) : 0;
      panel[NR + c] = there && w->zeros ? panel[c] * ew_nbits_zero(w, j + c, b) : 0;
    }
    panel += 2 * NR;
    for (int32_t g = 0; g < block / 32; g++, panel += 8 * NR)
      for (int32_t c = 0; c < NR; c += 4) {
        u8x16 column[4];
        f32x4 low[4], high[4];
        for (int i = 0; i < 4; i++)
          column[i] =
              *(const u8x16_m *)(w->b +
                                 ((int64_t)(j + c + i < w->p->n ? j + c + i : j) * w->blocks + b) *
                                     w->block_bytes +
                                 g * 16);
        ew_nbits_transpose(column, low, high);
        for (int i = 0; i < 4; i++)
          *(f32x4_m *)(panel + i * NR + c) = low[i],
                                        *(f32x4_m *)(panel + (i + 4) * NR + c) = high[i];
      }
  }
}

/* out[LANES][TILE_ROWS][NR]; the first of LANES is the sum of all */
EW_INLINE void tile(const by_blocks *f, const real *a, const real *b, bool pairs, real *out) {
  const int32_t block = f->w->p->block;
  const intptr_t a_row = f->row;
  const bool zeros = f->w->zeros != NULL;
  for (int i = 0; i < LANES * TILE_ROWS * NR; i += VF) vf_store(out + i, vf_splat(0));
  for (int32_t at = 0; at < f->w->blocks; at++, a += 4 + block / 4, b += 2 * NR + block / 4 * NR) {
    const real *p = a, *q = b + 2 * NR, *from = a + 4, *end = from + block / 4;
    vi x[TILE_ROWS][2], y[TILE_ROWS][2];
    for (int r = 0; r < TILE_ROWS; r++, p += a_row)
      for (int c = 0; c < 2; c++)
        x[r][c] = zeros ? vi_splat(0) : vi_load_splat((const int_m *)(p + 1));
    do { /* 32 rows of b */
      for (int r = 0; r < TILE_ROWS; r++)
        for (int c = 0; c < 2; c++) y[r][c] = vi_splat(0);
      ROLLED for (const real *stop = pairs ? from + 8 : end; from < stop; from++, q += NR) {
        const vi w0 = (vi)vf_load(q), w1 = (vi)vf_load(q + VF);
        p = from;
        for (int r = 0; r < TILE_ROWS; r++, p += a_row) {
          const vi v = (vi)vf_load_splat(p);
          if (pairs)
            y[r][0] = vi_add_pairs(v, w0, y[r][0]), y[r][1] = vi_add_pairs(v, w1, y[r][1]);
          else
            x[r][0] = vi_dot_bytes(v, w0, x[r][0]), x[r][1] = vi_dot_bytes(v, w1, x[r][1]);
        }
      }
      for (int r = 0; pairs && r < TILE_ROWS; r++)
        for (int c = 0; c < 2; c++) x[r][c] = (vi)((vu)x[r][c] + (vu)vi_sum_shorts(y[r][c]));
    } while (pairs && from < end);
    p = a;
    real *sum = out + at % LANES * (TILE_ROWS * NR);
    for (int r = 0; r < TILE_ROWS; r++, p += a_row)
      for (int c = 0; c < 2; c++, sum += VF) {
        vf t = vf_fma(__builtin_convertvector(x[r][c], vf), vf_load(b + c * VF) * vf_load_splat(p),
                      vf_load(sum));
        if (zeros) t = vf_fma(vf_load_splat(p + 2), vf_load(b + NR + c * VF), t);
        vf_store(sum, t);
      }
  }
  for (int i = 0; LANES > 1 && i < TILE_ROWS * NR; i += VF) {
    vf t[4];
    for (int l = 0; l < LANES; l++) t[l] = vf_load(out + l * TILE_ROWS * NR + i);
    vf_store(out + i, LANES > 2 ? (t[0] + t[1]) + (t[2] + t[3]) : t[0] + t[1]);
  }
}
static __attribute__((noinline)) void tile_by_pairs(const by_blocks *f, const real *a,
                                                    const real *b, real *out) {
  tile(f, a, b, true, out);
}
static __attribute__((noinline)) void tile_by_fours(const by_blocks *f, const real *a,
                                                    const real *b, real *out) {
  tile(f, a, b, false, out);
}

static void many_task(void *arg, int32_t index, int32_t thread) {
  const by_blocks *f = arg;
  const ew_gemm_job *g = f->g;
  real *panel = f->panels + (int64_t)thread * f->panel;
  const int32_t end = g->n - index * f->cols < f->cols ? g->n : (index + 1) * f->cols;
  for (int32_t j = index * f->cols; j < end && !ew_stopping(f->context); j += NR) {
    unpack_panel(f, j, panel);
    for (int32_t i = 0; i < f->rows; i += TILE_ROWS) {
      real t[LANES * TILE_ROWS * NR];
      /* at the end, some rows are computed again */
      const int32_t first = i + TILE_ROWS <= f->rows ? i : f->rows - TILE_ROWS;
      (f->pairs ? tile_by_pairs : tile_by_fours)(f, f->ready + (int64_t)first * f->row, panel, t);
      for (int32_t r = i; r < f->rows && r < i + TILE_ROWS; r++)
        ew_finish_row(&g->finish, g->y + (int64_t)(f->from + r) * g->y_row + j,
                      t + (r - first) * NR, f->from + r, j, end - j < NR ? end - j : NR, g->y_row);
    }
  }
}

/* ---- both ---- */

static bool few_rows(by_blocks *f) {
  const ew_matmul_nbits_params *p = f->w->p;
  f->rows = f->g->m, f->lanes = f->ready + (int64_t)f->g->m * f->row;
  ew_parallel(f->context, f->rows, ready_task, f);
  if (f->too_small) return false;
  for (int32_t i = 0; i < f->rows; i++)
    put_lanes(f, f->ready + (int64_t)i * f->row, f->lanes + (int64_t)i * f->lane_row);
  ew_nbits_by_columns(f->context, f->g, (int64_t)p->k * f->rows * p->n >> 16, columns_of_rows, f);
  return true;
}

/* Row i of the rows of a alone. */
static void row_alone(const by_blocks *of_all, int32_t i, real *scratch) {
  ew_matmul_nbits_params params = *of_all->w->p;
  ew_nbits w = *of_all->w;
  ew_gemm_job g = *of_all->g;
  w.p = &params, params.m = g.m = 1;
  g.a += (int64_t)i * g.a_row, g.y += (int64_t)i * g.y_row;
  if (g.finish.residual) g.finish.residual += (int64_t)i * g.y_row;
  by_blocks f = *of_all;
  f.w = &w, f.g = &g, f.from = 0, f.ready = scratch, f.too_small = false;
  if (!few_rows(&f)) ew_nbits_few_rows(f.context, &w, &g, scratch);
}

int32_t ew_nbits_blocks(ew_context *ctx, const ew_nbits *w, const ew_gemm_job *g, real *scratch) {
  const ew_matmul_nbits_params *p = w->p;
  const int32_t threads = ew_parallel_width(ctx);
  const int64_t row = (int64_t)w->blocks * (4 + p->block / 4),
                lane_row =
                    (w->blocks + LANES - (int64_t)1) / LANES * (2 * VF + p->block / 4 * LANES),
                panel = (int64_t)w->blocks * NR * (2 + p->block / 4),
                rows = (ROOM - panel * threads) / row;
  if (!scratch || row + lane_row > ROOM) return 0;
  const int32_t parts = 4 * threads, share = (p->n / NR + parts) / parts * NR;
  by_blocks f = {.context = ctx,
                 .w = w,
                 .g = g,
                 .ready = scratch,
                 .row = (int32_t)row,
                 .lane_row = (int32_t)lane_row,
                 .panel = (int32_t)panel,
                 .cols = threads > 1 ? share : p->n,
                 .pairs = !vi_dots()};
  const bool few = p->m <= EW_NBITS_ABREAST;
  if (p->m < MIN_TILED || rows < 4 * MIN_ROWS) {
    if (!few) return 0;
    if ((row + lane_row) * p->m > ROOM || !few_rows(&f))
      for (int32_t i = 0; i < p->m; i++) row_alone(&f, i, scratch);
    return p->m;
  }
  f.panels = scratch, f.ready = scratch + panel * threads;
  for (f.from = 0; f.from < p->m; f.from += f.rows) {
    const int64_t left = p->m - f.from;
    /* at least one tile */
    f.rows = (int32_t)(left <= rows ? left : left < rows + MIN_ROWS ? rows - MIN_ROWS : rows);
    ew_parallel(ctx, f.rows, ready_task, &f);
    for (int32_t i = 0; few && f.too_small && i < p->m; i++) row_alone(&f, i, scratch);
    if (f.too_small) return few ? p->m : f.from;
    ew_parallel(ctx, (p->n - 1) / f.cols + 1, many_task, &f);
  }
  return f.from;
}
#else
int32_t ew_nbits_blocks(ew_context *ctx, const ew_nbits *w, const ew_gemm_job *g, real *scratch) {
  (void)ctx, (void)w, (void)g, (void)scratch;
  return 0;
}
#endif
