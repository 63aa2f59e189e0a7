/* y = op(x), elementwise: activations, rounding, elementary functions, Clip and the like.
 *
 * Strided operands and threads: each.h. float32 functions are computed on vectors of VF lanes;
 * float64 and rare functions with libm, one element at a time; integers in int64 blocks. */
#include "vector_math.h"
#include "kernels/elementwise/each.h"
#include <string.h>

typedef struct {
  int32_t op, type;
  float alpha, beta;
} unary;

/* Rare functions use libm's double version for float32, too: one copy of each in the engine. */
#define RARE_CASES(T)              \
  CASE(SIN, (T)sin((double)v))     \
  CASE(COS, (T)cos((double)v))     \
  CASE(TAN, (T)tan((double)v))     \
  CASE(ASIN, (T)asin((double)v))   \
  CASE(ACOS, (T)acos((double)v))   \
  CASE(ATAN, (T)atan((double)v))   \
  CASE(SINH, (T)sinh((double)v))   \
  CASE(COSH, (T)cosh((double)v))   \
  CASE(ASINH, (T)asinh((double)v)) \
  CASE(ACOSH, (T)acosh((double)v)) \
  CASE(ATANH, (T)atanh((double)v))

static void vectors_f32(const void *job, int32_t n, const void *const *in, void *out) {
  const unary *u = job;
  const m_f32 *x = in[0];
  m_f32 *y = out;
  const float a = u->alpha, b = u->beta;
  const vf none = vf_splat(0);
#define CASE(NAME, expression)            \
  case EW_UNARY_##NAME:                   \
    for (int32_t i = 0; i < n; i += VF) { \
      const vf v = vf_load(x + i);        \
      vf_store(y + i, expression);        \
    }                                     \
    break;
#define CASE_EACH(NAME, expression)           \
  case EW_UNARY_##NAME:                       \
    EW_EACH for (int32_t i = 0; i < n; i++) { \
      const float v = x[i];                   \
      y[i] = expression;                      \
    }                                         \
    break;
  switch (EW_CHOICE(UNARY_OP, u->op)) {
    CASE(NEG, -v)
    CASE(ABS, vf_abs(v))
    CASE(SIGN, vf_select(v > none, vf_splat(1), vf_select(v < none, vf_splat(-1), v)))
    CASE_EACH(FLOOR, floorf(v))
    CASE_EACH(CEIL, ceilf(v))
    CASE_EACH(ROUND, rintf(v))
    CASE(SQRT, vf_sqrt(v))
    CASE(RECIPROCAL, 1.0f / v)
    CASE(EXP, vf_exp(v))
    CASE(LOG, vf_log(v))
    CASE(TANH, vf_tanh(v))
    CASE(ERF, vf_erf(v))
    CASE(SIGMOID, vf_sigmoid(v))
    CASE(RELU, vf_max(v, none))
    CASE(LEAKY_RELU, vf_select(v < none, a * v, v))
    CASE(ELU, vf_select(v < none, a * vf_expm1(v), v))
    CASE(SELU, b * vf_select(v < none, a * vf_expm1(v), v))
    CASE(CELU, vf_select(v < none, a * vf_expm1(v / a), v))
    CASE(SOFTPLUS, vf_softplus(v))
    CASE(SOFTSIGN, v / (1.0f + vf_abs(v)))
    CASE(HARD_SIGMOID, vf_clamp(a * v + b, 0, 1))
    CASE(HARD_SWISH, v * vf_clamp(v * (1.0f / 6) + 0.5f, 0, 1))
    CASE(MISH, vf_mish(v))
    CASE(GELU, vf_gelu(v))
    CASE(GELU_TANH, vf_gelu_tanh(v))
    CASE(QUICK_GELU, v * vf_sigmoid(a * v))
    CASE(SILU, vf_silu(v))
    CASE(THRESHOLDED_RELU, vf_select(v > vf_splat(a), v, none))
    CASE(CLIP, vf_clamp(v, a, b))
    CASE(RSQRT, 1.0f / vf_sqrt(v))
    CASE(SQUARE, v * v)
    CASE(LINEAR, a * v + b)
#undef CASE
#define CASE(NAME, expression)        \
  case EW_UNARY_##NAME:               \
    for (int32_t i = 0; i < n; i++) { \
      const float v = x[i];           \
      y[i] = expression;              \
    }                                 \
    break;
    RARE_CASES(float)
#undef CASE
#undef CASE_EACH
  }
}

static void row_f32(const void *job, int32_t n, const void *const *in, void *out) {
  ew_whole_vectors(vectors_f32, job, n, 1, in, out);
}

