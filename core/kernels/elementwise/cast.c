/* Casts between number types (ONNX Cast), and packing and unpacking of sub-byte types.
 *
 * A cast goes through float64 if the source is a floating-point type and through int64 if it is an
 * integer type, so 25 x 25 pairs take 25 + 2 x 25 loops; frequent pairs have vectorized loops of
 * their own. Sub-byte types are stored one byte per element here; the kernel `pack` converts to and
 * from the packed format. Strided operands and threads: each.h. */
#include "scalar_math.h"
#include "kernels/elementwise/each.h"

enum { CHUNK = 256 }; /* elements converted at a time through float64 or int64 */

/* Rounds to odd, so that a second rounding (to half precision) gives the same result as a single
 * rounding. */
static float narrow(double x) {
  float f = (float)x;
  if ((double)f == x || x != x || f == INFINITY || f == -INFINITY) return f;
  uint32_t u = ew_bits(f);
  if (fabs((double)f) > fabs(x)) u--;
  return ew_float(u | 1);
}

/* Parameters of the floating-point formats of 8 bits and less. `largest`: code of the largest
 * number; `over`: code for larger values without saturation; `sign`: the sign bit. Formats with NaN
 * encoded as -0 (nan == sign in 8 bits: FNUZ) have no -0. E8M0 has no sign and no mantissa, and its
 * exponent 0 encodes an ordinary number. */
typedef struct {
  uint8_t mantissa, bias, largest, nan, over, sign;
} minifloat;
static const minifloat minifloats[] = {{3, 7, 0x7e, 0x7f, 0x7f, 0x80},
                                       {3, 8, 0x7f, 0x80, 0x80, 0x80},
                                       {2, 15, 0x7b, 0x7e, 0x7c, 0x80},
                                       {2, 16, 0x7f, 0x80, 0x80, 0x80},
                                       {0},
                                       {0},
                                       {1, 1, 7, 8, 7, 8},
                                       {0, 127, 254, 255, 255, 0},
                                       {0},
                                       {0},
                                       {3, 1, 0x1f, 0x20, 0x1f, 0x20},
                                       {2, 3, 0x1f, 0x20, 0x1f, 0x20}};
static bool is_minifloat(int32_t type) {
  return type >= EW_E4M3FN && minifloats[type - EW_E4M3FN].largest;
}

/* Encodes x, round to nearest even. mode: 1: values that are too large become `over` instead of
 * saturating; 2 and 4: E8M0 rounds down, or to nearest with halves up, instead of up. */
static uint8_t encode(int32_t type, int32_t mode, double x) {
  const minifloat f = minifloats[type - EW_E4M3FN];
  const double a = fabs(x);
  const uint8_t sign = signbit(x) ? f.sign : 0;
  int e = 0, code = f.largest + 1;
  if (x != x) return f.nan < f.sign ? f.nan | sign : f.nan;
  const double half = frexp(a, &e); /* a = half 2^e, half in [1/2, 1) */
  if (!f.sign) {
    if (a < (double)INFINITY)
      code = a > 0 ? e - 1 + f.bias + (mode & 4 ? half >= 0.75 : mode & 2 ? 0 : half > 0.5) : -1;
    return code >= 0 && code <= f.largest ? (uint8_t)code
           : mode & 1                     ? f.nan
           : code < 0                     ? 0
                                          : f.largest;
  }
  if (a < (double)INFINITY) {
    /* the unit in the last place is 2^step */
    const int step = (a > 0 && e - 1 > 1 - f.bias ? e - 1 : 1 - f.bias) - f.mantissa;
    code = (int)rint(ldexp(a, -step)) + ((step + f.mantissa + f.bias - 1) << f.mantissa);
  }
  if (code > f.largest) code = mode & 1 ? f.over : f.largest;
  return (uint8_t)(f.nan == 0x80 && (code == 0 || code == 0x80) ? code : code | sign);
}

static double decode(int32_t type, uint8_t code) {
  const minifloat f = minifloats[type - EW_E4M3FN];
  if (!f.sign) return code == f.nan ? (double)NAN : ldexp(1, code - f.bias);
  const int magnitude = code & (f.sign - 1), e = magnitude >> f.mantissa,
            m = magnitude & ((1 << f.mantissa) - 1);
  const double v = magnitude > f.largest
                       ? (magnitude == f.over && f.over != f.nan ? (double)INFINITY : (double)NAN)
                       : ldexp(e ? m + (1 << f.mantissa) : m, (e ? e : 1) - f.bias - f.mantissa);
  return code == 0x80 && f.nan == 0x80 ? (double)NAN : code & f.sign ? -v : v;
}

static bool is_float(int32_t type) {
  return type == EW_F32 || type == EW_F64 || type == EW_F16 || type == EW_BF16 ||
         is_minifloat(type);
}

