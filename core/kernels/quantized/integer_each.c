/* Elementwise kernels on quantized bytes, used between quantized products: integer_binary
 * (QLinearAdd, QLinearMul), byte_lookup (any function of one tensor, as a table of 256 entries) and
 * integer_max_pool (NHWC).
 *
 * Tasks are ranges of elements, for pooling ranges of output rows. integer_binary computes VF lanes
 * at a time in float32. */
#include "scalar_math.h"
#include "kernels/convolution/window.h"

typedef struct {
  ew_context *context;
  const void *p;
  const m_u8 *a, *b;
  m_u8 *y;
  int64_t n, share;
  ew_window w;
  float factor[4];
  float low, high;
  int32_t flip_a, flip_b; /* 128 if signed: XOR with it maps signed bytes to 0..255 by adding 128 */
} bytes_job;

static void share(ew_context *ctx, bytes_job *s, int64_t n, int64_t least, ew_task task) {
  const int32_t tasks = ew_tasks(ctx, n, least, n);
  s->context = ctx, s->n = n, s->share = (n + tasks - 1) / tasks;
  ew_parallel(ctx, (int32_t)((n + s->share - 1) / s->share), task, s);
}
#define FROM(s, index) ((index) * (s)->share)
#define TO(s, index) (FROM(s, index) + (s)->share < (s)->n ? FROM(s, index) + (s)->share : (s)->n)

static float number_at(const void *p, int32_t type) {
  return !p ? 0 : type == EW_I8 ? *(const m_i8 *)p : *(const m_u8 *)p;
}

/* Factors for multiplication: zero point of a, zero point of b, scale of the product, offset. For
 * addition: scale of a, scale of b, unused, offset (which includes the zero points). */
EW_INLINE vi combined(const bytes_job *s, bool multiply, const m_u8 *a, const m_u8 *b) {
  const vf x = __builtin_convertvector(vi_load_bytes(a) ^ s->flip_a, vf),
           y = __builtin_convertvector(vi_load_bytes(b) ^ s->flip_b, vf),
           rounder = vf_splat(0x1.8p23f);
  const vf v = multiply ? (x - s->factor[0]) * (y - s->factor[1]) * s->factor[2] + s->factor[3]
                        : x * s->factor[0] + y * s->factor[1] + s->factor[3];
  return (vi)(vf_min(vf_max(v, vf_splat(s->low)), vf_splat(s->high)) + rounder) - (vi)rounder;
}
EW_INLINE void combine(const bytes_job *shared, bool multiply, int32_t index) {
  const bytes_job s = *shared;
  int64_t i = FROM(&s, index), to = TO(&s, index);
  for (; i + 2 * VF <= to; i += 2 * VF)
    vi_store_bytes(s.y + i, combined(&s, multiply, s.a + i, s.b + i),
                   combined(&s, multiply, s.a + i + VF, s.b + i + VF));
  if (i < to) {
    uint8_t t[3][2 * VF] = {{0}};
    for (int64_t k = i; k < to; k++) t[0][k - i] = s.a[k], t[1][k - i] = s.b[k];
    vi_store_bytes(t[2], combined(&s, multiply, t[0], t[1]),
                   combined(&s, multiply, t[0] + VF, t[1] + VF));
    for (int64_t k = i; k < to; k++) s.y[k] = t[2][k - i];
  }
}
static void add_task(void *arg, int32_t index, int32_t thread) {
  (void)thread;
  combine(arg, false, index);
}
static void multiply_task(void *arg, int32_t index, int32_t thread) {
  (void)thread;
  combine(arg, true, index);
}