static double clamp(double v, double low, double high) {
  v = v < low ? low : v;
  return v > high ? high : v;
}
static double sigmoid(double v) { return 1 / (1 + exp(-v)); }
static double softplus(double v) { return v > 0 ? v + log1p(exp(-v)) : log1p(exp(v)); }

static void row_f64(const void *job, int32_t n, const void *const *in, void *out) {
  const unary *u = job;
  const m_f64 *x = in[0];
  m_f64 *y = out;
  const double a = (double)u->alpha, b = (double)u->beta;
#define CASE(NAME, expression)                 \
  case EW_UNARY_##NAME:                        \
    EW_PLAIN_FOR (int32_t i = 0; i < n; i++) { \
      const double v = x[i];                   \
      y[i] = expression;                       \
    }                                          \
    break;
  switch (EW_CHOICE(UNARY_OP, u->op)) {
    CASE(NEG, -v)
    CASE(ABS, fabs(v))
    CASE(SIGN, v > 0 ? 1.0 : v < 0 ? -1.0 : v)
    CASE(FLOOR, floor(v))
    CASE(CEIL, ceil(v))
    CASE(ROUND, rint(v))
    CASE(SQRT, sqrt(v))
    CASE(RECIPROCAL, 1 / v)
    CASE(EXP, exp(v))
    CASE(LOG, log(v))
    CASE(TANH, tanh(v))
    CASE(ERF, erf(v))
    CASE(SIGMOID, sigmoid(v))
    CASE(RELU, v < 0 ? 0 : v)
    CASE(LEAKY_RELU, v < 0 ? a * v : v)
    CASE(ELU, v < 0 ? a * expm1(v) : v)
    CASE(SELU, b * (v < 0 ? a * expm1(v) : v))
    CASE(CELU, v < 0 ? a * expm1(v / a) : v)
    CASE(SOFTPLUS, softplus(v))
    CASE(SOFTSIGN, v / (1 + fabs(v)))
    CASE(HARD_SIGMOID, clamp(a * v + b, 0, 1))
    CASE(HARD_SWISH, v * clamp(v / 6 + 0.5, 0, 1))
    CASE(MISH, v * tanh(softplus(v)))
    CASE(GELU, 0.5 * v * (1 + erf(v * 0.70710678118654752)))
    CASE(GELU_TANH, v * sigmoid(1.5957691216057308 * (v + 0.044715 * v * v * v)))
    CASE(QUICK_GELU, v * sigmoid(a * v))
    CASE(SILU, v * sigmoid(v))
    CASE(THRESHOLDED_RELU, v > a ? v : 0)
    CASE(CLIP, clamp(v, a, b))
    CASE(RSQRT, 1 / sqrt(v))
    CASE(SQUARE, v * v)
    CASE(LINEAR, a * v + b)
    RARE_CASES(double)
#undef CASE
  }
}

/* Bounds of Clip, saturated to what the type can hold. A NaN bound has no effect. */
static int64_t low_bound(float v) {
  return v != v || v <= -0x1p63f ? INT64_MIN : v >= 0x1p63f ? INT64_MAX : (int64_t)ceilf(v);
}
static int64_t high_bound(float v) {
  return v != v || v >= 0x1p63f ? INT64_MAX : v <= -0x1p63f ? INT64_MIN : (int64_t)floorf(v);
}

/* One loop for all integer types: a block is widened to int64 (uint64 keeps its bits), computed and
 * narrowed. */
static bool integer_op(int32_t op) {
  return op == EW_UNARY_NEG || op == EW_UNARY_ABS || op == EW_UNARY_SIGN || op == EW_UNARY_CLIP ||
         op == EW_UNARY_RELU || op == EW_UNARY_SQUARE || op == EW_UNARY_BIT_NOT;
}

