/* y = (a - a_zero) @ (b - b_zero) over bytes, in int32 (which wraps, as everywhere). */
#include "../kernel.h"
#include "../simd.h"

EW_INLINE int32_t byte_at(const uint8_t *p, int64_t i, bool is_signed) { return is_signed ? (int8_t)p[i] : p[i]; }

int32_t ew_k_matmul_integer(ew_context *ctx, const ew_matmul_integer_params *p, void *const *operand) {
  const uint8_t *a_zero = operand[EW_MATMUL_INTEGER_A_ZERO], *b_zero = operand[EW_MATMUL_INTEGER_B_ZERO];
  bool a_signed = p->a_type == EW_I8, b_signed = p->b_type == EW_I8;
  int_m *y = operand[EW_MATMUL_INTEGER_Y];
  (void)ctx;
  for (int64_t i = 0; i < (int64_t)p->batch * p->m; i++, y += p->n) {
    int64_t item = i / p->m, row = i % p->m;
    const uint8_t *a = (const uint8_t *)operand[EW_MATMUL_INTEGER_A] + item * p->a_batch + row * p->k, *b = (const uint8_t *)operand[EW_MATMUL_INTEGER_B] + item * p->b_batch;
    int32_t za = a_zero ? byte_at(a_zero, p->a_zeros > 1 ? row : 0, a_signed) : 0;
    for (int32_t j = 0; j < p->n; j++) y[j] = 0;
    for (int32_t q = 0; q < p->k; q++, b += p->n) {
      int32_t x = byte_at(a, q, a_signed) - za;
      for (int32_t j = 0; j < p->n; j++) {
        int32_t zb = b_zero ? byte_at(b_zero, p->b_zeros > 1 ? j : 0, b_signed) : 0;
        y[j] = (int32_t)((uint32_t)y[j] + (uint32_t)(x * (byte_at(b, j, b_signed) - zb)));
      }
    }
  }
  return EW_OK;
}