int32_t ew_k_integer_binary(ew_context *ctx, const ew_integer_binary_params *p,
                            void *const *operand) {
  bytes_job s = {.p = p,
                 .a = operand[EW_INTEGER_BINARY_A],
                 .b = operand[EW_INTEGER_BINARY_B],
                 .y = operand[EW_INTEGER_BINARY_Y],
                 .flip_a = p->a_type == EW_I8 ? 128 : 0,
                 .flip_b = p->b_type == EW_I8 ? 128 : 0};
  const float a = *(const m_f32 *)operand[EW_INTEGER_BINARY_A_SCALE],
              b = *(const m_f32 *)operand[EW_INTEGER_BINARY_B_SCALE],
              y = *(const m_f32 *)operand[EW_INTEGER_BINARY_Y_SCALE];
  const float za = number_at(operand[EW_INTEGER_BINARY_A_ZERO], p->a_type) + s.flip_a,
              zb = number_at(operand[EW_INTEGER_BINARY_B_ZERO], p->b_type) + s.flip_b,
              zy = number_at(operand[EW_INTEGER_BINARY_Y_ZERO], p->y_type);
  s.low = (float)p->low, s.high = (float)p->high;
  if (p->multiply)
    s.factor[0] = za, s.factor[1] = zb, s.factor[2] = a * b / y, s.factor[3] = zy;
  else
    s.factor[0] = a / y, s.factor[1] = p->sign * b / y,
    s.factor[3] = zy - s.factor[0] * za - s.factor[1] * zb;
  share(ctx, &s, p->n, 16384, p->multiply ? multiply_task : add_task);
  return EW_OK;
}

static void lookup_task(void *arg, int32_t index, int32_t thread) {
  const bytes_job *s = arg;
  (void)thread;
  for (int64_t i = FROM(s, index); i < TO(s, index); i++) s->y[i] = s->b[s->a[i]];
}

int32_t ew_k_byte_lookup(ew_context *ctx, const ew_byte_lookup_params *p, void *const *operand) {
  bytes_job s = {.a = operand[EW_BYTE_LOOKUP_X],
                 .b = operand[EW_BYTE_LOOKUP_TABLE],
                 .y = operand[EW_BYTE_LOOKUP_Y]};
  share(ctx, &s, p->n, 16384, lookup_task);
  return EW_OK;
}

/* Max pooling of rows of output positions; channels are contiguous. */
static void max_task(void *arg, int32_t index, int32_t thread) {
  const bytes_job *s = arg;
  const ew_integer_max_pool_params *p = s->p;
  const ew_window *w = &s->w;
  (void)thread;
  const int64_t c = p->channels;
  const uint8_t flip = (uint8_t)s->flip_a;
  for (int64_t row = FROM(s, index); row < TO(s, index) && !ew_stopping(s->context); row++) {
    int32_t first_z, end_z, first_y, end_y;
    ew_window_taps(w, 0, (int32_t)(row / w->y_size[1] % w->y_size[0]), &first_z, &end_z);
    ew_window_taps(w, 1, (int32_t)(row % w->y_size[1]), &first_y, &end_y);
    const m_u8 *x = s->a + row / w->y_size[1] / w->y_size[0] * ew_volume(w->x_size) * c;
    m_u8 *y = s->y + row * w->y_size[2] * c;
    for (int64_t o = 0; o < w->y_size[2]; o++, y += c) {
      for (int64_t i = 0; i < c; i++) y[i] = flip; /* the smallest value of the type */
      int32_t first_x, end_x;
      ew_window_taps(w, 2, (int32_t)o, &first_x, &end_x);
      for (int32_t kz = first_z; kz < end_z; kz++)
        for (int32_t ky = first_y; ky < end_y; ky++)
          for (int32_t kx = first_x; kx < end_x; kx++) {
            const int64_t at_z = row / w->y_size[1] % w->y_size[0] * w->stride[0] +
                                 ew_window_at(w, 0, kz),
                          at_y = row % w->y_size[1] * w->stride[1] + ew_window_at(w, 1, ky),
                          at_x = o * w->stride[2] + ew_window_at(w, 2, kx);
            const m_u8 *v = x + ((at_z * w->x_size[1] + at_y) * w->x_size[2] + at_x) * c;
            EW_EACH for (int64_t i = 0; i < c; i++) {
              const uint8_t a = v[i] ^ flip, b = y[i] ^ flip;
              y[i] = (a > b ? a : b) ^ flip;
            }
          }
    }
  }
}

int32_t ew_k_integer_max_pool(ew_context *ctx, const ew_integer_max_pool_params *p,
                              void *const *operand) {
  bytes_job s = {.p = p,
                 .a = operand[EW_INTEGER_MAX_POOL_X],
                 .y = operand[EW_INTEGER_MAX_POOL_Y],
                 .w = EW_WINDOW_OF(p),
                 .flip_a = p->type == EW_I8 ? 128 : 0};
  share(ctx, &s, (int64_t)p->batch * p->y_size[0] * p->y_size[1], 1, max_task);
  return EW_OK;
}
