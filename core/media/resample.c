/* Sampling rates of sound: a sinc with a Kaiser window, centred on each output sample, so the
 * result has no delay. Up to 0.9 of the lower rate's Nyquist frequency the gain is 1, from that
 * frequency on it is below -80 dB.
 *
 * Output n lies at n * rate / to_rate input samples. The fraction of that position selects the
 * phase of the filter: one per possible fraction if these fit into memory, otherwise enough of
 * them that linear interpolation between two is exact to -115 dB. */
#include "media/media.h"
#include "simd.h"
#include <stdbool.h>
#include <string.h>

enum {
  ZEROS = 64,            /* zero crossings of the sinc on each side */
  MAX_WEIGHTS = 1 << 19, /* of a filter with a phase for each fraction */
  FINE = 1024,           /* phases per sample of the lower rate, for interpolation */
  BLOCK = 4096,          /* input samples that are copied at a time */
  STEP = 8,              /* half of a filter is a multiple of this */
};
#define CUTOFF 0.95 /* of the lower Nyquist frequency: the middle of the transition */
#define BETA 9.0    /* of the Kaiser window: 91 dB */

typedef struct {
  uint32_t up, down;     /* to_rate / rate in lowest terms */
  uint32_t half, phases; /* taps / 2; rows of weights less one */
  uint32_t phase;        /* of the next output, in 1 / up */
  uint32_t have;         /* samples in `recent` */
  uint64_t at;           /* where in `recent` the next output's window begins */
  bool ended;
  float *weight; /* (phases + 1) rows of 2 half */
  float *recent; /* 2 half + BLOCK samples */
} state;

static uint32_t common_divisor(uint32_t a, uint32_t b) {
  while (b) {
    const uint32_t rest = a % b;
    a = b, b = rest;
  }
  return a;
}

/* Sets the sizes in *s; false if the rates are not allowed. */
static bool set_sizes(state *s, uint32_t rate, uint32_t to_rate) {
  memset(s, 0, sizeof *s);
  if (!rate || !to_rate || rate > EW_MAX_RATE || to_rate > EW_MAX_RATE) return false;
  if (rate > (uint64_t)to_rate * EW_MAX_RATIO || to_rate > (uint64_t)rate * EW_MAX_RATIO)
    return false;
  const uint32_t divisor = common_divisor(rate, to_rate);
  s->up = to_rate / divisor, s->down = rate / divisor;
  const uint32_t wider = s->down > s->up ? (s->down + s->up - 1) / s->up : 1;
  const uint64_t half =
      s->down > s->up ? ((uint64_t)ZEROS * s->down + s->up - 1) / s->up : (uint64_t)ZEROS;
  s->half = (uint32_t)((half + STEP - 1) / STEP * STEP);
  const bool all = (uint64_t)s->up * 2 * s->half <= MAX_WEIGHTS;
  s->phases = all ? s->up : (FINE + wider - 1) / wider;
  return true;
}

static size_t weights_of(const state *s) { return ((size_t)s->phases + 1) * 2 * s->half; }

/* I0, the modified Bessel function, of 2 sqrt(x). */
static double bessel(double x) {
  double sum = 1, term = 1;
  for (int k = 1; term > sum * 1e-17; k++) sum += term *= x / ((double)k * k);
  return sum;
}

/* Each row sums to 1, so that constant sound stays constant. */
static void set_weights(state *s) {
  const double shrink = s->down > s->up ? (double)s->up / s->down : 1;
  for (uint32_t p = 0; p <= s->phases; p++) {
    float *row = s->weight + (size_t)p * 2 * s->half;
    double sum = 0;
    for (int pass = 0; pass < 2; pass++)
      for (uint32_t k = 0; k < 2 * s->half; k++) {
        const double t = ((double)k - s->half + 1 - (double)p / s->phases) * shrink;
        const double edge = 1 - t * t / ((double)ZEROS * ZEROS), x = CUTOFF * t;
        if (edge <= 0) {
          row[k] = 0;
          continue;
        }
        const double sinc = x == 0 ? 1 : ew_sin_pi(x) / (x * 3.141592653589793);
        const double w = sinc * bessel(BETA * BETA / 4 * edge);
        if (pass)
          row[k] = (float)(w / sum);
        else
          sum += w;
      }
  }
}

