/* Shared by the files of the convolutions. */
#ifndef EDGEWISE_CONVOLUTION_H
#define EDGEWISE_CONVOLUTION_H
#include "kernels/product/gemm.h"
#include "kernels/convolution/window.h"

EW_INLINE int32_t at_most(int64_t x, int32_t limit) { return x < limit ? (int32_t)x : limit; }
EW_INLINE int32_t up_to(int64_t x, int32_t step) { return (int32_t)((x - 1) / step + 1); }

/* A convolution and how it is divided into tasks. */
typedef struct {
  ew_context *context;
  ew_window w;
  /* m, c: output and input channels per group; share: pieces per task */
  int32_t batch, groups, m, c, threads, share;
  int64_t x_batch, x_volume, y_volume, taps, pieces;
  real *x, *weights, *y, *scratch;
  const real *bias;
  ew_finish finish;
  /* number of blocks of columns, and columns per block; transposed: channels of a group */
  int32_t blocks, block;
  int32_t row_blocks, rows; /* number of blocks of a group's m, and rows per block */
} ew_convolution;

/* convolution_patches.c: b of the matrix products, gathered from x while it is packed. */

/* ew_gemm_job.b_more */
typedef struct {
  ew_window w;
  int64_t x_volume, x_batch, taps; /* taps: number of taps of the window */
  /* forward: position of column 0; gradient of weights: tap of column 0 */
  int64_t first;
} ew_patch_layout;

/* Packs b with rows (channel, tap) and columns positions. */
void ew_conv_pack_positions(const ew_gemm_job *g, real *panels, int32_t k0, int32_t kc, int32_t j0,
                            int32_t nc);
/* Packs b with rows positions of all items and columns (channel, tap). kc is at most 256, the
 * longest block of gemm.c. */
void ew_conv_pack_taps(const ew_gemm_job *g, real *panels, int32_t k0, int32_t kc, int32_t j0,
                       int32_t nc);
/* Copies one tap of the n positions from `at` on of a plane x to `line`, zero outside of x; or,
 * with `add`, adds `line` to x. Positions after the last belong to the next item, x_batch further
 * on. */
void ew_conv_tap(const ew_window *w, real *x, int64_t x_batch, ew_place tap, ew_place at, int32_t n,
                 real *line, bool add);
/* y[0..n) = value */
void ew_conv_fill(real *y, int64_t n, float value);

/* convolution_rows.c: tap by tap, in long rows. */

enum { LONG_TAPS = 64 }; /* maximum number of taps, and of stride remainders */

typedef struct {
  ew_window w; /* its taps are the stride remainders */
  /* size of one remainder's part: the positions, plus how far the taps extend beyond them */
  int32_t y_size[3];
  /* row: positions from first to last including the gaps; pitch: distance between rows of positions
   */
  int64_t part, parts, row, pitch;
  int64_t offset[LONG_TAPS];
  real *x, *y; /* parts * part and row elements, each followed by room for AT_ONCE */
} ew_long_rows;
enum { AT_ONCE = 4 * VF }; /* floats per step of the inner loop */
/* Length of the row rounded up to AT_ONCE; y is 0 after the row. */
EW_INLINE int32_t ew_long_row_floats(const ew_long_rows *l) {
  return up_to(l->row, AT_ONCE) * AT_ONCE;
}

/* Returns whether the plane fits in `floats` of scratch. l->w points into l, which must not be
 * moved. */
bool ew_long_rows_open(const ew_convolution *s, real *scratch, int64_t floats, ew_long_rows *l);
/* Copies a plane of x into its parts, whose padding is already 0. */
void ew_long_rows_load_x(const ew_long_rows *l, const real *x);
/* Adds the parts to a plane of x. */
void ew_long_rows_add_x(const ew_long_rows *l, real *x);
/* Copies a plane of y to its long row, with 0 in the gaps, or back (`out`). */
void ew_long_rows_copy_y(const ew_long_rows *l, const ew_convolution *s, real *y, bool out);
/* y = the sum over taps of w times x, starting at *start or, if NULL, at the current values. */
void ew_long_rows_forward(const ew_long_rows *l, int64_t taps, const real *w, const float *start,
                          const ew_bounds *limit);
#endif