static void row_integer(const void *job, int32_t n, const void *const *in, void *out) {
  const unary *u = job;
  const bool wide = u->type == EW_U64;
  int64_t low = low_bound(u->alpha), high = high_bound(u->beta);
  for (int32_t i = 0; i < n; i++) {
    int64_t v = 0;
    switch (u->type) {
    case EW_U8: v = ((const m_u8 *)in[0])[i]; break;
    case EW_I8: v = ((const m_i8 *)in[0])[i]; break;
    case EW_U16: v = ((const m_u16 *)in[0])[i]; break;
    case EW_I16: v = ((const m_i16 *)in[0])[i]; break;
    case EW_U32: v = ((const m_u32 *)in[0])[i]; break;
    case EW_I32: v = ((const m_i32 *)in[0])[i]; break;
    default: v = ((const m_i64 *)in[0])[i];
    }
    const uint64_t w = (uint64_t)v;
    const bool negative = v < 0 && !wide;
    switch (u->op) {
    case EW_UNARY_NEG: v = (int64_t)(0 - w); break;
    case EW_UNARY_ABS: v = (int64_t)(negative ? 0 - w : w); break;
    case EW_UNARY_SIGN: v = negative ? -1 : v != 0; break;
    case EW_UNARY_RELU: v = negative ? 0 : v; break;
    case EW_UNARY_SQUARE: v = (int64_t)(w * w); break;
    case EW_UNARY_BIT_NOT: v = ~v; break;
    case EW_UNARY_CLIP:
      /* uint64 values of 2^63 and above are negative as int64, so their bounds are derived from the
       * float directly. */
      if (wide) {
        uint64_t l = u->alpha >= 0x1p64f ? UINT64_MAX
                     : u->alpha > 0      ? (uint64_t)ceilf(u->alpha)
                                         : 0;
        uint64_t h = u->beta != u->beta || u->beta >= 0x1p64f ? UINT64_MAX
                     : u->beta > 0                            ? (uint64_t)u->beta
                                                              : 0;
        uint64_t r = w < l ? l : w;
        v = (int64_t)(r > h ? h : r);
      } else {
        int32_t bits = 8 * ew_bytes_of(u->type);
        bool is_signed =
            u->type == EW_I8 || u->type == EW_I16 || u->type == EW_I32 || u->type == EW_I64;
        int64_t least = is_signed ? INT64_MIN >> (64 - bits) : 0,
                most = is_signed ? INT64_MAX >> (64 - bits) : (int64_t)(UINT64_MAX >> (64 - bits));
        int64_t l = low < least  ? least
                    : low > most ? most
                                 : low,
                h = high < least  ? least
                    : high > most ? most
                                  : high;
        v = v < l ? l : v;
        v = v > h ? h : v;
      }
      break;
    }
    switch (ew_bytes_of(u->type)) {
    case 1: ((m_u8 *)out)[i] = (uint8_t)v; break;
    case 2: ((m_u16 *)out)[i] = (uint16_t)v; break;
    case 4: ((m_u32 *)out)[i] = (uint32_t)v; break;
    default: ((m_i64 *)out)[i] = v;
    }
  }
}

static void row_test(const void *job, int32_t n, const void *const *in, void *out) {
  const unary *u = job;
  m_u8 *y = out;
  for (int32_t i = 0; i < n; i++) {
    if (u->op == EW_UNARY_NOT) {
      y[i] = !((const m_u8 *)in[0])[i];
      continue;
    }
    double v = u->type == EW_F32 ? (double)((const m_f32 *)in[0])[i] : ((const m_f64 *)in[0])[i];
    y[i] = u->op == EW_UNARY_IS_NAN ? v != v : fabs(v) == (double)INFINITY;
  }
}

static void row_unary(const void *job, int32_t n, const void *const *in, void *out) {
  const unary *u = job;
  switch (EW_CHOICE(UNARY_OP, u->op)) {
  case EW_UNARY_IS_NAN:
  case EW_UNARY_IS_INF:
  case EW_UNARY_NOT: row_test(job, n, in, out); return;
  }
  switch (EW_CHOICE(UNARY_TYPE, u->type)) {
  case EW_F32: row_f32(job, n, in, out); break;
  case EW_F64: row_f64(job, n, in, out); break;
  default: row_integer(job, n, in, out);
  }
}

int32_t ew_k_unary(ew_context *c, const ew_unary_params *p, void *const *operand) {
  const unary u = {p->op, p->type, p->alpha, p->beta};
  const bool is_float = p->type == EW_F32 || p->type == EW_F64,
             test = p->op == EW_UNARY_IS_NAN || p->op == EW_UNARY_IS_INF;
  bool known = p->op == EW_UNARY_NOT ? p->type == EW_BOOL
               : is_float ? p->op != EW_UNARY_BIT_NOT
                          : p->type != EW_BOOL && p->type != EW_F16 && p->type != EW_BF16 &&
                                integer_op(p->op);
  if (!known) return EW_E_PARAM;
  int32_t size = ew_bytes_of(p->type);
  const ew_strided x = {operand[EW_UNARY_X], p->xs, size},
                   y = {operand[EW_UNARY_Y], p->ys, test ? 1 : size};
  ew_each(c, p->dims, 1, &x, y, row_unary, &u);
  return EW_OK;
}