EW_API(ew_resample_bytes) int32_t ew_resample_bytes(uint32_t rate, uint32_t to_rate) {
  state s;
  if (!set_sizes(&s, rate, to_rate)) return -EW_E_ARGUMENT;
  /* below 2^20 weights: the interpolated ones are about FINE * 2 * ZEROS */
  return (int32_t)(sizeof s + 4 * (weights_of(&s) + 2 * s.half + BLOCK));
}

EW_API(ew_resample_open) int32_t ew_resample_open(void *work, uint32_t rate, uint32_t to_rate) {
  state *s = work;
  if (!set_sizes(s, rate, to_rate)) return -EW_E_ARGUMENT;
  s->weight = (float *)(s + 1);
  s->recent = s->weight + weights_of(s);
  if (rate == to_rate) return 0;
  set_weights(s);
  s->have = s->half - 1; /* silence before the first sample */
  memset(s->recent, 0, 4 * (size_t)s->have);
  return 0;
}

/* Number of outputs whose windows are complete with n more samples. */
static uint64_t outputs(const state *s, uint64_t n) {
  const uint64_t needed = s->at + 2 * s->half;
  if (s->have + n < needed) return 0;
  const uint64_t room = (s->have + n - needed + 1) * s->up - s->phase;
  return (room + s->down - 1) / s->down;
}

EW_API(ew_resample_most) int32_t ew_resample_most(const void *work, uint32_t n) {
  const state *s = work;
  if (s->up == s->down) return n > INT32_MAX ? -EW_E_ARGUMENT : (int32_t)n;
  const uint64_t now = outputs(s, n), last = outputs(s, s->half);
  const uint64_t most = now > last ? now : last;
  return most > INT32_MAX ? -EW_E_ARGUMENT : (int32_t)most;
}

/* The same order of additions for all widths of vectors. */
static float product(const float *x, const float *w, uint32_t n) {
  f32x4 sum[4] = {{0}};
  for (uint32_t i = 0; i < n; i += 16)
    for (int j = 0; j < 4; j++)
      sum[j] += *(const f32x4_m *)(x + i + 4 * j) * *(const f32x4_m *)(w + i + 4 * j);
  return f32x4_sum((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

/* Writes the outputs whose windows are complete, then forgets the samples before the next one's. */
static float *write_outputs(state *s, float *out) {
  const uint32_t taps = 2 * s->half;
  for (; s->at + taps <= s->have; s->at += s->phase / s->up, s->phase %= s->up) {
    const float *x = s->recent + s->at;
    const uint64_t place = (uint64_t)s->phase * s->phases;
    const uint32_t rest = (uint32_t)(place % s->up);
    const float *w = s->weight + (size_t)(place / s->up) * taps;
    float y = product(x, w, taps);
    if (rest) y += (product(x, w + taps, taps) - y) * ((float)rest / (float)s->up);
    *out++ = y;
    s->phase += s->down;
  }
  const uint32_t gone = s->at < s->have ? (uint32_t)s->at : s->have;
  s->have -= gone, s->at -= gone;
  memmove(s->recent, s->recent + gone, 4 * (size_t)s->have);
  return out;
}

EW_API(ew_resample_feed)
int32_t ew_resample_feed(void *work, const float *in, uint32_t n, float *out, uint32_t room) {
  state *s = work;
  if (s->ended || n > INT32_MAX) return -EW_E_ARGUMENT;
  if (!in) s->ended = true, n = s->half;
  if (s->up == s->down) {
    if (!in) return 0;
    if (n > room) return -EW_E_ARGUMENT;
    memcpy(out, in, 4 * (size_t)n);
    return (int32_t)n;
  }
  if (outputs(s, n) > room) return -EW_E_ARGUMENT;
  float *end = out;
  while (n) {
    const uint32_t count = n < BLOCK ? n : BLOCK;
    if (in) {
      memcpy(s->recent + s->have, in, 4 * (size_t)count);
      in += count;
    } else {
      memset(s->recent + s->have, 0, 4 * (size_t)count);
    }
    s->have += count, n -= count;
    end = write_outputs(s, end);
  }
  return (int32_t)(end - out);
}
