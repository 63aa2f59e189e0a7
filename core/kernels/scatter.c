/* ScatterND into y, which already holds data. In order, since indices may repeat. */
#include "../scalar_math.h"
#include "each.h"
#include <string.h>

enum { NONE, ADD, MUL, MIN, MAX };

static bool reduce(int32_t type, int32_t how, void *y, const void *updates, int32_t n) {
/* W: the type in which + and * are defined for all values */
#define TYPE(T, M, W, IS_NAN)                                                                               \
  for (int32_t i = 0; i < n; i++) {                                                                         \
    const T u = ((const M *)y)[i], v = ((const M *)updates)[i];                                             \
    ((M *)y)[i] = how == ADD ? (T)((W)u + (W)v) : how == MUL ? (T)((W)u * (W)v) : IS_NAN(u) ? u : IS_NAN(v) ? v : (how == MIN) == (u < v) ? u : v; \
  }                                                                                                         \
  return true
#define NAN_FLOAT(x) (x != x)
#define NAN_INT(x) 0
  switch (type) {
  case EW_F32: TYPE(float, m_f32, float, NAN_FLOAT);
  case EW_F64: TYPE(double, m_f64, double, NAN_FLOAT);
  case EW_I32: TYPE(int32_t, m_i32, uint32_t, NAN_INT);
  case EW_I64: TYPE(int64_t, m_i64, uint64_t, NAN_INT);
  case EW_U8: TYPE(uint8_t, m_u8, uint32_t, NAN_INT);
  case EW_I8: TYPE(int8_t, m_i8, uint32_t, NAN_INT);
  default: return false;
  }
#undef TYPE
}

int32_t ew_k_scatter_nd(ew_context *c, const ew_scatter_nd_params *p, void *const *operand) {
  const uint8_t *updates = operand[EW_SCATTER_ND_UPDATES];
  int64_t k = 0;
  for (int64_t i = 0; i < p->count; i++, updates += (int64_t)p->inner * p->size) {
    int64_t to = 0;
    for (int d = 0; d < p->depth; d++) {
      const int64_t at = ew_index(c, operand[EW_SCATTER_ND_INDEX], p->index_type, k++, p->sizes[d]);
      if (at < 0) return EW_E_INDEX;
      to += at * p->strides[d];
    }
    uint8_t *y = (uint8_t *)operand[EW_SCATTER_ND_Y] + to * p->size;
    if (p->reduction == NONE)
      memcpy(y, updates, (size_t)p->inner * (size_t)p->size);
    else if (!reduce(p->type, p->reduction, y, updates, p->inner))
      return EW_E_PARAM;
  }
  return EW_OK;
}