static void load_float(int32_t type, const void *x, int32_t n, double *to) {
#define LOAD(T, expression)                  \
  EW_PLAIN_FOR (int32_t i = 0; i < n; i++) { \
    const T v = ((const T *)x)[i];           \
    to[i] = expression;                      \
  }                                          \
  break
  switch (EW_CHOICE(CAST_FROM, type)) {
  case EW_F32: LOAD(m_f32, (double)v);
  case EW_F16: LOAD(m_u16, (double)half_to_float(v));
  case EW_BF16: LOAD(m_u16, (double)ew_bfloat_to_float(v));
  case EW_F64: LOAD(m_f64, v);
  default: LOAD(m_u8, decode(type, v));
  }
}

static void load_integer(int32_t type, const void *x, int32_t n, int64_t *to) {
  switch (EW_CHOICE(CAST_FROM, type)) {
  case EW_U8:
  case EW_U4:
  case EW_U2: LOAD(m_u8, v);
  case EW_I4: LOAD(m_u8, (v ^ 8) - 8);
  case EW_I2: LOAD(m_u8, (v ^ 2) - 2);
  case EW_BOOL: LOAD(m_u8, v != 0);
  case EW_I8: LOAD(m_i8, v);
  case EW_U16: LOAD(m_u16, v);
  case EW_I16: LOAD(m_i16, v);
  case EW_U32: LOAD(m_u32, v);
  case EW_I32: LOAD(m_i32, v);
  default: LOAD(m_i64, v);
  }
#undef LOAD
}

/* Truncates and saturates to the range of the type (`above` is its maximum + 1); NaN gives 0. */
#define SATURATE(T, least, above, most) \
  (v != v ? 0 : v <= (least) ? (T)(least) : v >= (above) ? (most) : (T)v)
#define STORE(M, expression)                 \
  EW_PLAIN_FOR (int32_t i = 0; i < n; i++) { \
    const SOURCE v = from[i];                \
    ((M *)y)[i] = expression;                \
  }                                          \
  break

static void store_float(int32_t type, int32_t mode, const double *from, int32_t n, void *y) {
#define SOURCE double
  switch (EW_CHOICE(CAST_TO, type)) {
  case EW_F32: STORE(m_f32, (float)v);
  case EW_F64: STORE(m_f64, v);
  case EW_F16: STORE(m_u16, ew_float_to_half(narrow(v)));
  case EW_BF16: STORE(m_u16, ew_float_to_bfloat(narrow(v)));
  case EW_BOOL: STORE(m_u8, v != 0);
  case EW_U8: STORE(m_u8, SATURATE(uint8_t, 0, 0x1p8, UINT8_MAX));
  case EW_I8: STORE(m_i8, SATURATE(int8_t, -0x1p7, 0x1p7, INT8_MAX));
  case EW_U16: STORE(m_u16, SATURATE(uint16_t, 0, 0x1p16, UINT16_MAX));
  case EW_I16: STORE(m_i16, SATURATE(int16_t, -0x1p15, 0x1p15, INT16_MAX));
  case EW_U32: STORE(m_u32, SATURATE(uint32_t, 0, 0x1p32, UINT32_MAX));
  case EW_I32: STORE(m_i32, SATURATE(int32_t, -0x1p31, 0x1p31, INT32_MAX));
  case EW_U64: STORE(m_u64, SATURATE(uint64_t, 0, 0x1p64, UINT64_MAX));
  case EW_I64: STORE(m_i64, SATURATE(int64_t, -0x1p63, 0x1p63, INT64_MAX));
  /* `pack` keeps the low bits */
  case EW_U4:
  case EW_I4:
  case EW_U2:
  case EW_I2: STORE(m_u8, (uint8_t)SATURATE(int32_t, -0x1p31, 0x1p31, INT32_MAX));
  default: STORE(m_u8, encode(type, mode, v));
  }
#undef SOURCE
}

/* Integer to integer casts wrap. A uint64 above INT64_MAX is negative here, which matters only for
 * conversion to floating point (`wide`). */
static void store_integer(int32_t type, int32_t mode, const int64_t *from, int32_t n, void *y,
                          bool wide) {
#define SOURCE int64_t
  switch (EW_CHOICE(CAST_TO, type)) {
  case EW_F32: STORE(m_f32, wide ? (float)(uint64_t)v : (float)v);
  case EW_F64: STORE(m_f64, wide ? (double)(uint64_t)v : (double)v);
  case EW_F16: STORE(m_u16, ew_float_to_half(narrow(wide ? (double)(uint64_t)v : (double)v)));
  case EW_BF16: STORE(m_u16, ew_float_to_bfloat(narrow(wide ? (double)(uint64_t)v : (double)v)));
  case EW_BOOL: STORE(m_u8, v != 0);
  case EW_U8:
  case EW_I8:
  case EW_U4:
  case EW_I4:
  case EW_U2:
  case EW_I2: STORE(m_u8, (uint8_t)v);
  case EW_U16:
  case EW_I16: STORE(m_u16, (uint16_t)v);
  case EW_U32:
  case EW_I32: STORE(m_u32, (uint32_t)v);
  case EW_I64:
  case EW_U64: STORE(m_i64, v);
  default: STORE(m_u8, encode(type, mode, wide ? (double)(uint64_t)v : (double)v));
  }
#undef SOURCE
}

