/* QLinearConv and ConvInteger on bytes with one channel per group, channels last.
 *
 * Vectorized over channels, sixteen at a time; the last block overlaps the one before. One
 * instruction multiplies two taps as 16-bit integers, or four taps as bytes if the machine has
 * exact byte dot products and the weights fit. A task is a range of rows of output positions. */
#include "simd.h"
#include "kernels/convolution/window.h"

enum { LANES = 16, MAX_TAPS = 64 };

typedef struct {
  ew_context *context;
  const ew_integer_depthwise_params *p;
  ew_window w;
  const uint8_t *x;
  uint8_t *y;
  const uint8_t *weights; /* [blocks of 16 channels][groups of taps][16][4 bytes or 2 shorts] */
  const m_i32 *offset;    /* per channel: bias plus the contribution of the zero points */
  const m_f32 *factor;
  const uint8_t *nothing; /* zero points, read by taps outside x */
  int32_t taps, groups, y_zero;
  uint8_t flip; /* XORed into bytes before multiplication */
  bool dots;
  int64_t rows, share;
} depthwise;

#define LOW_BYTES(a, b) \
  __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define HIGH_BYTES(a, b) \
  __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#define LOW_SHORTS(a, b) __builtin_shufflevector((i16x8)(a), (i16x8)(b), 0, 8, 1, 9, 2, 10, 3, 11)
#define HIGH_SHORTS(a, b) \
  __builtin_shufflevector((i16x8)(a), (i16x8)(b), 4, 12, 5, 13, 6, 14, 7, 15)

/* Computes one output position. */
EW_INLINE void pixel(bool dots, const depthwise *s, const uint8_t *const *taps, uint8_t *y) {
  const ew_integer_depthwise_params *p = s->p;
  const u8x16 flip = s->flip - (u8x16){0}, none = {0};
  const f32x4 rounder = (f32x4){0} + 0x1.8p23f, low = (f32x4){0} + (float)(p->low - s->y_zero),
              high = (f32x4){0} + (float)(p->high - s->y_zero);
  const i32x4 back = s->y_zero - (i32x4)rounder;
  const uint8_t *w = s->weights;
  const int32_t channels = p->channels, type = p->y_type;
  for (int32_t from = 0; from < channels; from += LANES) {
    const int32_t c = from < channels - LANES ? from : channels - LANES;
    const uint8_t *const *tap = taps;
    i32x4 sum[4];
    for (int i = 0; i < 4; i++) sum[i] = *(const i32x4_m *)(s->offset + c + 4 * i);
    for (int32_t q = 0; q < s->groups; q++, w += 4 * LANES, tap += dots ? 4 : 2) {
      const u8x16 a = *(const u8x16_m *)(tap[0] + c), b = *(const u8x16_m *)(tap[1] + c),
                  ab = LOW_BYTES(a, b) ^ flip, AB = HIGH_BYTES(a, b) ^ flip;
#if EW_RELAXED_DOTS
      if (dots) {
        const u8x16 d = *(const u8x16_m *)(tap[2] + c), e = *(const u8x16_m *)(tap[3] + c),
                    de = LOW_BYTES(d, e) ^ flip, DE = HIGH_BYTES(d, e) ^ flip;
        sum[0] = vi_dot_bytes(*(const i32x4_m *)w, (i32x4)LOW_SHORTS(ab, de), sum[0]);
        sum[1] = vi_dot_bytes(*(const i32x4_m *)(w + 16), (i32x4)HIGH_SHORTS(ab, de), sum[1]);
        sum[2] = vi_dot_bytes(*(const i32x4_m *)(w + 32), (i32x4)LOW_SHORTS(AB, DE), sum[2]);
        sum[3] = vi_dot_bytes(*(const i32x4_m *)(w + 48), (i32x4)HIGH_SHORTS(AB, DE), sum[3]);
        continue;
      }
#endif
      sum[0] = i32x4_dot_shorts((i16x8)LOW_BYTES(ab, none), *(const i16x8_m *)w, sum[0]);
      sum[1] = i32x4_dot_shorts((i16x8)HIGH_BYTES(ab, none), *(const i16x8_m *)(w + 16), sum[1]);
      sum[2] = i32x4_dot_shorts((i16x8)LOW_BYTES(AB, none), *(const i16x8_m *)(w + 32), sum[2]);
      sum[3] = i32x4_dot_shorts((i16x8)HIGH_BYTES(AB, none), *(const i16x8_m *)(w + 48), sum[3]);
    }
    if (type == EW_I32)
      for (int i = 0; i < 4; i++) *(i32x4_m *)(y + 4 * c + 16 * i) = sum[i];
    else {
      f32x4 v[4];
      for (int i = 0; i < 4; i++)
        v[i] = __builtin_convertvector(sum[i], f32x4) * *(const f32x4_m *)(s->factor + c + 4 * i);
      if (type == EW_F32)
        for (int i = 0; i < 4; i++) *(f32x4_m *)(y + 4 * c + 16 * i) = v[i];
      else {
        for (int i = 0; i < 4; i++)
          sum[i] = (i32x4)(f32x4_min(f32x4_max(v[i], low), high) + rounder) + back;
        *(u8x16_m *)(y + c) = u8x16_of(sum[0], sum[1], sum[2], sum[3]);
      }
    }
  }
}
static __attribute__((noinline)) void pixel_of_bytes(const depthwise *s, const uint8_t *const *taps,
                                                     uint8_t *y) {
  pixel(EW_RELAXED_DOTS, s, taps, y);
}
static __attribute__((noinline)) void pixel_of_shorts(const depthwise *s,
                                                      const uint8_t *const *taps, uint8_t *y) {
  pixel(false, s, taps, y);
}

