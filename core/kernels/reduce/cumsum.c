/* CumSum: running sums along the middle axis of [outer, n, inner]. Strips of STRIP columns are
 * summed at a time, vectorized over columns, on one thread. The sums are kept in a local array, so
 * y may be x. */
#include "kernels/elementwise/each.h"

enum { STRIP = 64 }; /* columns */

/* U: a type in which + wraps */
#define CUMSUM(name, T, M, U)                                                               \
  static void name(const ew_cumsum_params *p, const M *x, M *y) {                           \
    for (int64_t first = 0; first < p->inner; first += STRIP) {                             \
      const int32_t width = (int32_t)(p->inner - first < STRIP ? p->inner - first : STRIP); \
      T sum[STRIP] = {0};                                                                   \
      for (int32_t k = 0; k < p->n; k++) {                                                  \
        const int64_t at = (int64_t)(p->reverse ? p->n - 1 - k : k) * p->inner + first;     \
        EW_EACH for (int32_t i = 0; i < width; i++) {                                       \
          const T before = sum[i], after = (T)((U)before + (U)x[at + i]);                   \
          y[at + i] = p->exclusive ? before : after;                                        \
          sum[i] = after;                                                                   \
        }                                                                                   \
      }                                                                                     \
    }                                                                                       \
  }
CUMSUM(cumsum_f32, float, m_f32, float)
CUMSUM(cumsum_f64, double, m_f64, double)
CUMSUM(cumsum_i32, int32_t, m_i32, uint32_t)
CUMSUM(cumsum_i64, int64_t, m_i64, uint64_t)

int32_t ew_k_cumsum(ew_context *c, const ew_cumsum_params *p, void *const *operand) {
  (void)c;
  for (int64_t o = 0; o < p->outer; o++) {
    const int64_t from = o * p->x_outer, to = o * p->y_outer;
    const void *x = operand[EW_CUMSUM_X];
    void *y = operand[EW_CUMSUM_Y];
    switch (p->type) {
    case EW_F32: cumsum_f32(p, (const m_f32 *)x + from, (m_f32 *)y + to); break;
    case EW_F64: cumsum_f64(p, (const m_f64 *)x + from, (m_f64 *)y + to); break;
    case EW_I32: cumsum_i32(p, (const m_i32 *)x + from, (m_i32 *)y + to); break;
    case EW_I64: cumsum_i64(p, (const m_i64 *)x + from, (m_i64 *)y + to); break;
    default: return EW_E_PARAM;
    }
  }
  return EW_OK;
}
