/* exp, log, log-softmax and random numbers, computed with plain IEEE operations so that every
 * machine gets the same bits. */
#include "sampling/internal.h"

/* Relative error below 1e-11: x = k ln 2 + r, a polynomial in r, then the exponent is inserted. */
double ew_s_exp(double x) {
  if (!(x > -700)) return 0;
  if (x > 700) x = 700;
  int64_t k = (int64_t)(x * 1.4426950408889634 + (x < 0 ? -0.5 : 0.5));
  double r = x - (double)k * 0.6931471803691238 - (double)k * 1.9082149292705877e-10;
  double y =
      1 +
      r * (1 + r * (1. / 2 +
                    r * (1. / 6 +
                         r * (1. / 24 +
                              r * (1. / 120 +
                                   r * (1. / 720 + r * (1. / 5040 +
                                                        r * (1. / 40320 + r * (1. / 362880)))))))));
  uint64_t bits = (uint64_t)(k + 1023) << 52;
  double scale;
  memcpy(&scale, &bits, 8);
  return y * scale;
}

/* x > 0 and normal: x = m 2^e with m around 1, ln m = 2 atanh((m - 1) / (m + 1)). */
double ew_s_ln(double x) {
  uint64_t bits;
  memcpy(&bits, &x, 8);
  int64_t e = (int64_t)(bits >> 52) - 1023;
  bits = (bits & 0xfffffffffffffull) | (1023ull << 52);
  double m;
  memcpy(&m, &bits, 8);
  if (m > 1.4142135623730951) {
    m *= 0.5;
    e++;
  }
  double t = (m - 1) / (m + 1), s = t * t, sum = 0;
  for (int i = 21; i >= 1; i -= 2) sum = sum * s + 1.0 / i;
  return 2 * t * sum + (double)e * 0.6931471805599453;
}

double ew_s_length_power(uint32_t length, float exponent) {
  if (exponent == 0 || length == 0) return 1;
  return exponent == 1 ? (double)length : ew_s_exp((double)exponent * ew_s_ln((double)length));
}

static uint32_t next_u32(ew_rng *rng) {
  uint64_t old = rng->state;
  rng->state = old * 6364136223846793005ull + rng->increment;
  uint32_t shifted = (uint32_t)(((old >> 18) ^ old) >> 27), turn = (uint32_t)(old >> 59);
  return (shifted >> turn) | (shifted << ((32 - turn) & 31));
}

double ew_s_uniform(ew_rng *rng) {
  uint64_t high = next_u32(rng) >> 5, low = next_u32(rng) >> 6;
  return ((double)(high << 26 | low) + 0.5) * (1.0 / 9007199254740992.0);
}

EW_API(ew_sampling_seed)
int32_t ew_sampling_seed(ew_rng *rng, uint32_t low, uint32_t high, uint32_t stream) {
  rng->state = 0;
  rng->increment = (uint64_t)stream << 1 | 1;
  next_u32(rng);
  rng->state += (uint64_t)high << 32 | low;
  next_u32(rng);
  return 0;
}

void ew_s_log_softmax(float *score, uint32_t n) {
  float top = NEG_INF;
  for (uint32_t i = 0; i < n; i++) top = score[i] > top ? score[i] : top;
  if (top == NEG_INF) return; /* no token is possible: ew_sampling_pick reports it */
  double sum = 0;
  for (uint32_t i = 0; i < n; i++) {
    double x = (double)score[i] - top;
    if (x > -100) sum += ew_s_exp(x);
  }
  double shift = (double)top + ew_s_ln(sum);
  for (uint32_t i = 0; i < n; i++) score[i] = (float)(score[i] - shift);
}

EW_API(ew_sampling_log_probability)
int32_t ew_sampling_log_probability(const float *scores, uint32_t vocab, uint32_t token, float *x) {
  if (!vocab || vocab > MAX_VOCAB) return bad_field(EW_FIELD_VOCAB_SIZE);
  if (token >= vocab) return EW_S_BAD_TOKEN;
  double factor = *x, highest = NEG_INF, sum = 0;
  if (!(factor > 0)) return EW_S_BAD_CALL;
  for (uint32_t i = 0; i < vocab; i++) {
    if (!FINITE_OR_NEG_INF(scores[i])) return EW_S_NOT_FINITE;
    if (scores[i] > highest) highest = scores[i];
  }
  if (highest == NEG_INF) return EW_S_NO_TOKEN;
  for (uint32_t i = 0; i < vocab; i++) sum += ew_s_exp((scores[i] - highest) * factor);
  *x = (float)((scores[token] - highest) * factor - ew_s_ln(sum));
  return 0;
}