static void depthwise_task(void *arg, int32_t index, int32_t thread) {
  const depthwise *s = arg;
  const ew_integer_depthwise_params *p = s->p;
  const ew_window *w = &s->w;
  (void)thread;
  const int64_t size = p->y_type == EW_I32 || p->y_type == EW_F32 ? 4 : 1;
  for (int64_t row = index * s->share;
       row < s->rows && row < (index + 1) * s->share && !ew_stopping(s->context); row++) {
    const int64_t item = row / w->y_size[1] / w->y_size[0],
                  z0 = row / w->y_size[1] % w->y_size[0] * w->stride[0],
                  y0 = row % w->y_size[1] * w->stride[1];
    const uint8_t *tap[MAX_TAPS + 3], *line[MAX_TAPS];
    int32_t lines = 0;
    for (int32_t kz = 0; kz < w->taps[0]; kz++)
      for (int32_t ky = 0; ky < w->taps[1]; ky++) {
        const int64_t z = z0 + ew_window_at(w, 0, kz), y = y0 + ew_window_at(w, 1, ky);
        const bool inside = z >= 0 && z < w->x_size[0] && y >= 0 && y < w->x_size[1];
        line[lines++] = inside ? s->x + ((item * w->x_size[0] + z) * w->x_size[1] + y) *
                                            w->x_size[2] * p->channels
                               : NULL;
      }
    /* pads an incomplete group of taps; their weights are 0 */
    for (int32_t t = s->taps; t < s->taps + 3; t++) tap[t] = s->nothing;
    for (int64_t o = 0; o < w->y_size[2]; o++) {
      for (int32_t k = 0, t = 0; k < lines; k++)
        for (int32_t kx = 0; kx < w->taps[2]; kx++, t++) {
          const int64_t x = o * w->stride[2] + ew_window_at(w, 2, kx);
          tap[t] = line[k] && x >= 0 && x < w->x_size[2] ? line[k] + x * p->channels : s->nothing;
        }
      (s->dots ? pixel_of_bytes
               : pixel_of_shorts)(s, tap, s->y + (row * w->y_size[2] + o) * p->channels * size);
    }
  }
}

/* Weight t of channel c minus its zero point. */
static int32_t weight_at(const depthwise *s, const m_u8 *w, const m_u8 *zero, int32_t t,
                         int32_t c) {
  const uint8_t v = w[(int64_t)t * s->p->channels + c],
                z = zero ? zero[s->p->b_zeros > 1 ? c : 0] : 0;
  return s->p->b_type == EW_I8 ? (int8_t)v - (int8_t)z : v - z;
}

