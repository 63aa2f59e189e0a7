/* Shared by the files of the matrix product: gemm.c (kernel), gemm_blocked.c and gemm_few.c. */
#ifndef EDGEWISE_GEMM_PARTS_H
#define EDGEWISE_GEMM_PARTS_H
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

/* Copies rows from i0 on of a into contiguous rows [mc][kc]. */
void ew_gemm_pack_a(const ew_gemm_job *g, real *rows, int32_t i0, int32_t mc, int32_t k0,
                    int32_t kc);

/* Computes a product of few rows and returns true, or returns false if packing b is faster.
 * Arguments as for ew_gemm_run. */
bool ew_gemm_few(ew_context *ctx, const ew_gemm_job *g, real *packed_b, int64_t b_floats,
                 real *packed_a, int64_t a_floats, int32_t threads);
#endif
