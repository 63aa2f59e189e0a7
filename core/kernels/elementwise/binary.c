/* y = a op b, elementwise with broadcasting (strides of 0): arithmetic, comparisons, logic and bit
 * operations.
 *
 * What they compute of floats, is in gen/formulas.h, generated from the contract. Strided operands
 * and threads: each.h. float32, int32 and the boolean operations have loops that compilers
 * vectorize; other types are computed one element at a time in float64 or int64. */
#include "vector_math.h"
#include "kernels/elementwise/each.h"
#include <string.h>

typedef struct {
  int32_t op, type;
} binary;

#define LOOP(before, T, M, R, NAME, expression) \
  case EW_BINARY_##NAME: {                      \
    const M *a = in[0], *b = in[1];             \
    R *y = out;                                 \
    before for (int32_t i = 0; i < n; i++) {    \
      const T u = a[i], v = b[i];               \
      y[i] = (R)(expression);                   \
    }                                           \
  } break;

/* Fast paths for common exponents, used if the exponent is the same along the whole row. */
static bool power_row(const m_f32 *a, const m_f32 *b, m_f32 *y, int32_t n) {
  const float e = b[0];
  if (e != 2 && e != 3 && e != 0.5f) return false;
  for (int32_t i = 1; i < n; i++)
    if (b[i] != e) return false;
  if (e == 2) {
    EW_EACH for (int32_t i = 0; i < n; i++) y[i] = a[i] * a[i];
  } else if (e == 3) {
    EW_EACH for (int32_t i = 0; i < n; i++) y[i] = a[i] * a[i] * a[i];
  } else { /* as pow does: pow(-0, 0.5) is 0, pow(-infinity, 0.5) is infinity */
    EW_EACH for (int32_t i = 0; i < n; i++) y[i] =
        a[i] == -INFINITY ? INFINITY : sqrtf(a[i] + 0.0f);
  }
  return true;
}

/* Whole vectors. step: VF, or 0 for an operand that is a number, repeated in one vector. */
static __attribute__((noinline)) void vectors(const binary *job, int32_t n, const m_f32 *a,
                                              int32_t a_step, const m_f32 *b, int32_t b_step,
                                              m_f32 *y) {
  const m_f32 *const end = y + n;
#define CASE(NAME, expression)                           \
  case EW_BINARY_##NAME:                                 \
    for (; y < end; y += VF, a += a_step, b += b_step) { \
      const vf u = vf_load(a), v = vf_load(b);           \
      vf_store(y, expression);                           \
    }                                                    \
    break;
  switch (EW_CHOICE(BINARY_OP, job->op)) { EW_BINARY_VECTORS(CASE) }
#undef CASE
}
static void vectors_f32(const void *job, int32_t n, const void *const *in, void *out) {
  vectors(job, n, in[0], VF, in[1], VF, out);
}
/* A row in which operand k is a number if bit k of `single` is set. */
static void numbers_f32(const void *job, int32_t n, const void *const *in, void *out,
                        uint32_t single) {
  float repeated[2][VF];
  const m_f32 *from[2];
  int32_t step[2];
  const int32_t whole = n / VF * VF, rest = n - whole;
  for (int k = 0; k < 2; k++) {
    step[k] = single >> k & 1 ? 0 : VF, from[k] = in[k];
    if (!step[k]) vf_store(repeated[k], vf_load_splat(in[k])), from[k] = repeated[k];
  }
  vectors(job, whole, from[0], step[0], from[1], step[1], out);
  if (!rest) return;
  float last[3][VF] = {{0}};
  for (int k = 0; k < 2; k++)
    if (step[k]) memcpy(last[k], from[k] + whole, (size_t)rest * 4), from[k] = last[k];
  vectors(job, VF, from[0], 0, from[1], 0, last[2]);
  memcpy((m_f32 *)out + whole, last[2], (size_t)rest * 4);
}

static void row_f32(const void *job, int32_t n, const void *const *in, void *out) {
  const int32_t op = ((const binary *)job)->op;
  if (EW_USES(BINARY_OP, EW_BINARY_POW) && op == EW_BINARY_POW && power_row(in[0], in[1], out, n))
    return;
#define CASE(NAME, expression) LOOP(EW_PLAIN, double, m_f32, m_f32, NAME, expression)
#define CASE_BOOL(NAME, expression) LOOP(EW_EACH, float, m_f32, m_u8, NAME, expression)
  switch (EW_CHOICE(BINARY_OP, op)) {
    EW_BINARY_PLAIN(CASE)
    EW_BINARY_TESTS(CASE_BOOL)
  default: ew_whole_vectors(vectors_f32, job, n, 2, in, out);
  }
#undef CASE
#undef CASE_BOOL
}

