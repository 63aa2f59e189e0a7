/* Blocked matrix product (GEMM), shared by kernels that differ in how b is stored. */
#ifndef EDGEWISE_GEMM_H
#define EDGEWISE_GEMM_H
#include "activation.h"
#include "kernels/elementwise/each.h"

/* A micro-tile computes MR rows by NR columns of y. The values are measured: V8 has 15 vector
 * registers on x86, and performance halves once pointers spill as well. With one pointer for all
 * rows and no unrolling, 4 x 2 vectors give 67 GFLOP/s in both wasm builds on a machine with a
 * fused multiply-add peak of 75; 6 x 2 give 72 with fused multiply-add, but 36 without it, where
 * products need registers of their own. */
#if defined(__wasm_relaxed_simd__) || VF == 8
enum { MR = 6, NR = 2 * VF };
#else
enum { MR = 4, NR = 2 * VF };
#endif

/* MR rows of kc contiguous floats, a_row apart, times a panel [kc][NR], written to MR rows of NR
 * floats, out_row apart. `from`: NULL, or rows with the same stride that are added (may be `out`).
 */
void ew_tile(int32_t kc, const real *a, intptr_t a_row, const real *b, real *out, intptr_t out_row,
             const real *from);

/* The same for `tiles` <= MAX_TILES times MR rows. AVX-512 has 32 registers, enough for the sums
 * of 12 rows: each row of the panel is then loaded a third as often, and only the multiplications
 * limit the speed. */
#if VF == 16
enum { MAX_TILES = 3 };
void ew_tiles(int32_t tiles, int32_t kc, const real *a, intptr_t a_row, const real *b, real *out,
              intptr_t out_row, const real *from);
#else
enum { MAX_TILES = 1 };
EW_INLINE void ew_tiles(int32_t tiles, int32_t kc, const real *a, intptr_t a_row, const real *b,
                        real *out, intptr_t out_row, const real *from) {
  (void)tiles;
  ew_tile(kc, a, a_row, b, out, out_row, from);
}
#endif
/* Number of multiples of MR rows to compute next, of `rows` >= MR remaining rows: 4 is divided into
 * 2 and 2, not 3 and 1. */
EW_INLINE int32_t ew_tiles_of(int32_t rows) {
  const int32_t tiles = rows / MR;
  return tiles <= MAX_TILES ? tiles : MAX_TILES == 3 && tiles == 4 ? 2 : MAX_TILES;
}

/* ew_tile with an arbitrary address for each row. */
void ew_tile_of(int32_t kc, const real *const rows[MR], const real *b, real *out, intptr_t out_row,
                const real *from);

/* out[rows][4] = 1, 2 or 4 rows of a times 4 columns of b, both contiguous along k. For few rows,
 * without packing. */
void ew_dots(int32_t rows, int32_t k, const real *a, int64_t a_row, const void *b, int64_t b_col,
             bool is_half, float *out);
EW_INLINE int32_t ew_dots_rows(int32_t left) { return left >= 4 ? 4 : left >= 2 ? 2 : 1; }

/* Packs `cols` <= NR columns of n contiguous elements each, `stride` apart, into a panel [n][NR],
 * padded with zeros. */
EW_INLINE void ew_pack_columns(const void *b, int64_t at, int64_t stride, int32_t n, int32_t cols,
                               real *panel, bool is_half) {
  EW_PLAIN_FOR (int32_t j = 0; j < NR; j += 4, at += 4 * stride, panel += 4, cols -= 4) {
    int32_t p = 0;
    if (cols >= 4)
      EW_PLAIN_FOR (; p + 4 <= n; p += 4) {
        f32x4 v[4];
        for (int c = 0; c < 4; c++) v[c] = f32x4_load_at(b, at + c * stride + p, is_half);
        f32x4_transpose(&v[0], &v[1], &v[2], &v[3]);
        for (int c = 0; c < 4; c++) *(f32x4_m *)(panel + (p + c) * NR) = v[c];
      }
    EW_PLAIN_FOR (; p < n; p++)
      EW_PLAIN_FOR (int c = 0; c < 4; c++)
        panel[p * NR + c] = c < cols ? real_at(b, at + c * stride + p, is_half) : 0;
  }
}

/* Epilogue of a product: y = activation(alpha * sum + beta * bias) + residual. */
typedef struct {
  const real *bias, *residual;
  int32_t bias_row, bias_col, activation;
  float alpha, beta;
} ew_finish;

typedef struct ew_gemm_job ew_gemm_job;
struct ew_gemm_job {
  int32_t m, n, k, a_row, a_col, y_row;
  const real *a;
  real *y;
  ew_finish finish;
  /* Packs columns j0..j0+nc-1 of rows k0..k0+kc-1 of b into panels [ceil(nc/NR)][kc][NR], padded
   * with zeros. */
  void (*pack_b)(const ew_gemm_job *, real *panels, int32_t k0, int32_t kc, int32_t j0, int32_t nc);
  const void *b;
  const void *b_more; /* additional data for pack_b */
};

/* Scratch of the kernels that use it, in floats, as they declare it. */
enum { EW_GEMM_B_FLOATS = 131072, EW_GEMM_A_FLOATS = 65536 };

/* packed_b and packed_a (sizes in floats) are divided among `threads`. NULL: small buffers on the
 * stack. With threads = 1 the function may be called within a task of ew_parallel; ctx is then only
 * polled for ew_stopping. */
void ew_gemm_run(ew_context *ctx, const ew_gemm_job *job, real *packed_b, int64_t b_floats,
                 real *packed_a, int64_t a_floats, int32_t threads);

/* Applies an activation to a whole number of vectors in place. */
void ew_activate(real *t, int32_t n, int32_t activation);

/* Applies the epilogue to n sums of row `row` from column `col` on. sums may be y. */
void ew_finish_row(const ew_finish *f, real *y, const real *sums, int32_t row, int32_t col,
                   int32_t n, int32_t y_row);
#endif
