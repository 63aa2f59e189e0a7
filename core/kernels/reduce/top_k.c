/* TopK along the middle axis of [outer, n, inner].
 *
 * The k best elements so far are kept in the outputs as a heap with the worst one at its root;
 * finally the heap is sorted in place (heapsort). Equal elements are ordered by ascending index;
 * NaN is greater than any number. Tasks are outer indices. */
#include "kernels/elementwise/each.h"

/* True if (a, i) ranks before (b, j). For floats NaN is the largest value. */
#define FLOAT_ABOVE(a, b) ((a) > (b) || ((a) != (a) && (b) == (b)))
#define INTEGER_ABOVE(a, b) ((a) > (b))
#define TOP_K(name, T, M, ABOVE)                                                                 \
  static inline bool name##_before(T a, int64_t i, T b, int64_t j, bool largest) {               \
    if (ABOVE(a, b)) return largest;                                                             \
    if (ABOVE(b, a)) return !largest;                                                            \
    return i < j;                                                                                \
  }                                                                                              \
  /* Heap insertion of (v, i) at the free position `at` or below. */                             \
  static void name##_sink(M *values, m_i64 *indices, int64_t step, int32_t n, int64_t at, T v,   \
                          int64_t i, bool largest) {                                             \
    for (;;) {                                                                                   \
      int64_t child = 2 * at + 1;                                                                \
      if (child >= n) break;                                                                     \
      if (child + 1 < n &&                                                                       \
          name##_before(values[child * step], indices[child * step], values[(child + 1) * step], \
                        indices[(child + 1) * step], largest))                                   \
        child++;                                                                                 \
      if (!name##_before(v, i, values[child * step], indices[child * step], largest)) break;     \
      values[at * step] = values[child * step], indices[at * step] = indices[child * step];      \
      at = child;                                                                                \
    }                                                                                            \
    values[at * step] = v, indices[at * step] = i;                                               \
  }                                                                                              \
  static void name(const void *data, void *out, m_i64 *indices, int64_t step, int32_t n,         \
                   int32_t k, bool largest) {                                                    \
    const M *x = data;                                                                           \
    M *values = out;                                                                             \
    for (int64_t i = 0; i < k; i++) values[i * step] = x[i * step], indices[i * step] = i;       \
    for (int64_t i = k / 2 - 1; i >= 0; i--)                                                     \
      name##_sink(values, indices, step, k, i, values[i * step], indices[i * step], largest);    \
    for (int64_t i = k; i < n; i++)                                                              \
      if (name##_before(x[i * step], i, values[0], indices[0], largest))                         \
        name##_sink(values, indices, step, k, 0, x[i * step], i, largest);                       \
    for (int32_t last = k - 1; last > 0; last--) { /* move the worst to the end */               \
      const T v = values[last * step];                                                           \
      const int64_t i = indices[last * step];                                                    \
      values[last * step] = values[0], indices[last * step] = indices[0];                        \
      name##_sink(values, indices, step, last, 0, v, i, largest);                                \
    }                                                                                            \
  }
TOP_K(top_f32, float, m_f32, FLOAT_ABOVE)
TOP_K(top_f64, double, m_f64, FLOAT_ABOVE)
TOP_K(top_i32, int32_t, m_i32, INTEGER_ABOVE)
TOP_K(top_i64, int64_t, m_i64, INTEGER_ABOVE)
TOP_K(top_u8, uint8_t, m_u8, INTEGER_ABOVE)
TOP_K(top_i8, int8_t, m_i8, INTEGER_ABOVE)

typedef struct {
  const ew_top_k_params *p;
  const uint8_t *x;
  uint8_t *values;
  m_i64 *indices;
  void (*column)(const void *, void *, m_i64 *, int64_t, int32_t, int32_t, bool);
} top_k;

static void top_k_task(void *arg, int32_t o, int32_t thread) {
  (void)thread;
  const top_k *w = arg;
  const ew_top_k_params *p = w->p;
  const int64_t size = ew_bytes_of(p->type);
  for (int64_t i = 0; i < p->inner; i++)
    w->column(w->x + ((int64_t)o * p->n * p->inner + i) * size,
              w->values + ((int64_t)o * p->k * p->inner + i) * size,
              w->indices + (int64_t)o * p->k * p->inner + i, p->inner, p->n, p->k, p->largest);
}

int32_t ew_k_top_k(ew_context *c, const ew_top_k_params *p, void *const *operand) {
  top_k w = {p, operand[EW_TOP_K_X], operand[EW_TOP_K_VALUES], operand[EW_TOP_K_INDICES], NULL};
  switch (p->type) {
  case EW_F32: w.column = top_f32; break;
  case EW_F64: w.column = top_f64; break;
  case EW_I32: w.column = top_i32; break;
  case EW_I64: w.column = top_i64; break;
  case EW_U8: w.column = top_u8; break;
  case EW_I8: w.column = top_i8; break;
  default: return EW_E_PARAM;
  }
  if ((int64_t)p->n * p->inner >= 1024)
    ew_parallel(c, p->outer, top_k_task, &w);
  else
    for (int32_t o = 0; o < p->outer; o++) top_k_task(&w, o, 0);
  return EW_OK;
}
