/* ScatterND and ScatterElements: writes, adds, multiplies, or takes the minimum or maximum of
 * updates at indexed places of y, which already contains the data.
 *
 * Updates are applied in order, since indices may repeat; therefore scatter_nd splits the columns
 * of the slices among threads, not the updates. scatter_elements runs on one thread. Each index is
 * checked (EW_E_INDEX). */
#include "scalar_math.h"
#include "kernels/elementwise/each.h"
#include <string.h>

enum { NONE, ADD, MUL, MIN, MAX };

static bool reduce(int32_t type, int32_t how, void *y, const void *updates, int32_t n) {
/* W: a type in which + and * are defined for all values */
#define TYPE(T, M, W, IS_NAN)                                   \
  for (int32_t i = 0; i < n; i++) {                             \
    const T u = ((const M *)y)[i], v = ((const M *)updates)[i]; \
    ((M *)y)[i] = how == ADD                ? (T)((W)u + (W)v)  \
                  : how == MUL              ? (T)((W)u * (W)v)  \
                  : IS_NAN(u)               ? u                 \
                  : IS_NAN(v)               ? v                 \
                  : (how == MIN) == (u < v) ? u                 \
                                            : v;                \
  }                                                             \
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

static bool put(int32_t type, int32_t size, int32_t how, void *y, const void *updates, int32_t n) {
  if (how == NONE) {
    memcpy(y, updates, (size_t)n * (size_t)size);
    return true;
  }
  if (type == EW_F32 && how == ADD && n > 4) { /* fast path for gradients */
    m_f32 *to = y;
    const m_f32 *from = updates;
    EW_EACH for (int32_t i = 0; i < n; i++) to[i] += from[i];
    return true;
  }
  return reduce(type, how, y, updates, n);
}

typedef struct {
  ew_context *context;
  const ew_scatter_nd_params *p;
  void *const *operand;
  int32_t width; /* columns per task */
  int32_t failed;
} scatter;

static void scatter_task(void *arg, int32_t task, int32_t thread) {
  (void)thread;
  scatter *s = arg;
  const ew_scatter_nd_params *p = s->p;
  const int32_t first = task * s->width,
                n = p->inner - first < s->width ? p->inner - first : s->width;
  const uint8_t *updates =
      (const uint8_t *)s->operand[EW_SCATTER_ND_UPDATES] + (int64_t)first * p->size;
  int64_t k = 0;
  for (int64_t i = 0; i < p->count; i++, updates += (int64_t)p->inner * p->size) {
    int64_t to = first;
    for (int d = 0; d < p->depth; d++) {
      const int64_t at =
          ew_index(s->context, s->operand[EW_SCATTER_ND_INDEX], p->index_type, k++, p->sizes[d]);
      if (at < 0) {
        __atomic_store_n(&s->failed, EW_E_INDEX, __ATOMIC_RELAXED);
        return;
      }
      to += at * p->strides[d];
    }
    if (!put(p->type, p->size, p->reduction, (uint8_t *)s->operand[EW_SCATTER_ND_Y] + to * p->size,
             updates, n)) {
      __atomic_store_n(&s->failed, EW_E_PARAM, __ATOMIC_RELAXED);
      return;
    }
  }
}

int32_t ew_k_scatter_nd(ew_context *c, const ew_scatter_nd_params *p, void *const *operand) {
  scatter s = {c, p, operand, 0, EW_OK};
  const int32_t tasks = ew_tasks(c, (int64_t)p->count * p->inner, 32768, p->inner / 16);
  s.width = tasks > 1 ? (p->inner / tasks + 16) / 16 * 16 : p->inner;
  ew_parallel(c, (p->inner - 1) / s.width + 1, scatter_task, &s);
  return s.failed;
}

int32_t ew_k_scatter_elements(ew_context *c, const ew_scatter_elements_params *p,
                              void *const *operand) {
  const uint8_t *updates = operand[EW_SCATTER_ELEMENTS_UPDATES];
  int32_t at[6] = {0};
  for (;;) { /* one row of the innermost dimension per iteration */
    int64_t to = 0, i = 0;
    for (int d = 0; d < 5; d++) to += (int64_t)at[d] * p->ys[d], i += (int64_t)at[d] * p->is[d];
    for (int32_t k = 0; k < p->dims[5]; k++, updates += p->size) {
      const int64_t row = ew_index(c, operand[EW_SCATTER_ELEMENTS_INDEX], p->index_type,
                                   i + (int64_t)k * p->is[5], p->rows);
      if (row < 0) return EW_E_INDEX;
      uint8_t *y = (uint8_t *)operand[EW_SCATTER_ELEMENTS_Y] +
                   (to + (int64_t)k * p->ys[5] + row * p->y_axis) * p->size;
      if (!put(p->type, p->size, p->reduction, y, updates, 1)) return EW_E_PARAM;
    }
    int d = 4;
    while (d >= 0 && ++at[d] == p->dims[d]) at[d--] = 0;
    if (d < 0) return EW_OK;
  }
}