static void row_f64(const void *job, int32_t n, const void *const *in, void *out) {
#define CASE(NAME, expression) LOOP(EW_PLAIN, double, m_f64, m_f64, NAME, expression)
#define CASE_BOOL(NAME, expression) LOOP(EW_PLAIN, double, m_f64, m_u8, NAME, expression)
  switch (EW_CHOICE(BINARY_OP, ((const binary *)job)->op)) {
    EW_BINARY_DOUBLES(CASE)
    EW_BINARY_TESTS(CASE_BOOL)
  }
#undef CASE
#undef CASE_BOOL
}

/* u^v by squaring. With a negative exponent the result is nonzero only for 1 and -1. */
static uint64_t power(uint64_t u, int64_t v, bool is_signed) {
  if (v < 0 && is_signed)
    return u == 1 || (u == UINT64_MAX && !(v & 1)) ? 1 : u == UINT64_MAX ? UINT64_MAX : 0;
  uint64_t r = 1;
  for (uint64_t e = (uint64_t)v; e; e >>= 1, u *= u)
    if (e & 1) r *= u;
  return r;
}

/* All other integer cases, on int64: the low bits equal the results of the narrower types. uint64
 * and the signed types differ only where the sign matters. */
static int64_t integer(int32_t op, int32_t type, int64_t u, int64_t v) {
  const uint64_t a = (uint64_t)u, b = (uint64_t)v;
  const bool wide = type == EW_U64,
             is_signed = type == EW_I8 || type == EW_I16 || type == EW_I32 || type == EW_I64;
  const uint64_t bits = 8 * (uint64_t)ew_bytes_of(type);
  switch (op) {
  case EW_BINARY_ADD: return (int64_t)(a + b);
  case EW_BINARY_SUB: return (int64_t)(a - b);
  case EW_BINARY_MUL: return (int64_t)(a * b);
  case EW_BINARY_DIV:
    return v == 0 ? 0 : wide ? (int64_t)(a / b) : v == -1 ? (int64_t)(0 - a) : u / v;
  case EW_BINARY_FMOD:
  case EW_BINARY_MOD: {
    if (v == 0 || (v == -1 && !wide)) return 0;
    if (wide) return (int64_t)(a % b);
    int64_t r = u % v;
    return op == EW_BINARY_MOD && r != 0 && (r < 0) != (v < 0) ? r + v : r;
  }
  case EW_BINARY_POW: return (int64_t)power(a, v, is_signed);
  case EW_BINARY_MIN: return (wide ? a < b : u < v) ? u : v;
  case EW_BINARY_MAX: return (wide ? a > b : u > v) ? u : v;
  case EW_BINARY_EQUAL: return u == v;
  case EW_BINARY_LESS: return wide ? a < b : u < v;
  case EW_BINARY_LESS_EQUAL: return wide ? a <= b : u <= v;
  case EW_BINARY_GREATER: return wide ? a > b : u > v;
  case EW_BINARY_GREATER_EQUAL: return wide ? a >= b : u >= v;
  case EW_BINARY_AND: return u && v;
  case EW_BINARY_OR: return u || v;
  case EW_BINARY_XOR: return !u != !v;
  case EW_BINARY_BIT_AND: return u & v;
  case EW_BINARY_BIT_OR: return u | v;
  case EW_BINARY_BIT_XOR: return u ^ v;
  case EW_BINARY_SHIFT_LEFT: return b >= bits ? 0 : (int64_t)(a << b);
  case EW_BINARY_SHIFT_RIGHT:
    return b >= bits ? -(int64_t)(is_signed && u < 0) : is_signed ? u >> b : (int64_t)(a >> b);
  default: return is_signed && u < 0 ? (int64_t)(a * b) : u; /* prelu */
  }
}

static int64_t element(const void *x, int32_t type, int32_t i) {
  switch (type) {
  case EW_U8:
  case EW_BOOL: return ((const m_u8 *)x)[i];
  case EW_I8: return ((const m_i8 *)x)[i];
  case EW_U16: return ((const m_u16 *)x)[i];
  case EW_I16: return ((const m_i16 *)x)[i];
  case EW_U32: return ((const m_u32 *)x)[i];
  case EW_I32: return ((const m_i32 *)x)[i];
  default: return ((const m_i64 *)x)[i];
  }
}

