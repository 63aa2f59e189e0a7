/* y = op(x), elementwise: activations, rounding, elementary functions, Clip and the like.
 *
 * What they compute of floats, is in gen/formulas.h, generated from the contract. Strided operands
 * and threads: each.h. float32 functions are computed on vectors of VF lanes; float64 and rare
 * functions with libm, one element at a time; integers in int64 blocks. */
#include "vector_math.h"
#include "kernels/elementwise/each.h"
#include <string.h>

typedef struct {
  int32_t op, type;
  float alpha, beta;
} unary;

static void vectors_f32(const void *job, int32_t n, const void *const *in, void *out) {
  const unary *u = job;
  const m_f32 *x = in[0];
  m_f32 *y = out;
  const float alpha = u->alpha, beta = u->beta;
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
#define CASE_PLAIN(NAME, expression)  \
  case EW_UNARY_##NAME:               \
    for (int32_t i = 0; i < n; i++) { \
      const double v = (double)x[i];  \
      y[i] = (float)(expression);     \
    }                                 \
    break;
  switch (EW_CHOICE(UNARY_OP, u->op)) {
    EW_UNARY_VECTORS(CASE)
    EW_UNARY_EACH(CASE_EACH)
    EW_UNARY_PLAIN(CASE_PLAIN)
  }
#undef CASE
#undef CASE_EACH
#undef CASE_PLAIN
}

static void row_f32(const void *job, int32_t n, const void *const *in, void *out) {
  ew_whole_vectors(vectors_f32, job, n, 1, in, out);
}

static void row_f64(const void *job, int32_t n, const void *const *in, void *out) {
  const unary *u = job;
  const m_f64 *x = in[0];
  m_f64 *y = out;
  const double alpha = (double)u->alpha, beta = (double)u->beta;
#define CASE(NAME, expression)                 \
  case EW_UNARY_##NAME:                        \
    EW_PLAIN_FOR (int32_t i = 0; i < n; i++) { \
      const double v = x[i];                   \
      y[i] = expression;                       \
    }                                          \
    break;
  switch (EW_CHOICE(UNARY_OP, u->op)) { EW_UNARY_DOUBLES(CASE) }
#undef CASE
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
#define CASE(NAME, expression) \
  case EW_UNARY_##NAME: y[i] = expression; break;
    switch (u->op) { EW_UNARY_TESTS(CASE) }
#undef CASE
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