typedef struct {
  int32_t from, to, mode;
} cast;

#define PAIR(from, to) ((from) * 32 + (to))

static void row_cast(const void *job, int32_t n, const void *const *in, void *out) {
  const cast *c = job;
#define DIRECT(FROM, TO, X, Y, expression)                  \
  case PAIR(FROM, TO):                                      \
    if (EW_USES(CAST_FROM, FROM) && EW_USES(CAST_TO, TO)) { \
      const X *x = in[0];                                   \
      Y *y = out;                                           \
      EW_EACH for (int32_t i = 0; i < n; i++) {             \
        const X v = x[i];                                   \
        y[i] = expression;                                  \
      }                                                     \
    }                                                       \
    return
#define IN_VECTORS(FROM, TO, X, Y, step, vectors, expression) \
  case PAIR(FROM, TO):                                        \
    if (EW_USES(CAST_FROM, FROM) && EW_USES(CAST_TO, TO)) {   \
      const X *x = in[0];                                     \
      Y *y = out;                                             \
      int32_t i = 0;                                          \
      EW_PLAIN_FOR (; i + (step) <= n; i += (step)) vectors;  \
      EW_PLAIN_FOR (; i < n; i++) y[i] = expression;          \
    }                                                         \
    return
  switch (PAIR(c->from, c->to)) {
    IN_VECTORS(EW_F32, EW_F16, m_f32, m_u16, 2 * VF,
               vf_store_halves(y + i, vf_load(x + i), vf_load(x + i + VF)), ew_float_to_half(x[i]));
    IN_VECTORS(EW_F16, EW_F32, m_u16, m_f32, 2 * VF, vf_copy_at(y + i, x, i, true),
               half_to_float(x[i]));
    IN_VECTORS(EW_BOOL, EW_F32, m_u8, m_f32, VF,
               vf_store(y + i, (vf)((vi_load_bytes(x + i) != 0) & 0x3f800000)), (float)(x[i] != 0));
    DIRECT(EW_BF16, EW_F32, m_u16, m_f32, ew_bfloat_to_float(v));
    DIRECT(EW_F32, EW_BOOL, m_f32, m_u8, v != 0);
    DIRECT(EW_U8, EW_F32, m_u8, m_f32, (float)v);
    DIRECT(EW_I32, EW_F32, m_i32, m_f32, (float)v);
    DIRECT(EW_I64, EW_F32, m_i64, m_f32, (float)v);
    DIRECT(EW_I64, EW_I32, m_i64, m_i32, (int32_t)v);
    DIRECT(EW_I32, EW_I64, m_i32, m_i64, v);
  }
#undef DIRECT
#undef IN_VECTORS
  const int32_t x_size = ew_bytes_of(c->from), y_size = ew_bytes_of(c->to);
  for (int32_t at = 0; at < n; at += CHUNK) {
    const int32_t m = n - at < CHUNK ? n - at : CHUNK;
    const uint8_t *x = (const uint8_t *)in[0] + (int64_t)at * x_size;
    uint8_t *y = (uint8_t *)out + (int64_t)at * y_size;
    if (is_float(c->from)) {
      double middle[CHUNK];
      load_float(c->from, x, m, middle);
      store_float(c->to, c->mode, middle, m, y);
    } else {
      int64_t middle[CHUNK];
      load_integer(c->from, x, m, middle);
      store_integer(c->to, c->mode, middle, m, y, c->from == EW_U64);
    }
  }
}

int32_t ew_k_cast(ew_context *c, const ew_cast_params *p, void *const *operand) {
  const cast job = {p->x_type, p->y_type, p->mode};
  const ew_strided x = {operand[EW_CAST_X], p->xs, ew_bytes_of(p->x_type)},
                   y = {operand[EW_CAST_Y], p->ys, ew_bytes_of(p->y_type)};
  ew_each(c, p->dims, 1, &x, y, row_cast, &job);
  return EW_OK;
}

int32_t ew_k_pack(ew_context *c, const ew_pack_params *p, void *const *operand) {
  (void)c;
  const m_u8 *x = operand[EW_PACK_X];
  m_u8 *y = operand[EW_PACK_Y];
  const uint32_t bits = (uint32_t)p->bits, from = p->unpack ? 8 : bits, to = p->unpack ? bits : 8,
                 mask = (1u << bits) - 1;
  uint32_t held = 0, have = 0; /* pending bits, first ones lowest, and their number */
  for (int32_t i = 0; i < p->n; i++) {
    if (p->unpack) {
      if (have < to) held |= (uint32_t)*x++ << have, have += from;
      *y++ = (uint8_t)(held & mask);
      held >>= to, have -= to;
    } else {
      held |= (*x++ & mask) << have, have += from;
      if (have >= to) *y++ = (uint8_t)held, held >>= to, have -= to;
    }
  }
  if (have && !p->unpack) *y = (uint8_t)held;
  return EW_OK;
}
