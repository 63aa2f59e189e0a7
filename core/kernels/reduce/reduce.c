/* Reductions: y[o, i] = reduce over r of x[o, r, i].
 *
 * float32: a task computes a strip of columns i of one o, with one accumulator per column. The
 * outer loop runs over r, four rows at a time, the inner one over columns, along memory, in
 * vectors. A single contiguous column is instead folded into four vectors of accumulators, PIECE
 * elements at a time, which keeps sums over long rows precise. Other types are reduced one element
 * at a time in float64 or int64. */
#include "vector_math.h"
#include "kernels/elementwise/each.h"
#include <string.h>

enum { PIECE = 4096, STRIP = 256 }; /* elements of a column; columns per strip */

/* How an element enters the accumulator. EXP adds e^(x - shift): the second pass of log_sum_exp. */
typedef enum { SUM, ABS, SQUARE, MAX, MIN, PROD, EXP } mode;

static mode mode_of(int32_t op) {
  switch (op) {
  case EW_REDUCE_MAX: return MAX;
  case EW_REDUCE_MIN: return MIN;
  case EW_REDUCE_PROD: return PROD;
  case EW_REDUCE_L1: return ABS;
  case EW_REDUCE_L2:
  case EW_REDUCE_SUM_SQUARE: return SQUARE;
  default: return SUM;
  }
}

static float identity(mode m) {
  return m == MAX ? -INFINITY : m == MIN ? INFINITY : m == PROD ? 1 : 0;
}
/* The mode that combines two accumulators. */
static mode joins(mode m) { return m == MAX || m == MIN || m == PROD ? m : SUM; }

/* Adds v to accumulator a. MAX and MIN keep NaN. */
EW_INLINE vf fold(mode m, vf a, vf v, vf shift) {
  switch (m) {
  case ABS: return a + vf_abs(v);
  case SQUARE: return vf_fma(v, v, a);
  case MAX: return vf_select(v == v, vf_max(a, v), v);
  case MIN: return vf_select(v == v, vf_min(a, v), v);
  case PROD: return a * v;
  case EXP: return a + vf_exp(v - shift); /* infinities, too */
  default: return a + v;
  }
}

#define EACH_MODE(DO) \
  switch (m) {        \
    DO(SUM)           \
    DO(ABS)           \
    DO(SQUARE)        \
    DO(MAX)           \
    DO(MIN)           \
    DO(PROD)          \
    DO(EXP)           \
  }

/* The larger of two numbers, the smaller, their product or sum; a NaN is kept. */
static float join(mode m, float a, float v) {
  return m == PROD                              ? a * v
         : m != MAX && m != MIN                 ? a + v
         : (m == MAX ? v > a : v < a) || v != v ? v
                                                : a;
}

/* Reduces up to PIECE contiguous elements by lanes: lane k has those k, k + VF, ... */
static __attribute__((noinline)) vf fold_lanes(mode m, const m_f32 *x, int32_t n, float shift) {
  const int32_t whole = n / VF * VF;
  const vf by = vf_splat(shift), begin = vf_splat(identity(m));
  vf s[4] = {begin, begin, begin, begin}, tail = begin;
  if (whole < n) {
    float rest[VF];
    for (int32_t i = 0; i < VF; i++)
      rest[i] = whole + i < n ? x[whole + i] : m == EXP ? -INFINITY : identity(m);
    tail = vf_load(rest);
  }
  int32_t i = 0;
#define DO(M)                                                                        \
  case M:                                                                            \
    for (; i + 4 * VF <= n; i += 4 * VF)                                             \
      for (int u = 0; u < 4; u++) s[u] = fold(M, s[u], vf_load(x + i + u * VF), by); \
    for (; i < whole; i += VF) s[0] = fold(M, s[0], vf_load(x + i), by);             \
    if (whole < n) s[1] = fold(M, s[1], tail, by);                                   \
    break;
  EACH_MODE(DO)
#undef DO
  m = joins(m);
  return m == SUM ? (s[0] + s[1]) + (s[2] + s[3])
                  : fold(m, fold(m, s[0], s[1], by), fold(m, s[2], s[3], by), by);
}

