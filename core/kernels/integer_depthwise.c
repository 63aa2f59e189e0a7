/* Convolution of bytes with one channel per group, channels last: a lane for each channel, two taps to a multiplication of 16-bit integers. */
#include "../simd.h"
#include "window.h"

enum { LANES = 8, MOST_TAPS = 64 };

typedef struct {
  const ew_integer_depthwise_params *p;
  ew_window w;
  const uint8_t *x;
  uint8_t *y;
  const m_i16 *weights; /* [channels / 8][pairs of taps][8][2] */
  const m_i32 *offset;  /* of each channel: its bias, and what its zero points add to it */
  const m_f32 *factor;
  const uint8_t *nothing; /* zero points, for taps that lie outside */
  int32_t taps, pairs, y_zero;
  int64_t rows, share;
} depthwise;

static inline f32x4 within(f32x4 v, f32x4 low, f32x4 high) {
  i32x4 below = v < low;
  v = (f32x4)((below & (i32x4)low) | (~below & (i32x4)v));
  i32x4 above = v > high;
  return (f32x4)((above & (i32x4)high) | (~above & (i32x4)v));
}

/* One position. */
static void pixel(const depthwise *s, const uint8_t *const *tap, uint8_t *y) {
  const ew_integer_depthwise_params *p = s->p;
  const int16_t flip = p->a_type == EW_I8 ? 128 : 0; /* signed bytes are read as 128 more */
  const f32x4 rounder = (f32x4){0} + 0x1.8p23f, low = (f32x4){0} + (float)(p->low - s->y_zero), high = (f32x4){0} + (float)(p->high - s->y_zero);
  const m_i16 *w = s->weights;
  for (int32_t c = 0; c < p->channels; c += LANES) {
    const int32_t lanes = p->channels - c < LANES ? p->channels - c : LANES;
    i32x4 a = *(const i32x4_m *)(s->offset + c), b = *(const i32x4_m *)(s->offset + c + 4);
    for (int32_t q = 0; q < s->pairs; q++, w += 2 * LANES) {
      u8x8 m = {0}, n = {0};
      if (lanes == LANES) m = *(const u8x8_m *)(tap[2 * q] + c), n = *(const u8x8_m *)(tap[2 * q + 1] + c);
      else
        for (int i = 0; i < lanes; i++) m[i] = tap[2 * q][c + i], n[i] = tap[2 * q + 1][c + i];
      i16x8 even = (i16x8)__builtin_convertvector(m, u16x8) ^ flip, odd = (i16x8)__builtin_convertvector(n, u16x8) ^ flip;
      a = i32x4_dot_shorts(__builtin_shufflevector(even, odd, 0, 8, 1, 9, 2, 10, 3, 11), *(const i16x8_m *)w, a);
      b = i32x4_dot_shorts(__builtin_shufflevector(even, odd, 4, 12, 5, 13, 6, 14, 7, 15), *(const i16x8_m *)(w + LANES), b);
    }
    uint8_t out[4 * LANES], *to = y + c * (p->y_type == EW_I32 || p->y_type == EW_F32 ? 4 : 1), *at = lanes == LANES ? to : out;
    int32_t size = 4;
    if (p->y_type == EW_I32) *(i32x4_m *)at = a, *(i32x4_m *)(at + 16) = b;
    else {
      f32x4 u = __builtin_convertvector(a, f32x4) * *(const f32x4_m *)(s->factor + c), v = __builtin_convertvector(b, f32x4) * *(const f32x4_m *)(s->factor + c + 4);
      if (p->y_type == EW_F32) *(f32x4_m *)at = u, *(f32x4_m *)(at + 16) = v;
      else {
        u8x16 e = (u8x16)((i32x4)(within(u, low, high) + rounder) - (i32x4)rounder + s->y_zero), f = (u8x16)((i32x4)(within(v, low, high) + rounder) - (i32x4)rounder + s->y_zero);
        *(u8x8_m *)at = __builtin_shufflevector(e, f, 0, 4, 8, 12, 16, 20, 24, 28);
        size = 1;
      }
    }
    if (lanes < LANES)
      for (int32_t i = 0; i < lanes * size; i++) to[i] = out[i];
  }
}

