/* Matrix products of float64 and integers (MatMul, Gemm of rare types), one result at a time on one
 * thread: small rather than fast. */
#include "kernels/elementwise/each.h"

int32_t ew_k_product(ew_context *c, const ew_product_params *p, void *const *operand) {
  int64_t total = 1;
  for (int d = 0; d < 6; d++) total *= p->dims[d];
  for (int64_t i = 0; i < total; i++) {
    if (i % 64 == 0 && ew_stopping(c)) return EW_OK;
    int64_t a = 0, b = 0, rest = i;
    for (int d = 5; d >= 0; d--) {
      const int64_t at = rest % p->dims[d];
      a += at * p->as[d], b += at * p->bs[d], rest /= p->dims[d];
    }
#define SUM(M, T)                                                                                 \
  {                                                                                               \
    const M *x = (const M *)operand[EW_PRODUCT_A] + a, *w = (const M *)operand[EW_PRODUCT_B] + b; \
    T sum = 0;                                                                                    \
    EW_PLAIN_FOR (int32_t k = 0; k < p->k; k++)                                                   \
      sum += x[(int64_t)k * p->a_k] * w[(int64_t)k * p->b_k];                                     \
    ((M *)operand[EW_PRODUCT_Y])[i] = sum;                                                        \
  }
    if (p->type == EW_F64)
      SUM(m_f64, double)
    else if (p->type == EW_I32)
      SUM(m_u32, uint32_t)
    else
      SUM(m_u64, uint64_t)
  }
  return EW_OK;
}