/* Reduces up to PIECE contiguous elements. */
static float fold_piece(mode m, const m_f32 *x, int32_t n, float shift) {
  const vf lanes = fold_lanes(m, x, n, shift);
  m = joins(m);
  if (m == SUM) return vf_sum(lanes);
  float all = identity(m), each[VF];
  vf_store(each, lanes);
  for (int32_t k = 0; k < VF; k++) all = join(m, all, each[k]);
  return all;
}

/* Reduces one whole column. */
static float fold_column(mode m, const m_f32 *x, int64_t step, int32_t n, float shift) {
  double all = (double)identity(m);
  float piece[PIECE / 8];
  const int32_t most = step == 1 ? PIECE : PIECE / 8;
  for (int64_t r = 0; r < n; r += most) {
    const int32_t count = (int32_t)(n - r < most ? n - r : most);
    if (step != 1)
      for (int32_t i = 0; i < count; i++) piece[i] = x[(r + i) * step];
    const float v = fold_piece(m, step == 1 ? x + r : piece, count, shift);
    if (n <= most) return v;
    all = m == MAX    ? ((double)v > all || v != v ? (double)v : all)
          : m == MIN  ? ((double)v < all || v != v ? (double)v : all)
          : m == PROD ? all * (double)v
                      : all + (double)v;
  }
  return (float)all;
}

/* Adds x[r * step + i] of `rows` rows to acc[i], for whole vectors. */
static __attribute__((noinline)) void fold_rows(mode m, float *acc, const m_f32 *x, int64_t step,
                                                int32_t rows, int32_t n, const float *shift) {
#define DO(M)                                                                   \
  case M:                                                                       \
    for (; rows >= 4; rows -= 4, x += 4 * step)                                 \
      for (int32_t i = 0; i < n; i += VF) {                                     \
        const vf by = M == EXP ? vf_load(shift + i) : vf_splat(0);              \
        vf a = vf_load(acc + i);                                                \
        a = fold(M, fold(M, a, vf_load(x + i), by), vf_load(x + step + i), by); \
        vf_store(acc + i, fold(M, fold(M, a, vf_load(x + 2 * step + i), by),    \
                               vf_load(x + 3 * step + i), by));                 \
      }                                                                         \
    for (; rows > 0; rows--, x += step)                                         \
      for (int32_t i = 0; i < n; i += VF)                                       \
        vf_store(acc + i, fold(M, vf_load(acc + i), vf_load(x + i),             \
                               M == EXP ? vf_load(shift + i) : vf_splat(0)));   \
    break;
  EACH_MODE(DO)
#undef DO
}

/* The same for any number of columns, `along` elements apart. */
static void fold_columns(mode m, float *acc, const m_f32 *x, int64_t step, int64_t along,
                         int32_t rows, int32_t n, const float *shift) {
  const int32_t whole = along == 1 ? n / VF * VF : 0, rest = n - whole;
  fold_rows(m, acc, x, step, rows, whole, shift);
  if (!rest) return;
  float row[STRIP];
  for (int32_t i = 0; i < rest + VF - 1 && i < STRIP; i++) row[i] = 0;
  for (int32_t r = 0; r < rows; r++) {
    for (int32_t i = 0; i < rest; i++) row[i] = x[r * step + (whole + i) * along];
    fold_rows(m, acc + whole, row, 0, 1, (rest + VF - 1) / VF * VF, shift ? shift + whole : NULL);
  }
}

static float finish(int32_t op, float v, int32_t n) {
  switch (op) {
  case EW_REDUCE_MEAN: return v / (float)n;
  case EW_REDUCE_L2: return sqrtf(v);
  case EW_REDUCE_LOG_SUM: return logf(v);
  default: return v;
  }
}

/* Subtracting the maximum keeps exponentials in range; an infinite maximum is not subtracted. */
static float shift_of(float max) { return fabsf(max) < INFINITY ? max : 0; }

typedef struct {
  const ew_context *context;
  const ew_reduce_params *p;
  const m_f32 *x;
  m_f32 *y;
  int64_t units, per_task;
  int32_t strips;
} reduce;

