/* Fills y with one bit pattern of 1, 2, 4 or 8 bytes (ConstantOfShape and zeroing). Strided output
 * and threads: each.h. */
#include "kernels/elementwise/each.h"
#include <string.h>

static void row_fill(const void *job, int32_t n, const void *const *in, void *out) {
  (void)in;
  const ew_fill_params *p = job;
  const uint64_t value = (uint32_t)p->value_low | (uint64_t)(uint32_t)p->value_high << 32;
#define SIZE(T)                                             \
  for (int32_t i = 0; i < n; i++) ((T *)out)[i] = (T)value; \
  break
  switch (p->size) {
  case 1: memset(out, (int)(value & 0xff), (size_t)n); break;
  case 2: SIZE(m_u16);
  case 4: SIZE(m_u32);
  default: SIZE(m_u64);
  }
#undef SIZE
}

int32_t ew_k_fill(ew_context *c, const ew_fill_params *p, void *const *operand) {
  ew_each(c, p->dims, 0, NULL, (ew_strided){operand[EW_FILL_Y], p->ys, p->size}, row_fill, p);
  return EW_OK;
}