static void row_integer(const void *job, int32_t n, const void *const *in, void *out) {
  const int32_t op = ((const binary *)job)->op, type = ((const binary *)job)->type;
  const int32_t bytes =
      op >= EW_BINARY_EQUAL && op <= EW_BINARY_GREATER_EQUAL ? 1 : ew_bytes_of(type);
  for (int32_t i = 0; i < n; i++) {
    int64_t r = integer(op, type, element(in[0], type, i), element(in[1], type, i));
    switch (bytes) {
    case 1: ((m_u8 *)out)[i] = (uint8_t)r; break;
    case 2: ((m_u16 *)out)[i] = (uint16_t)r; break;
    case 4: ((m_u32 *)out)[i] = (uint32_t)r; break;
    default: ((m_i64 *)out)[i] = r;
    }
  }
}

/* int32 is computed as uint32, which wraps. */
static void row_i32(const void *job, int32_t n, const void *const *in, void *out) {
#define CASE(NAME, expression) LOOP(EW_EACH, uint32_t, m_u32, m_u32, NAME, expression)
#define CASE_SIGNED(NAME, expression) LOOP(EW_EACH, int32_t, m_i32, m_i32, NAME, expression)
#define CASE_BOOL(NAME, expression) LOOP(EW_EACH, int32_t, m_i32, m_u8, NAME, expression)
  switch (EW_CHOICE(BINARY_OP, ((const binary *)job)->op)) {
    CASE(ADD, u + v)
    CASE(SUB, u - v)
    CASE(MUL, u * v)
    CASE_SIGNED(MIN, u < v ? u : v)
    CASE_SIGNED(MAX, u > v ? u : v)
    EW_BINARY_TESTS(CASE_BOOL)
    CASE(BIT_AND, u & v)
    CASE(BIT_OR, u | v)
    CASE(BIT_XOR, u ^ v)
  default: row_integer(job, n, in, out);
  }
#undef CASE
#undef CASE_SIGNED
#undef CASE_BOOL
}

/* The boolean operations used for masks. */
static void row_bool(const void *job, int32_t n, const void *const *in, void *out) {
#define CASE(NAME, expression) LOOP(EW_EACH, uint8_t, m_u8, m_u8, NAME, expression)
  switch (EW_CHOICE(BINARY_OP, ((const binary *)job)->op)) {
    CASE(AND, u && v)
    CASE(OR, u || v)
    CASE(XOR, !u != !v)
  default: row_integer(job, n, in, out);
  }
#undef CASE
}

static void row_binary(const void *job, int32_t n, const void *const *in, void *out) {
  switch (EW_CHOICE(BINARY_TYPE, ((const binary *)job)->type)) {
  case EW_F32: row_f32(job, n, in, out); break;
  case EW_F64: row_f64(job, n, in, out); break;
  case EW_I32: row_i32(job, n, in, out); break;
  case EW_BOOL: row_bool(job, n, in, out); break;
  default: row_integer(job, n, in, out);
  }
}

int32_t ew_k_binary(ew_context *c, const ew_binary_params *p, void *const *operand) {
  const binary b = {p->op, p->type};
  const bool comparison = p->op >= EW_BINARY_EQUAL && p->op <= EW_BINARY_GREATER_EQUAL,
             logical = p->op >= EW_BINARY_AND && p->op <= EW_BINARY_XOR;
  const bool bitwise = p->op >= EW_BINARY_BIT_AND && p->op <= EW_BINARY_SHIFT_RIGHT,
             fused = p->op >= EW_BINARY_SILU_MUL;
  if (p->type == EW_F16 || p->type == EW_BF16) return EW_E_PARAM;
  const bool is_float = p->type == EW_F32 || p->type == EW_F64;
  if (p->type == EW_BOOL ? !logical && !comparison : logical || (is_float ? bitwise : fused))
    return EW_E_PARAM;
  const int32_t size = ew_bytes_of(p->type);
  const ew_strided in[] = {{operand[EW_BINARY_A], p->as, size},
                           {operand[EW_BINARY_B], p->bs, size}},
                   y = {operand[EW_BINARY_Y], p->ys, comparison ? 1 : size};
  const bool on_vectors = p->type == EW_F32 && (p->op <= EW_BINARY_DIV || p->op == EW_BINARY_MIN ||
                                                p->op == EW_BINARY_MAX || p->op >= EW_BINARY_PRELU);
  ew_each_with_numbers(c, p->dims, 2, in, y, row_binary, on_vectors ? numbers_f32 : NULL, &b);
  return EW_OK;
}