static void reduce_unit(const reduce *w, int64_t o, int32_t first) {
  const ew_reduce_params *p = w->p;
  const m_f32 *x = w->x + o * p->x_outer + (int64_t)first * p->x_inner;
  m_f32 *y = w->y + o * p->y_outer + first;
  const int32_t width = p->inner - first < STRIP ? p->inner - first : STRIP;
  const mode m = mode_of(p->op);
  const bool log_sum_exp = p->op == EW_REDUCE_LOG_SUM_EXP;
  float acc[STRIP], shift[STRIP];
  if (p->inner == 1) {
    if (log_sum_exp) {
      shift[0] = shift_of(fold_column(MAX, x, p->x_n, p->n, 0));
      y[0] = logf(fold_column(EXP, x, p->x_n, p->n, shift[0])) + shift[0];
    } else
      y[0] = finish(p->op, fold_column(m, x, p->x_n, p->n, 0), p->n);
    return;
  }
  const mode first_pass = log_sum_exp ? MAX : m;
  for (int32_t i = 0; i < width + VF - 1 && i < STRIP; i++) acc[i] = identity(first_pass);
  if (!log_sum_exp && p->x_inner == 1 && p->x_n == p->inner && VF % p->inner == 0 &&
      p->n <= PIECE / p->inner) { /* few columns, which lie side by side: as one */
    float each[VF];
    vf_store(each, fold_lanes(m, x, p->n * p->inner, 0));
    for (int32_t k = 0; k < VF; k++) acc[k % p->inner] = join(joins(m), acc[k % p->inner], each[k]);
  } else
    fold_columns(first_pass, acc, x, p->x_n, p->x_inner, p->n, width, NULL);
  if (log_sum_exp) {
    for (int32_t i = 0; i < width + VF - 1 && i < STRIP; i++)
      shift[i] = shift_of(acc[i]), acc[i] = 0;
    fold_columns(EXP, acc, x, p->x_n, p->x_inner, p->n, width, shift);
    EW_PLAIN_FOR (int32_t i = 0; i < width; i++) y[i] = logf(acc[i]) + shift[i];
    return;
  }
  EW_PLAIN_FOR (int32_t i = 0; i < width; i++) y[i] = finish(p->op, acc[i], p->n);
}

static void reduce_task(void *arg, int32_t index, int32_t thread) {
  (void)thread;
  const reduce *w = arg;
  const int64_t end = (index + 1) * w->per_task < w->units ? (index + 1) * w->per_task : w->units;
  /* A unit may be long: strides of 0 let few bytes be read many times. */
  for (int64_t u = index * w->per_task; u < end && !ew_stopping(w->context); u++)
    reduce_unit(w, u / w->strips, (int32_t)(u % w->strips) * STRIP);
}

/* One result of a type other than float32. */
static double reduce_f64(int32_t op, const m_f64 *x, int64_t step, int32_t n) {
  const mode m = mode_of(op);
  double a = m == MAX ? -(double)INFINITY : m == MIN ? (double)INFINITY : m == PROD ? 1 : 0;
  if (op == EW_REDUCE_LOG_SUM_EXP) {
    double max = reduce_f64(EW_REDUCE_MAX, x, step, n),
           shift = fabs(max) < (double)INFINITY ? max : 0;
    EW_PLAIN_FOR (int32_t r = 0; r < n; r++) a += exp(x[r * step] - shift);
    return log(a) + shift;
  }
  EW_PLAIN_FOR (int32_t r = 0; r < n; r++) {
    const double v = x[r * step];
    switch (m) {
    case ABS: a += fabs(v); break;
    case SQUARE: a += v * v; break;
    case MAX: a = v > a || v != v ? v : a; break;
    case MIN: a = v < a || v != v ? v : a; break;
    case PROD: a *= v; break;
    default: a += v;
    }
  }
  return op == EW_REDUCE_MEAN      ? a / n
         : op == EW_REDUCE_L2      ? sqrt(a)
         : op == EW_REDUCE_LOG_SUM ? log(a)
                                   : a;
}

static int64_t element(const void *x, int32_t type, int64_t i) {
  switch (type) {
  case EW_U8:
  case EW_BOOL: return ((const m_u8 *)x)[i];
  case EW_I8: return ((const m_i8 *)x)[i];
  case EW_I32: return ((const m_i32 *)x)[i];
  default: return ((const m_i64 *)x)[i];
  }
}

