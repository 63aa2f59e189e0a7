/* ArgMax and ArgMin along the middle axis of [outer, n, inner]. A task is a range of the outer x
 * inner columns. Contiguous float32 columns are reduced in 16 lanes; all others one element at a
 * time. */
#include "kernels/elementwise/each.h"

/* NaN is before any number, as in NumPy; of several the first counts, or with `last` the last. */
#define FLOAT_IS_NAN(v) ((v) != (v))
#define INTEGER_IS_NAN(v) false
#define COLUMN(name, T, M, IS_NAN)                                                             \
  static int64_t name(const void *data, int64_t step, int32_t n, bool largest, bool last) {    \
    const M *x = data;                                                                         \
    T best = x[0];                                                                             \
    int64_t at = 0;                                                                            \
    EW_PLAIN_FOR (int32_t r = 1; r < n; r++) {                                                 \
      const T v = x[r * step];                                                                 \
      const bool better = IS_NAN(best) ? false : (largest ? v > best : v < best) || IS_NAN(v); \
      if (better || (last && (v == best || (IS_NAN(v) && IS_NAN(best))))) best = v, at = r;    \
    }                                                                                          \
    return at;                                                                                 \
  }
COLUMN(column_f64, double, m_f64, FLOAT_IS_NAN)
COLUMN(column_i8, int8_t, m_i8, INTEGER_IS_NAN)
COLUMN(column_u8, uint8_t, m_u8, INTEGER_IS_NAN)
COLUMN(column_i16, int16_t, m_i16, INTEGER_IS_NAN)
COLUMN(column_u16, uint16_t, m_u16, INTEGER_IS_NAN)
COLUMN(column_i32, int32_t, m_i32, INTEGER_IS_NAN)
COLUMN(column_u32, uint32_t, m_u32, INTEGER_IS_NAN)
COLUMN(column_i64, int64_t, m_i64, INTEGER_IS_NAN)
COLUMN(column_u64, uint64_t, m_u64, INTEGER_IS_NAN)
COLUMN(column_f32_any, float, m_f32, FLOAT_IS_NAN)

/* Contiguous float32, such as logits over a vocabulary: finds the extreme value in lanes, then its
 * index. */
static int64_t column_f32(const void *data, int64_t step, int32_t n, bool largest, bool last) {
  const m_f32 *x = data;
  enum { LANES = 16 };
  if (step != 1 || n < 2 * LANES) return column_f32_any(data, step, n, largest, last);
  float lane[LANES], best;
  const float sign = largest ? 1 : -1;
  for (int k = 0; k < LANES; k++) lane[k] = -__builtin_inff();
  int64_t r = 0;
  for (; r + LANES <= n; r += LANES)
    for (int k = 0; k < LANES; k++) {
      const float v = x[r + k] * sign;
      lane[k] = v > lane[k] || v != v ? v : lane[k];
    }
  best = lane[0];
  for (int k = 1; k < LANES; k++) best = lane[k] > best || lane[k] != lane[k] ? lane[k] : best;
  for (; r < n; r++) {
    const float v = x[r] * sign;
    best = v > best || v != v ? v : best;
  }
  best *= sign;
  const bool nan = best != best;
  if (last) {
    for (r = n - 1; r > 0; r--)
      if (nan ? x[r] != x[r] : x[r] == best) break;
  } else {
    for (r = 0; r < n - 1; r++)
      if (nan ? x[r] != x[r] : x[r] == best) break;
  }
  return r;
}

typedef struct {
  const ew_arg_reduce_params *p;
  const uint8_t *x;
  m_i64 *y;
  int64_t (*column)(const void *, int64_t, int32_t, bool, bool);
  int64_t per_task;
} arg_reduce;

static void arg_reduce_task(void *arg, int32_t index, int32_t thread) {
  (void)thread;
  const arg_reduce *w = arg;
  const ew_arg_reduce_params *p = w->p;
  const int64_t total = (int64_t)p->outer * p->inner,
                end = (index + 1) * w->per_task < total ? (index + 1) * w->per_task : total,
                size = ew_bytes_of(p->type);
  for (int64_t i = index * w->per_task; i < end; i++)
    w->y[i] = w->column(w->x + (i / p->inner * p->n * p->inner + i % p->inner) * size, p->inner,
                        p->n, p->largest, p->last);
}

int32_t ew_k_arg_reduce(ew_context *c, const ew_arg_reduce_params *p, void *const *operand) {
  arg_reduce w = {p, operand[EW_ARG_REDUCE_X], operand[EW_ARG_REDUCE_Y], NULL, 0};
  switch (p->type) {
  case EW_F32: w.column = column_f32; break;
  case EW_F64: w.column = column_f64; break;
  case EW_I8: w.column = column_i8; break;
  case EW_U8:
  case EW_BOOL: w.column = column_u8; break;
  case EW_I16: w.column = column_i16; break;
  case EW_U16: w.column = column_u16; break;
  case EW_I32: w.column = column_i32; break;
  case EW_U32: w.column = column_u32; break;
  case EW_I64: w.column = column_i64; break;
  case EW_U64: w.column = column_u64; break;
  default: return EW_E_PARAM;
  }
  const int64_t total = (int64_t)p->outer * p->inner;
  const int32_t tasks = ew_tasks(c, total * p->n, 32768, total);
  w.per_task = (total + tasks - 1) / tasks;
  ew_parallel(c, (int32_t)((total + w.per_task - 1) / w.per_task), arg_reduce_task, &w);
  return EW_OK;
}
