/* Casts between the number types: by way of float64 from a float type, of int64 from an integer type, so that 13 x 13 pairs are 13 + 2 x 13
 * loops; the pairs that models are full of have loops of their own. */
#include "../scalar_math.h"
#include "each.h"

enum { CHUNK = 256 };

/* Round to odd: what a second rounding (to half) then makes of it is what one rounding would have. */
static float narrow(double x) {
  float f = (float)x;
  if ((double)f == x || x != x || f == INFINITY || f == -INFINITY) return f;
  uint32_t u = ew_bits(f);
  if (fabs((double)f) > fabs(x)) u--;
  return ew_float(u | 1);
}

static bool is_float(int32_t type) { return type == EW_F32 || type == EW_F64 || type == EW_F16 || type == EW_BF16; }

static void load_float(int32_t type, const void *x, int32_t n, double *to) {
#define LOAD(T, expression)                   \
  EW_PLAIN for (int32_t i = 0; i < n; i++) {  \
    const T v = ((const T *)x)[i];            \
    to[i] = expression;                       \
  }                                           \
  break
  switch (type) {
  case EW_F32: LOAD(m_f32, (double)v);
  case EW_F16: LOAD(m_u16, (double)ew_half_to_float(v));
  case EW_BF16: LOAD(m_u16, (double)ew_bfloat_to_float(v));
  default: LOAD(m_f64, v);
  }
}

static void load_integer(int32_t type, const void *x, int32_t n, int64_t *to) {
  switch (type) {
  case EW_U8: LOAD(m_u8, v);
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

/* Truncated; beyond the type's ends, its ends (`above` is one more than the largest); NaN gives 0. */
#define SATURATE(T, least, above, most) (v != v ? 0 : v <= (least) ? (T)(least) : v >= (above) ? (most) : (T)v)
#define STORE(M, expression)                  \
  EW_PLAIN for (int32_t i = 0; i < n; i++) {  \
    const SOURCE v = from[i];                 \
    ((M *)y)[i] = expression;                 \
  }                                           \
  break

static void store_float(int32_t type, const double *from, int32_t n, void *y) {
#define SOURCE double
  switch (type) {
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
  default: STORE(m_i64, SATURATE(int64_t, -0x1p63, 0x1p63, INT64_MAX));
  }
#undef SOURCE
}

/* Integers wrap into integers, as everywhere. A uint64 above INT64_MAX looks negative here, which only matters to floats. */
static void store_integer(int32_t type, const int64_t *from, int32_t n, void *y, bool wide) {
#define SOURCE int64_t
  switch (type) {
  case EW_F32: STORE(m_f32, wide ? (float)(uint64_t)v : (float)v);
  case EW_F64: STORE(m_f64, wide ? (double)(uint64_t)v : (double)v);
  case EW_F16: STORE(m_u16, ew_float_to_half(narrow(wide ? (double)(uint64_t)v : (double)v)));
  case EW_BF16: STORE(m_u16, ew_float_to_bfloat(narrow(wide ? (double)(uint64_t)v : (double)v)));
  case EW_BOOL: STORE(m_u8, v != 0);
  case EW_U8: case EW_I8: STORE(m_u8, (uint8_t)v);
  case EW_U16: case EW_I16: STORE(m_u16, (uint16_t)v);
  case EW_U32: case EW_I32: STORE(m_u32, (uint32_t)v);
  default: STORE(m_i64, v);
  }
#undef SOURCE
}

typedef struct { int32_t from, to; } cast;

#define PAIR(from, to) ((from) * 32 + (to))

static void row_cast(const void *job, int32_t n, const void *const *in, void *out) {
  const cast *c = job;
#define DIRECT(X, Y, expression)                \
  {                                             \
    const X *x = in[0];                         \
    Y *y = out;                                 \
    EW_EACH for (int32_t i = 0; i < n; i++) {   \
      const X v = x[i];                         \
      y[i] = expression;                        \
    }                                           \
  }                                             \
  return
  switch (PAIR(c->from, c->to)) {
  case PAIR(EW_F32, EW_F16): DIRECT(m_f32, m_u16, ew_float_to_half(v));
  case PAIR(EW_F16, EW_F32): DIRECT(m_u16, m_f32, ew_half_to_float(v));
  case PAIR(EW_BF16, EW_F32): DIRECT(m_u16, m_f32, ew_bfloat_to_float(v));
  case PAIR(EW_BOOL, EW_F32): DIRECT(m_u8, m_f32, (float)(v != 0));
  case PAIR(EW_F32, EW_BOOL): DIRECT(m_f32, m_u8, v != 0);
  case PAIR(EW_U8, EW_F32): DIRECT(m_u8, m_f32, (float)v);
  case PAIR(EW_I32, EW_F32): DIRECT(m_i32, m_f32, (float)v);
  case PAIR(EW_I64, EW_F32): DIRECT(m_i64, m_f32, (float)v);
  case PAIR(EW_I64, EW_I32): DIRECT(m_i64, m_i32, (int32_t)v);
  case PAIR(EW_I32, EW_I64): DIRECT(m_i32, m_i64, v);
  }
#undef DIRECT
  const int32_t x_size = ew_bytes_of(c->from), y_size = ew_bytes_of(c->to);
  for (int32_t at = 0; at < n; at += CHUNK) {
    const int32_t m = n - at < CHUNK ? n - at : CHUNK;
    const uint8_t *x = (const uint8_t *)in[0] + (int64_t)at * x_size;
    uint8_t *y = (uint8_t *)out + (int64_t)at * y_size;
    if (is_float(c->from)) {
      double middle[CHUNK];
      load_float(c->from, x, m, middle);
      store_float(c->to, middle, m, y);
    } else {
      int64_t middle[CHUNK];
      load_integer(c->from, x, m, middle);
      store_integer(c->to, middle, m, y, c->from == EW_U64);
    }
  }
}

int32_t ew_k_cast(ew_context *c, const ew_cast_params *p, void *const *operand) {
  const cast job = {p->x_type, p->y_type};
  const ew_strided x = {operand[EW_CAST_X], p->xs, ew_bytes_of(p->x_type)}, y = {operand[EW_CAST_Y], p->ys, ew_bytes_of(p->y_type)};
  ew_each(c, p->dims, 1, &x, y, row_cast, &job);
  return EW_OK;
}