static void depthwise_task(void *arg, int32_t index, int32_t thread) {
  const depthwise *s = arg;
  const ew_integer_depthwise_params *p = s->p;
  const ew_window *w = &s->w;
  (void)thread;
  const int64_t size = p->y_type == EW_I32 || p->y_type == EW_F32 ? 4 : 1;
  for (int64_t row = index * s->share; row < s->rows && row < (index + 1) * s->share; row++) {
    const int64_t item = row / w->y_size[1] / w->y_size[0], z0 = row / w->y_size[1] % w->y_size[0] * w->stride[0], y0 = row % w->y_size[1] * w->stride[1];
    const uint8_t *tap[MOST_TAPS + 1];
    for (int64_t o = 0; o < w->y_size[2]; o++) {
      int32_t t = 0;
      for (int32_t kz = 0; kz < w->taps[0]; kz++)
        for (int32_t ky = 0; ky < w->taps[1]; ky++)
          for (int32_t kx = 0; kx < w->taps[2]; kx++, t++) {
            const int64_t z = z0 + ew_window_at(w, 0, kz), y = y0 + ew_window_at(w, 1, ky), x = o * w->stride[2] + ew_window_at(w, 2, kx);
            const bool inside = z >= 0 && z < w->x_size[0] && y >= 0 && y < w->x_size[1] && x >= 0 && x < w->x_size[2];
            tap[t] = inside ? s->x + (((item * w->x_size[0] + z) * w->x_size[1] + y) * w->x_size[2] + x) * p->channels : s->nothing;
          }
      tap[t] = s->nothing; /* where taps are odd; its weights are 0 */
      pixel(s, tap, s->y + (row * w->y_size[2] + o) * p->channels * size);
    }
  }
}

int32_t ew_k_integer_depthwise(ew_context *ctx, const ew_integer_depthwise_params *p, void *const *operand) {
  depthwise s = {.p = p, .w = EW_WINDOW_OF(p), .x = operand[EW_INTEGER_DEPTHWISE_A], .y = operand[EW_INTEGER_DEPTHWISE_Y], .taps = (int32_t)ew_volume(p->taps)};
  const m_u8 *w = operand[EW_INTEGER_DEPTHWISE_W], *b_zero = operand[EW_INTEGER_DEPTHWISE_B_ZERO], *a_zero = operand[EW_INTEGER_DEPTHWISE_A_ZERO], *y_zero = operand[EW_INTEGER_DEPTHWISE_Y_ZERO];
  const m_i32 *bias = operand[EW_INTEGER_DEPTHWISE_SUM_BIAS];
  const m_f32 *factors = operand[EW_INTEGER_DEPTHWISE_FACTOR], *scale = operand[EW_INTEGER_DEPTHWISE_A_SCALE];
  const int32_t channels = (p->channels - 1) / LANES * LANES + LANES;
  s.pairs = (s.taps + 1) / 2;
  m_f32 *factor = operand[EW_INTEGER_DEPTHWISE_SCRATCH];
  m_i32 *offset = (m_i32 *)(factor + channels);
  m_i16 *weights = (m_i16 *)(offset + channels);
  uint8_t *nothing = (uint8_t *)(weights + (int64_t)channels * 2 * s.pairs);
  s.factor = factor, s.offset = offset, s.weights = weights, s.nothing = nothing;
  if (y_zero) s.y_zero = p->y_type == EW_I8 ? (int8_t)*y_zero : *y_zero;
  const int32_t zero = (a_zero ? p->a_type == EW_I8 ? (int8_t)*a_zero : *a_zero : 0) + (p->a_type == EW_I8 ? 128 : 0);
  for (int32_t c = 0; c < channels; c++) {
    const bool there = c < p->channels;
    int32_t sum = 0, at = p->b_zeros > 1 ? c : 0, w_zero = b_zero && there ? p->b_type == EW_I8 ? (int8_t)b_zero[at] : b_zero[at] : 0;
    for (int32_t t = 0; t < 2 * s.pairs; t++) {
      const m_u8 *v = w + (int64_t)t * p->channels + c;
      const int32_t x = there && t < s.taps ? (p->b_type == EW_I8 ? (int8_t)*v : *v) - w_zero : 0;
      weights[((int64_t)(c / LANES) * s.pairs + t / 2) * 2 * LANES + c % LANES * 2 + t % 2] = (int16_t)x, sum += x;
    }
    offset[c] = (int32_t)((bias && there ? (uint32_t)bias[c] : 0) - (uint32_t)zero * (uint32_t)sum);
    factor[c] = (factors && there ? factors[p->factors > 1 ? c : 0] : 1) * (scale ? *scale : 1);
    nothing[c] = a_zero ? *a_zero : 0;
  }
  s.rows = (int64_t)p->batch * p->y_size[0] * p->y_size[1];
  s.share = ew_window_share(ctx, s.rows, (double)p->y_size[2] * p->channels * s.taps);
  ew_parallel(ctx, (int32_t)((s.rows - 1) / s.share + 1), depthwise_task, &s);
  return EW_OK;
}