static int64_t least(int32_t type) {
  return type == EW_I64 ? INT64_MIN : type == EW_I32 ? INT32_MIN : type == EW_I8 ? INT8_MIN : 0;
}
static int64_t most(int32_t type) {
  return type == EW_I64   ? INT64_MAX
         : type == EW_I32 ? INT32_MAX
         : type == EW_I8  ? INT8_MAX
         : type == EW_U8  ? UINT8_MAX
                          : 1;
}

static int64_t to_integer(double v) {
  return v != v ? 0 : v <= -0x1p63 ? INT64_MIN : v >= 0x1p63 ? INT64_MAX : (int64_t)v;
}

/* Sums in uint64, which wraps; its low half equals the result in 32 bits. */
static int64_t reduce_integer(int32_t op, int32_t type, const void *x, int64_t at, int64_t step,
                              int32_t n) {
  const mode m = mode_of(op);
  int64_t max = least(type), min = most(type);
  uint64_t a = m == PROD;
  double sum = 0;
  EW_PLAIN_FOR (int32_t r = 0; r < n; r++) {
    const int64_t v = element(x, type, at + r * step);
    const uint64_t u = (uint64_t)v;
    max = v > max ? v : max;
    min = v < min ? v : min;
    if (op == EW_REDUCE_LOG_SUM_EXP) sum += exp((double)v);
    a = m == PROD ? a * u : m == ABS ? a + (v < 0 ? 0 - u : u) : m == SQUARE ? a + u * u : a + u;
  }
  switch (op) {
  case EW_REDUCE_MAX: return max;
  case EW_REDUCE_MIN: return min;
  case EW_REDUCE_MEAN: return n ? (int64_t)a / n : 0;
  case EW_REDUCE_L2: return to_integer(sqrt((double)(int64_t)a));
  case EW_REDUCE_LOG_SUM: return to_integer(log((double)(int64_t)a));
  case EW_REDUCE_LOG_SUM_EXP: return to_integer(log(sum));
  default: return (int64_t)a;
  }
}

int32_t ew_k_reduce(ew_context *c, const ew_reduce_params *p, void *const *operand) {
  void *y = operand[EW_REDUCE_Y];
  if (p->type == EW_F32) {
    reduce w = {c, p, operand[EW_REDUCE_X], y, 0, 0, (p->inner - 1) / STRIP + 1};
    w.units = (int64_t)p->outer * w.strips;
    const int64_t per_unit = ((int64_t)p->n + 1) * (p->inner < STRIP ? p->inner : STRIP);
    const int32_t tasks =
        ew_tasks(c, per_unit > 32768 ? w.units * 32768 : w.units * per_unit, 16384, w.units);
    w.per_task = (w.units + tasks - 1) / tasks;
    ew_parallel(c, (int32_t)((w.units + w.per_task - 1) / w.per_task), reduce_task, &w);
    return EW_OK;
  }
  const bool small = p->type == EW_U8 || p->type == EW_I8 || p->type == EW_BOOL;
  if (!small && p->type != EW_F64 && p->type != EW_I32 && p->type != EW_I64) return EW_E_PARAM;
  if (small && p->op != EW_REDUCE_MAX && p->op != EW_REDUCE_MIN) return EW_E_PARAM;
  for (int64_t o = 0; o < p->outer && !ew_stopping(c); o++)
    for (int64_t i = 0; i < p->inner; i++) {
      const int64_t from = o * p->x_outer + i * p->x_inner, to = o * p->y_outer + i;
      if (p->type == EW_F64) {
        ((m_f64 *)y)[to] =
            reduce_f64(p->op, (const m_f64 *)operand[EW_REDUCE_X] + from, p->x_n, p->n);
        continue;
      }
      const int64_t v = reduce_integer(p->op, p->type, operand[EW_REDUCE_X], from, p->x_n, p->n);
      if (small)
        ((m_u8 *)y)[to] = (uint8_t)v;
      else if (p->type == EW_I32)
        ((m_i32 *)y)[to] = (int32_t)v;
      else
        ((m_i64 *)y)[to] = v;
    }
  return EW_OK;
}
