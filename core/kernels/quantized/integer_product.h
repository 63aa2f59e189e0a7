/* Packed weights of integer_product: what the kernel that packs them and the one that reads them
 * share. */
#ifndef EDGEWISE_INTEGER_PRODUCT_H
#define EDGEWISE_INTEGER_PRODUCT_H
#include "kernel.h"
#include "simd.h"

/* COLUMNS: columns per panel; WIDEST: the largest COLUMNS of any machine, of which the size of
 * packed weights is a multiple. An item has the sums of all columns, then the panels. */
enum { COLUMNS = 2 * VF, WIDEST = 32 };

/* Narrow weights are those in -NARROW..NARROW. Where vi_pairs permits it, they are packed like
 * those for byte dot products and multiplied in blocks of BLOCK_ROWS rows, of which four products
 * are summed in 16 bits: two thirds of the instructions of 16-bit products. Such a sum may leave 16
 * bits. The low bits of a panel's sums, eight of each column, say of as many segments of the panel
 * whether a block of it has such a sum; the segment's products are then summed in pairs.
 *
 * These marked sums are moved by SUM_OFFSET, so that they are at least MARK. Sums of other weights
 * are below, since the rows are at most MARKED_ROWS. */
enum {
  NARROW = 64,
  BLOCK_ROWS = 8,
  SEGMENTS = 64,
  MARKED_ROWS = 1 << 15,
  MARK = 1 << 24,
  SUM_OFFSET = (MARK >> 8) + NARROW * MARKED_ROWS
};

EW_INLINE int64_t up_to(int64_t x, int64_t step) { return (x + step - 1) / step; }
EW_INLINE int64_t less(int64_t a, int64_t b) { return a < b ? a : b; }
/* Whether weights of k rows may be marked. */
EW_INLINE bool ew_may_mark(int64_t k) {
  return k % BLOCK_ROWS == 0 && k <= MARKED_ROWS && vi_pairs();
}
/* Blocks per segment */
EW_INLINE int32_t ew_segment(int64_t k) { return (int32_t)up_to(k, BLOCK_ROWS * SEGMENTS); }
#endif