int32_t ew_k_integer_depthwise(ew_context *ctx, const ew_integer_depthwise_params *p,
                               void *const *operand) {
  depthwise s = {.context = ctx,
                 .p = p,
                 .w = EW_WINDOW_OF(p),
                 .x = operand[EW_INTEGER_DEPTHWISE_A],
                 .y = operand[EW_INTEGER_DEPTHWISE_Y],
                 .taps = (int32_t)ew_volume(p->taps)};
  const m_u8 *w = operand[EW_INTEGER_DEPTHWISE_W], *b_zero = operand[EW_INTEGER_DEPTHWISE_B_ZERO],
             *a_zero = operand[EW_INTEGER_DEPTHWISE_A_ZERO],
             *y_zero = operand[EW_INTEGER_DEPTHWISE_Y_ZERO];
  const m_i32 *bias = operand[EW_INTEGER_DEPTHWISE_SUM_BIAS];
  const m_f32 *factors = operand[EW_INTEGER_DEPTHWISE_FACTOR],
              *scale = operand[EW_INTEGER_DEPTHWISE_A_SCALE];
  const int32_t channels = p->channels, blocks = (channels - 1) / LANES + 1,
                kind = EW_RELAXED_DOTS ? vi_dots() : EW_NO_DOTS;
  s.dots = kind != EW_NO_DOTS;
  for (int32_t c = 0; (b_zero || p->b_type == EW_U8) && c < channels && s.dots; c++)
    for (int32_t t = 0; t < s.taps && s.dots; t++)
      s.dots = (int8_t)weight_at(&s, w, b_zero, t, c) == weight_at(&s, w, b_zero, t, c);
  /* shift: difference between the bytes as multiplied and as unsigned values */
  const int32_t bits = s.dots ? 2 : 1, group = 1 << bits,
                shift = s.dots && kind == EW_SIGNED_DOTS ? -128 : 0;
  s.groups = ((s.taps - 1) >> bits) + 1;
  s.flip = (p->a_type == EW_I8) != (shift != 0) ? 128 : 0;
  m_f32 *factor = operand[EW_INTEGER_DEPTHWISE_SCRATCH];
  m_i32 *offset = (m_i32 *)(factor + channels);
  uint8_t *weights = (uint8_t *)(offset + channels),
          *nothing = weights + (int64_t)blocks * LANES * 4 * s.groups;
  s.factor = factor, s.offset = offset, s.weights = weights, s.nothing = nothing;
  if (y_zero) s.y_zero = p->y_type == EW_I8 ? (int8_t)*y_zero : *y_zero;
  const int32_t zero = (a_zero ? p->a_type == EW_I8 ? (int8_t)*a_zero : *a_zero : 0) +
                       (p->a_type == EW_I8 ? 128 : 0) + shift;
  for (int32_t i = 0; i < blocks * LANES; i++) {
    const int32_t c = i / LANES < blocks - 1 ? i : channels - LANES + i % LANES;
    int32_t sum = 0;
    for (int32_t t = 0; t < s.groups << bits; t++) {
      const int32_t x = t < s.taps ? weight_at(&s, w, b_zero, t, c) : 0;
      uint8_t *to = weights +
                    (((int64_t)(i / LANES) * s.groups + (t >> bits)) * LANES + i % LANES) * 4 +
                    ((t & (group - 1)) << (2 - bits));
      if (s.dots)
        *to = (uint8_t)x;
      else
        *(m_i16 *)to = (int16_t)x;
      sum += x;
    }
    offset[c] = (int32_t)((bias ? (uint32_t)bias[c] : 0) - (uint32_t)zero * (uint32_t)sum);
    factor[c] = (factors ? factors[p->factors > 1 ? c : 0] : 1) * (scale ? *scale : 1);
    nothing[c] = a_zero ? *a_zero : 0;
  }
  s.rows = (int64_t)p->batch * p->y_size[0] * p->y_size[1];
  s.share = ew_window_share(ctx, s.rows, (double)p->y_size[2] * p->channels * s.taps);
  ew_parallel(ctx, (int32_t)((s.rows - 1) / s.share + 1), depthwise_task, &s);
  return EW_OK;
}
