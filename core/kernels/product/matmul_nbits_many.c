/* MatMulNBits with many rows of a as bytes: accuracy_level 4, 4 bits.
 *
 * Blocks of a are rounded to bytes with a scale each; weights are unpacked to
 * bytes, NR columns per panel, four consecutive k together. The sum over a
 * block is an integer:
 *
 *     y = sum over blocks of a_scale * b_scale * (sum(a b) - zero * sum(a))
 *
 * With few rows, the zero points are added at the end, as matmul_nbits_few.c
 * does.
 */
#include "kernels/product/matmul_nbits.h"

enum {
  BYTE_ROWS = 4, /* rows of a per tile */
  MIN_ROWS = 8   /* rows that are left for another pass, at least */
};

typedef struct {
  ew_context *context;
  const ew_nbits *w;
  const ew_gemm_job *g;
  /* rows of a, per block: scale, -8 sum, -sum (both times the scale), unused, then the bytes;
   * after the last block, if the zero points are added at the end, sum times the scale of each */
  real *ready;
  /* one panel per thread, per block: NR scales, NR zero points times scales, then the bytes */
  real *panels;
  int32_t row, panel, cols; /* floats per row and per panel of these; columns of y per task */
  int32_t from, rows;       /* range of the rows of a that are prepared */
  bool too_small;           /* a row has a block below EW_NBITS_TINY */
  bool late;                /* the zero points are added at the end */
} many_rows;

static void ready_task(void *arg, int32_t index, int32_t thread) {
  many_rows *f = arg;
  const int32_t block = f->w->p->block;
  const real *a = f->g->a + (int64_t)(f->from + index) * f->g->a_row;
  real *ready = f->ready + (int64_t)index * f->row;
  real *sums_of_blocks = ready + f->row - f->w->blocks;
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
    if (f->late) sums_of_blocks[b] = -ready[2];
  }
}

