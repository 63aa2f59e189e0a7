/* Trilu: keeps the upper (lower) triangle of each matrix, from diagonal k on (up to diagonal k),
 * and writes zeros elsewhere. Matrices are strided, their rows contiguous; rows are copied with
 * memmove on one thread. y may be x. */
#include "kernels/elementwise/each.h"
#include <string.h>

int32_t ew_k_trilu(ew_context *c, const ew_trilu_params *p, void *const *operand) {
  (void)c;
  const size_t size = (size_t)p->size;
  for (int64_t b = 0; b < p->batch; b++)
    for (int64_t r = 0; r < p->rows; r++) {
      const uint8_t *x =
          (const uint8_t *)operand[EW_TRILU_X] + (b * p->x_batch + r * p->x_row) * p->size;
      uint8_t *y = (uint8_t *)operand[EW_TRILU_Y] + (b * p->y_batch + r * p->y_row) * p->size;
      /* first column that is kept (upper) or cleared (lower) */
      int64_t cut = r + p->k + (p->upper ? 0 : 1);
      cut = cut < 0 ? 0 : cut > p->cols ? p->cols : cut;
      const size_t left = (size_t)cut * size, right = (size_t)(p->cols - cut) * size;
      if (x != y)
        memmove(p->upper ? y + left : y, p->upper ? x + left : x, p->upper ? right : left);
      memset(p->upper ? y : y + left, 0, p->upper ? left : right);
    }
  return EW_OK;
}
