/* Shared by the forward and backward passes of recurrent layers. */
#ifndef EDGEWISE_RECURRENT_H
#define EDGEWISE_RECURRENT_H
#include "kernels/elementwise/each.h"
#include "kernels/product/gemm.h"

/* called for rows of many elements: one copy of the code suffices */
#define SMALL __attribute__((noinline))

/* Number of gates of a cell; NUMBERS: floats per activation (kind, a, b, shift, low, high). */
enum { GRU = 3, LSTM = 4, NUMBERS = 6 };

/* The work of a task: pieces index, index + tasks, ... of directions x blocks of rows (or of hidden
 * units). */
typedef struct {
  int32_t tasks, pieces, size;
} ew_rnn_share;

/* Divides the rows of the batch into pieces of at least 4 rows; a single task if `work`, in
 * multiply-adds, is small. */
ew_rnn_share ew_rnn_split(ew_context *ctx, int32_t batch, int32_t directions, int64_t work);

/* Time step that direction d computes in its step number `step`. */
static inline int32_t ew_rnn_time(int32_t steps, int32_t reverse, int32_t d, int32_t step) {
  return d || reverse ? steps - 1 - step : step;
}

/* x = f(x) for activation f */
void ew_rnn_activate(const real *f, real *x, int32_t n);
/* y = a, or zeros if a is NULL */
void ew_rnn_set(real *y, const real *a, int32_t n);
/* y += a * b, unless a is NULL */
void ew_rnn_add_product(real *y, const real *a, const real *b, int32_t n);
/* y[i][j] += a[i] . b[j] */
void ew_rnn_add_dots(int32_t rows, int32_t columns, int32_t k, const real *a, int64_t a_row,
                     const real *b, int64_t b_column, real *y, int64_t y_row);
#endif