/* Unpacks columns j .. j + NR - 1. */
static void unpack_panel(const many_rows *f, int32_t j, real *panel) {
  const ew_nbits *w = f->w;
  const bool half = ew_nbits_half_scales(w);
  const int32_t block = w->p->block;
  for (int32_t b = 0; b < w->blocks; b++) {
    EW_PLAIN_FOR (int32_t c = 0; c < NR; c++) {
      const bool there = j + c < w->p->n;
      panel[c] = there ? ew_nbits_scale(w, (int64_t)(j + c) * w->blocks + b, half) : 0;
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

/* out[BYTE_ROWS][NR] */
static __attribute__((noinline)) void byte_tile(int32_t blocks, int32_t block, const real *a,
                                                intptr_t a_row, const real *b, bool zeros,
                                                bool late, real *out) {
  for (int32_t i = 0; i < BYTE_ROWS * NR; i += VF) vf_store(out + i, vf_splat(0));
  for (; blocks > 0; blocks--, a += 4 + block / 4, b += 2 * NR + block / 4 * NR) {
    const real *p = a, *q = b + 2 * NR, *end = a + 4 + block / 4;
    vi x[BYTE_ROWS][2];
    for (int r = 0; r < BYTE_ROWS; r++, p += a_row)
      for (int c = 0; c < 2; c++)
        x[r][c] = zeros ? vi_splat(0) : vi_load_splat((const int_m *)(p + 1));
    for (const real *from = a + 4; from < end; from++, q += NR) {
      const vi w0 = (vi)vf_load(q), w1 = (vi)vf_load(q + VF);
      p = from;
      for (int r = 0; r < BYTE_ROWS; r++, p += a_row) {
        const vi y = (vi)vf_load_splat(p);
        x[r][0] = vi_dot_bytes(y, w0, x[r][0]), x[r][1] = vi_dot_bytes(y, w1, x[r][1]);
      }
    }
    p = a;
    for (int r = 0; r < BYTE_ROWS; r++, p += a_row)
      for (int c = 0; c < 2; c++) {
        real *sum = out + r * NR + c * VF;
        vf y = vf_fma(__builtin_convertvector(x[r][c], vf), vf_load(b + c * VF) * vf_load_splat(p),
                      vf_load(sum));
        if (zeros && !late) y = vf_fma(vf_load_splat(p + 2), vf_load(b + NR + c * VF), y);
        vf_store(sum, y);
      }
  }
}

/* Adds the contribution of the zero points to results for a row of a, in the order of
 * matmul_nbits_few.c. of_a: sums of the row's blocks. */
static __attribute__((noinline)) void add_zeros(const many_rows *f, const real *panel,
                                                const real *of_a, float *out) {
  const ew_nbits *w = f->w;
  const bool fours = w->p->zero_type == EW_U8 && !ew_nbits_half_scales(w);
  const int32_t step = 2 * NR + w->p->block / 4 * NR;
  for (int c = 0; c < NR; c += VF) {
    const real *z = panel + NR + c;
    vf sum[4] = {vf_splat(0), vf_splat(0), vf_splat(0), vf_splat(0)}, rest = vf_splat(0);
    int32_t i = 0;
    for (; fours && i + 4 <= w->blocks; i += 4)
      for (int k = 0; k < 4; k++, z += step) sum[k] += vf_load(z) * vf_load_splat(of_a + i + k);
    for (; i < w->blocks; i++, z += step) rest += vf_load(z) * vf_load_splat(of_a + i);
    vf_store(out + c, vf_load(out + c) + (-((sum[0] + sum[2]) + (sum[1] + sum[3])) - rest));
  }
}

static void many_task(void *arg, int32_t index, int32_t thread) {
  const many_rows *f = arg;
  const ew_gemm_job *g = f->g;
  real *panel = f->panels + (int64_t)thread * f->panel;
  const int32_t end = g->n - index * f->cols < f->cols ? g->n : (index + 1) * f->cols;
  for (int32_t j = index * f->cols; j < end && !ew_stopping(f->context); j += NR) {
    unpack_panel(f, j, panel);
    for (int32_t i = 0; i < f->rows; i += BYTE_ROWS) {
      float t[BYTE_ROWS * NR];
      /* at the end, some rows are computed again */
      const int32_t first = i + BYTE_ROWS <= f->rows ? i : f->rows - BYTE_ROWS;
      byte_tile(f->w->blocks, f->w->p->block, f->ready + (int64_t)first * f->row, f->row, panel,
                f->w->zeros != NULL, f->late, t);
      for (int32_t r = 0; f->late && r < BYTE_ROWS; r++)
        add_zeros(f, panel, f->ready + (int64_t)(first + r + 1) * f->row - f->w->blocks,
                  t + r * NR);
      for (int32_t r = i; r < f->rows && r < i + BYTE_ROWS; r++)
        ew_finish_row(&g->finish, g->y + (int64_t)(f->from + r) * g->y_row + j,
                      t + (r - first) * NR, f->from + r, j, end - j < NR ? end - j : NR, g->y_row);
    }
  }
}

int32_t ew_nbits_many_rows(ew_context *ctx, const ew_nbits *w, const ew_gemm_job *g,
                           real *scratch) {
  const ew_matmul_nbits_params *p = w->p;
  const int32_t threads = ew_parallel_width(ctx);
  const bool late = w->zeros && p->m <= EW_NBITS_ABREAST;
  if (p->m < BYTE_ROWS || !scratch) return 0;
  const int64_t row = (int64_t)w->blocks * (4 + p->block / 4 + late),
                panel = (int64_t)w->blocks * NR * (2 + p->block / 4),
                rows = ((1 << 18) - panel * threads) / row;
  if (rows < 4 * MIN_ROWS) return 0;
  const int32_t parts = 4 * threads, share = (p->n / NR + parts) / parts * NR;
  many_rows f = {.context = ctx,
                 .w = w,
                 .g = g,
                 .panels = scratch,
                 .ready = scratch + panel * threads,
                 .row = (int32_t)row,
                 .panel = (int32_t)panel,
                 .late = late,
                 .cols = threads > 1 ? share : p->n};
  for (f.from = 0; f.from < p->m; f.from += f.rows) {
    const int64_t left = p->m - f.from;
    /* at least one tile */
    f.rows = (int32_t)(left <= rows ? left : left < rows + MIN_ROWS ? rows - MIN_ROWS : rows);
    ew_parallel(ctx, f.rows, ready_task, &f);
    if (f.too_small) return p->m <= EW_NBITS_ABREAST ? 0 : f.from;
    ew_parallel(ctx, (p->n - 1) / f.cols + 1, many_task, &f);
  }
  return f.from;
}
