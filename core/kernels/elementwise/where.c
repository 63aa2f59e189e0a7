/* y = condition ? a : b (ONNX Where), elementwise with broadcasting. Strided operands and threads:
 * each.h. One loop per element size. */
#include "kernels/elementwise/each.h"

static void row_where(const void *job, int32_t n, const void *const *in, void *out) {
  const m_u8 *condition = in[0];
#define SIZE(T)                               \
  {                                           \
    const T *a = in[1], *b = in[2];           \
    T *y = out;                               \
    EW_EACH for (int32_t i = 0; i < n; i++) { \
      const T yes = a[i], no = b[i];          \
      y[i] = condition[i] ? yes : no;         \
    }                                         \
  }                                           \
  break
  switch (EW_CHOICE(WHERE_SIZE, *(const int32_t *)job)) {
  case 1: SIZE(m_u8);
  case 2: SIZE(m_u16);
  case 4: SIZE(m_u32);
  default: SIZE(m_u64);
  }
#undef SIZE
}

int32_t ew_k_where(ew_context *c, const ew_where_params *p, void *const *operand) {
  const ew_strided in[] = {{operand[EW_WHERE_CONDITION], p->cs, 1},
                           {operand[EW_WHERE_A], p->as, p->size},
                           {operand[EW_WHERE_B], p->bs, p->size}};
  const ew_strided y = {operand[EW_WHERE_Y], p->ys, p->size};
  ew_each(c, p->dims, 3, in, y, row_where, &p->size);
  return EW_OK;
}
