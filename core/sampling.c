#include "sampling.h"
#include <float.h>
#include <string.h>

#if defined(__clang__)
#  pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
#  pragma GCC optimize("fp-contract=off")
#endif

#define NEG_INF (-__builtin_inff())
#define FINITE_OR_NEG_INF(x) ((x) < __builtin_inff()) /* false for NaN and +inf */
#define MAX_VOCAB (1u << 26)
#define MAX_BEAMS 1024u
#define BINS 2048u

static int32_t bad_field(int field) { return EW_S_BAD_FIELD - field; }
static uint32_t min_u32(uint32_t a, uint32_t b) { return a < b ? a : b; }
static uint32_t max_u32(uint32_t a, uint32_t b) { return a > b ? a : b; }

/* --- exp, log, power: the same bits everywhere
 * ------------------------------------------------------------------------------- */

/* Relative error below 1e-11: x = k ln 2 + r, a polynomial in r, then the exponent put in place. */
static double exp_(double x) {
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
static double ln_(double x) {
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

static double power_of_length(uint32_t length, float exponent) {
  if (exponent == 0 || length == 0) return 1;
  return exponent == 1 ? (double)length : exp_((double)exponent * ln_((double)length));
}

/* --- random numbers
 *
 * ---------------------------------------------------------------------- */

static uint32_t next_u32(ew_rng *rng) {
  uint64_t old = rng->state;
  rng->state = old * 6364136223846793005ull + rng->increment;
  uint32_t shifted = (uint32_t)(((old >> 18) ^ old) >> 27), turn = (uint32_t)(old >> 59);
  return (shifted >> turn) | (shifted << ((32 - turn) & 31));
}

static double uniform(ew_rng *rng) { /* in (0, 1), 53 bits */
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

/* --- work memory
 *
 * ---------------------------------------------------------------------- */

typedef struct {
  float *score, *weight, *key; /* [vocab] each */
  int32_t *token;              /* [n] candidates of the warpers, ascending */
  double *mass;                /* [BINS] */
  uint32_t vocab, n;
} candidates;

static candidates open_work(const void *work, uint32_t vocab) {
  float *f = (float *)work;
  return (candidates){f,
                      f + vocab,
                      f + 2 * (size_t)vocab,
                      (int32_t *)(f + 3 * (size_t)vocab),
                      (double *)(f + 4 * (size_t)vocab),
                      vocab,
                      0};
}

EW_API(ew_sampling_work_bytes)
int32_t ew_sampling_work_bytes(uint32_t vocab) {
  if (!vocab || vocab > MAX_VOCAB) return bad_field(EW_FIELD_VOCAB_SIZE);
  return (int32_t)(vocab * 16 + BINS * 8);
}

/* --- checks
 *
 * ---------------------------------------------------------------------- */

static int32_t check_ids(const int32_t *ids, uint32_t n, uint32_t vocab) {
  for (uint32_t i = 0; i < n; i++)
    if ((uint32_t)ids[i] >= vocab) return EW_S_BAD_TOKEN;
  return 0;
}

static int32_t check_list(const ew_sampling *p, const int32_t *lists, uint32_t at, uint32_t n) {
  if (at > p->lists_length || n > p->lists_length - at) return EW_S_BAD_LIST;
  return check_ids(lists + at, n, p->vocab_size);
}

/* length, ids..., then `tail` more, again and again */
static int32_t check_sequences(const ew_sampling *p, const int32_t *lists, uint32_t at, uint32_t n,
                               uint32_t tail) {
  if (at > p->lists_length || n > p->lists_length - at) return EW_S_BAD_LIST;
  for (uint32_t i = 0; i < n;) {
    uint32_t length = (uint32_t)lists[at + i++];
    if (length < 1 || length > n - i || tail > n - i - length) return EW_S_BAD_LIST;
    if (check_ids(lists + at + i, length, p->vocab_size)) return EW_S_BAD_TOKEN;
    i += length + tail;
  }
  return 0;
}

static int is_finite(float x) { return x >= -FLT_MAX && x <= FLT_MAX; }

EW_API(ew_sampling_check)
int32_t ew_sampling_check(const ew_sampling *p, const int32_t *lists) {
  if (!p->vocab_size || p->vocab_size > MAX_VOCAB) return bad_field(EW_FIELD_VOCAB_SIZE);
  if (!p->max_length || p->max_length > 1u << 28) return bad_field(EW_FIELD_MAX_LENGTH);
  if (!(p->repetition_penalty > 0) || !is_finite(p->repetition_penalty))
    return bad_field(EW_FIELD_REPETITION_PENALTY);
  if (!is_finite(p->presence_penalty)) return bad_field(EW_FIELD_PRESENCE_PENALTY);
  if (!is_finite(p->frequency_penalty)) return bad_field(EW_FIELD_FREQUENCY_PENALTY);
  if (!is_finite(p->exponential_decay_factor)) return bad_field(EW_FIELD_EXPONENTIAL_DECAY_FACTOR);
  if (p->do_sample) {
    if (!(p->temperature > 0) || !is_finite(p->temperature)) return bad_field(EW_FIELD_TEMPERATURE);
    if (!(p->top_p >= 0 && p->top_p <= 1)) return bad_field(EW_FIELD_TOP_P);
    if (!(p->min_p >= 0 && p->min_p <= 1)) return bad_field(EW_FIELD_MIN_P);
    if (!(p->typical_p > 0 && p->typical_p <= 1)) return bad_field(EW_FIELD_TYPICAL_P);
    if (!(p->epsilon_cutoff >= 0 && p->epsilon_cutoff < 1))
      return bad_field(EW_FIELD_EPSILON_CUTOFF);
    if (!(p->eta_cutoff >= 0 && p->eta_cutoff < 1)) return bad_field(EW_FIELD_ETA_CUTOFF);
  }
  if (!p->num_beams || p->num_beams > MAX_BEAMS) return bad_field(EW_FIELD_NUM_BEAMS);
  if (p->early_stopping > 2) return bad_field(EW_FIELD_EARLY_STOPPING);
  /* float powers end there */
  if (!(p->length_penalty >= -64 && p->length_penalty <= 64))
    return bad_field(EW_FIELD_LENGTH_PENALTY);
  if (p->forced_bos_token_id < -1 || p->forced_bos_token_id >= (int64_t)p->vocab_size)
    return EW_S_BAD_TOKEN;
  int32_t e;
  if ((e = check_list(p, lists, p->eos_at, p->eos_n))) return e;
  if ((e = check_list(p, lists, p->forced_eos_at, p->forced_eos_n))) return e;
  if ((e = check_list(p, lists, p->suppress_at, p->suppress_n))) return e;
  if ((e = check_list(p, lists, p->begin_suppress_at, p->begin_suppress_n))) return e;
  if ((e = check_sequences(p, lists, p->bad_words_at, p->bad_words_n, 0))) return e;
  return check_sequences(p, lists, p->bias_at, p->bias_n, 1);
}

/* --- processors
 *
 * ---------------------------------------------------------------------- */

static void fill(float *score, uint32_t n, float value) {
  for (uint32_t i = 0; i < n; i++) score[i] = value;
}

static void set_all(float *score, const int32_t *ids, uint32_t n, float value) {
  for (uint32_t i = 0; i < n; i++) score[ids[i]] = value;
}

static void log_softmax(float *score, uint32_t n) {
  float top = NEG_INF;
  for (uint32_t i = 0; i < n; i++) top = score[i] > top ? score[i] : top;
  if (top == NEG_INF) return; /* nothing is possible: pick says so */
  double sum = 0;
  for (uint32_t i = 0; i < n; i++) {
    double x = (double)score[i] - top;
    if (x > -100) sum += exp_(x);
  }
  double shift = (double)top + ln_(sum);
  for (uint32_t i = 0; i < n; i++) score[i] = (float)(score[i] - shift);
}

/* Would the next token complete `words`, of which the last is that token? As transformers, only
 * where the whole is not longer than ids. */
static int would_complete(const int32_t *words, uint32_t length, const int32_t *ids, uint32_t n) {
  return length == 1 ||
         (length <= n && !memcmp(ids + n - (length - 1), words, (length - 1) * sizeof *ids));
}

static int is_in(const int32_t *ids, uint32_t n, int32_t id) {
  for (uint32_t i = 0; i < n; i++)
    if (ids[i] == id) return 1;
  return 0;
}

static void remove_invalid(float *score, uint32_t n) { /* InfNanRemoveLogitsProcessor */
  for (uint32_t i = 0; i < n; i++)
    score[i] = score[i] != score[i]  ? 0
               : score[i] > FLT_MAX  ? FLT_MAX
               : score[i] < -FLT_MAX ? -FLT_MAX
                                     : score[i];
}

EW_API(ew_sampling_process)
int32_t ew_sampling_process(const ew_sampling *p, const int32_t *lists, const int32_t *ids,
                            uint32_t n, const float *logits, void *work) {
  int32_t e = ew_sampling_check(p, lists);
  if (e) return e;
  if (!n) return EW_S_BAD_CALL;
  if ((e = check_ids(ids, n, p->vocab_size))) return e;
  uint32_t vocab = p->vocab_size;
  candidates c = open_work(work, vocab);
  float *score = c.score;
  const int32_t *eos = lists + p->eos_at;

  memcpy(score, logits, vocab * sizeof *score);
  /* here as well: one NaN would make the whole log-softmax NaN */
  if (p->remove_invalid_values) remove_invalid(score, vocab);
  int broken = 0;
  for (uint32_t i = 0; i < vocab; i++) broken |= !FINITE_OR_NEG_INF(score[i]);
  if (broken) return EW_S_NOT_FINITE;
  if (p->num_beams > 1) log_softmax(score, vocab);

  for (uint32_t i = 0; i < p->bias_n;) { /* logit_bias and sequence_bias */
    const int32_t *words = lists + p->bias_at + i + 1;
    uint32_t length = (uint32_t)words[-1];
    float bias;
    memcpy(&bias, words + length, 4);
    if (would_complete(words, length, ids, n)) score[words[length - 1]] += bias;
    i += length + 2;
  }

  int32_t *count = (int32_t *)c.key;
  if (p->repetition_penalty != 1) {
    memset(count, 0, vocab * sizeof *count);
    for (uint32_t i = 0; i < n; i++) {
      float *s = score + ids[i];
      if (!count[ids[i]]++) *s = *s < 0 ? *s * p->repetition_penalty : *s / p->repetition_penalty;
    }
  }
  /* OpenAI's and vLLM's: new tokens only */
  if ((p->presence_penalty != 0 || p->frequency_penalty != 0) && n > p->prompt_length) {
    memset(count, 0, vocab * sizeof *count);
    for (uint32_t i = p->prompt_length; i < n; i++) count[ids[i]]++;
    for (uint32_t i = p->prompt_length; i < n; i++) {
      int32_t times = count[ids[i]];
      if (times) score[ids[i]] -= p->frequency_penalty * (float)times + p->presence_penalty;
      count[ids[i]] = 0;
    }
  }
  uint32_t gram = p->no_repeat_ngram_size;
  if (gram && n >= gram)
    for (uint32_t i = 0; i + gram <= n; i++)
      if (!memcmp(ids + i, ids + n - (gram - 1), (gram - 1) * sizeof *ids))
        score[ids[i + gram - 1]] = NEG_INF;
  for (uint32_t i = 0; i < p->bad_words_n;) {
    const int32_t *words = lists + p->bad_words_at + i + 1;
    uint32_t length = (uint32_t)words[-1];
    /* transformers lets eos through */
    int only_eos = length == 1 && is_in(eos, p->eos_n, words[0]);
    if (!only_eos && would_complete(words, length, ids, n)) score[words[length - 1]] = NEG_INF;
    i += length + 1;
  }
  if (n < p->min_length || (int64_t)n - p->prompt_length < (int64_t)p->min_new_tokens)
    set_all(score, eos, p->eos_n, NEG_INF);
  if (p->forced_bos_token_id >= 0 && n == 1) {
    fill(score, vocab, NEG_INF);
    score[p->forced_bos_token_id] = 0;
  }
  if (p->forced_eos_n && n == p->max_length - 1) {
    fill(score, vocab, NEG_INF);
    set_all(score, lists + p->forced_eos_at, p->forced_eos_n, 0);
  }
  if (p->remove_invalid_values) remove_invalid(score, vocab);
  int64_t decayed = (int64_t)n - p->prompt_length - p->exponential_decay_start;
  if (p->exponential_decay_start >= 0 && decayed > 0) {
    double power = 1, square = p->exponential_decay_factor;
    for (int64_t k = decayed; k; k >>= 1, square *= square)
      if (k & 1) power *= square;
    for (uint32_t i = 0; i < p->eos_n; i++) {
      double s = score[eos[i]];
      if (s == (double)NEG_INF) continue;
      s += (s < 0 ? -s : s) * (power - 1);
      score[eos[i]] = s < FLT_MAX ? (float)s : FLT_MAX;
    }
  }
  set_all(score, lists + p->suppress_at, p->suppress_n, NEG_INF);
  if (n == p->begin_index)
    set_all(score, lists + p->begin_suppress_at, p->begin_suppress_n, NEG_INF);
  return 0;
}

/* --- warpers: filters on a shrinking list of candidates
 * -------------------------------------------------------------------------- */

/* An unsigned number in the order of the floats; -0 counts as 0. */
static uint32_t rank_of(float f) {
  uint32_t bits;
  f += 0.0f;
  memcpy(&bits, &f, 4);
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}

/* The rank r such that candidates of higher key weigh less than `target` together, and with those
 * of rank r at least `target` (the lowest there is where all weigh less). *above: what those of
 * higher key weigh. A radix select: three passes, no sorting. weight NULL: each weighs 1. */
static uint32_t select_rank(const candidates *c, const float *key, const float *weight,
                            double target, double *above) {
  static const int shifts[3] = {21, 10, 0}, widths[3] = {11, 11, 10};
  uint32_t prefix = 0, mask = 0;
  *above = 0;
  for (int pass = 0; pass < 3; pass++) {
    uint32_t bins = 1u << widths[pass], chosen = 0;
    for (uint32_t b = 0; b < bins; b++) c->mass[b] = 0;
    for (uint32_t i = 0; i < c->n; i++) {
      uint32_t rank = rank_of(key[c->token[i]]);
      if ((rank & mask) == prefix)
        c->mass[rank >> shifts[pass] & (bins - 1)] += weight ? weight[c->token[i]] : 1;
    }
    double sum = *above;
    for (uint32_t b = bins; b-- > 0;) {
      if (c->mass[b] == 0) continue;
      chosen = b;
      *above = sum;
      sum += c->mass[b];
      if (sum >= target) break;
    }
    prefix |= chosen << shifts[pass];
    mask |= (bins - 1) << shifts[pass];
  }
  return prefix;
}

/* of candidates at the limit, keep all, or the first or last `room` by token id */
enum ties { ALL_TIES, LOW_TIES, HIGH_TIES };

static void keep_ranks(candidates *c, const float *key, uint32_t limit, enum ties ties,
                       uint32_t room) {
  uint32_t n = 0, equal = 0, seen = 0;
  for (uint32_t i = 0; i < c->n; i++) equal += rank_of(key[c->token[i]]) == limit;
  uint32_t skip = ties == HIGH_TIES && equal > room ? equal - room : 0;
  if (ties != LOW_TIES) room = equal;
  for (uint32_t i = 0; i < c->n; i++) {
    int32_t token = c->token[i];
    uint32_t rank = rank_of(key[token]);
    int kept = rank > limit;
    if (rank == limit) {
      kept = seen >= skip && seen < room;
      seen++;
    }
    if (kept)
      c->token[n++] = token;
    else
      c->score[token] = NEG_INF;
  }
  c->n = n;
}

static void keep_best(candidates *c, const float *key, uint32_t k, enum ties ties) {
  if (k >= c->n) return;
  double above;
  uint32_t limit = select_rank(c, key, 0, k, &above);
  keep_ranks(c, key, limit, ties, k - (uint32_t)above);
}

/* Keeps weights of at least `limit`; where those are fewer than `least`, the `least` best
 * instead. */
static void keep_heavy(candidates *c, double limit, uint32_t least, enum ties ties) {
  uint32_t heavy = 0, n = 0;
  for (uint32_t i = 0; i < c->n; i++) heavy += c->weight[c->token[i]] >= limit;
  if (heavy < least) {
    keep_best(c, c->score, least, ties);
    return;
  }
  for (uint32_t i = 0; i < c->n; i++) {
    int32_t token = c->token[i];
    if (c->weight[token] >= limit)
      c->token[n++] = token;
    else
      c->score[token] = NEG_INF;
  }
  c->n = n;
}

/* weight = exp(score - highest score) of each candidate; returns their sum. */
static double weigh(candidates *c, float *highest) {
  float top = NEG_INF;
  for (uint32_t i = 0; i < c->n; i++)
    top = c->score[c->token[i]] > top ? c->score[c->token[i]] : top;
  double sum = 0;
  for (uint32_t i = 0; i < c->n; i++) {
    double x = (double)c->score[c->token[i]] - top;
    sum += c->weight[c->token[i]] = x > -87 ? (float)exp_(x) : 0;
  }
  *highest = top;
  return sum;
}

static double entropy(const candidates *c, float highest, double sum) {
  double mean = 0;
  for (uint32_t i = 0; i < c->n; i++) {
    float w = c->weight[c->token[i]];
    if (w > 0) mean += w * ((double)c->score[c->token[i]] - highest);
  }
  return ln_(sum) - mean / sum;
}

EW_API(ew_sampling_warp)
int32_t ew_sampling_warp(const ew_sampling *p, void *work) {
  uint32_t vocab = p->vocab_size;
  candidates c = open_work(work, vocab);
  for (uint32_t i = 0; i < vocab; i++) {
    if (!FINITE_OR_NEG_INF(c.score[i])) return EW_S_NOT_FINITE;
    c.token[c.n] = (int32_t)i;
    c.n += c.score[i] > NEG_INF;
  }
  if (!c.n) return EW_S_NO_TOKEN;
  if (!p->do_sample) {
    if (p->renormalize_logits) log_softmax(c.score, vocab);
    return 0;
  }
  /* beams need a token to go on with besides the end tokens */
  uint32_t least = p->num_beams == 1 ? 1 : max_u32(2, p->eos_n + 1);
  double above, sum;
  float highest;

  if (p->temperature != 1)
    for (uint32_t i = 0; i < c.n; i++) {
      float s = c.score[c.token[i]] / p->temperature;
      c.score[c.token[i]] = s > FLT_MAX ? FLT_MAX : s < -FLT_MAX ? -FLT_MAX : s;
    }
  if (p->top_k) keep_best(&c, c.score, max_u32(p->top_k, least), ALL_TIES);
  /* the fewest whose probabilities reach top_p; of equals, those with the higher id, as
   * transformers' sort has it */
  if (p->top_p < 1) {
    sum = weigh(&c, &highest);
    double target = p->top_p * sum;
    uint32_t limit = select_rank(&c, c.score, c.weight, target, &above), better = 0, equal = 0;
    double weight = 0;
    for (uint32_t i = 0; i < c.n; i++) {
      uint32_t rank = rank_of(c.score[c.token[i]]);
      better += rank > limit;
      if (rank == limit) {
        equal++;
        weight = c.weight[c.token[i]];
      }
    }
    uint32_t room = 1;
    while (room < equal && above + room * weight < target) room++;
    if (better + room < least)
      keep_best(&c, c.score, least, HIGH_TIES);
    else
      keep_ranks(&c, c.score, limit, HIGH_TIES, room);
  }
  if (p->min_p > 0) {
    weigh(&c, &highest); /* the best weighs 1 */
    keep_heavy(&c, p->min_p, least, LOW_TIES);
  }
  /* the fewest, nearest to the entropy in information, whose probabilities reach typical_p */
  if (p->typical_p < 1) {
    sum = weigh(&c, &highest);
    double shift = highest + ln_(sum), h = entropy(&c, highest, sum);
    for (uint32_t i = 0; i < c.n; i++) {
      double distance = shift - c.score[c.token[i]] - h;
      c.key[c.token[i]] = (float)(distance < 0 ? distance : -distance);
    }
    uint32_t limit = select_rank(&c, c.key, c.weight, p->typical_p * sum, &above), kept = 0;
    for (uint32_t i = 0; i < c.n; i++) kept += rank_of(c.key[c.token[i]]) >= limit;
    if (kept < least)
      keep_best(&c, c.key, least, LOW_TIES);
    else
      keep_ranks(&c, c.key, limit, ALL_TIES, 0);
  }
  if (p->epsilon_cutoff > 0) {
    sum = weigh(&c, &highest);
    keep_heavy(&c, p->epsilon_cutoff * sum, least, ALL_TIES);
  }
  if (p->eta_cutoff > 0) { /* min(eta, sqrt(eta) exp(-entropy)) */
    sum = weigh(&c, &highest);
    double low = exp_(0.5 * ln_(p->eta_cutoff) - entropy(&c, highest, sum));
    keep_heavy(&c, (low < p->eta_cutoff ? low : p->eta_cutoff) * sum, least, ALL_TIES);
  }
  if (p->renormalize_logits) log_softmax(c.score, vocab);
  return 0;
}

/* --- choosing
 *
 * ---------------------------------------------------------------------- */

EW_API(ew_sampling_pick)
int32_t ew_sampling_pick(const ew_sampling *p, void *work, ew_rng *rng) {
  int32_t e = ew_sampling_warp(p, work);
  if (e) return e;
  candidates c = open_work(work, p->vocab_size);
  uint32_t best = 0;
  for (uint32_t i = 1; i < c.vocab; i++)
    if (c.score[i] > c.score[best]) best = i;
  if (!p->do_sample) return (int32_t)best;

  float top = c.score[best];
  double sum = 0;
  for (uint32_t i = 0; i < c.vocab; i++) {
    if (!(c.score[i] > NEG_INF)) continue;
    double x = (double)c.score[i] - top;
    c.weight[c.n] = x > -87 ? (float)exp_(x) : 0;
    c.token[c.n] = (int32_t)i;
    sum += c.weight[c.n++];
  }
  double left = uniform(rng) * sum;
  for (uint32_t i = 0; i < c.n; i++) {
    left -= c.weight[i];
    if (left < 0) return c.token[i];
  }
  return (int32_t)best; /* rounding ate the last of it */
}

EW_API(ew_sampling_next)
int32_t ew_sampling_next(const ew_sampling *p, const int32_t *lists, const int32_t *ids, uint32_t n,
                         const float *logits, void *work, ew_rng *rng) {
  int32_t e = ew_sampling_process(p, lists, ids, n, logits, work);
  return e ? e : ew_sampling_pick(p, work, rng);
}

/* --- beam search
 *
 * ---------------------------------------------------------------------- */

static void *at(const ew_beams *s, uint32_t offset) { return (char *)s + offset; }
static int32_t *row(const ew_beams *s, uint32_t rows_at, uint32_t i) {
  return (int32_t *)at(s, rows_at) + (size_t)i * s->max_length;
}

static int32_t lay_out(const ew_sampling *p, ew_beams *s) {
  if (!p->num_beams || p->num_beams > MAX_BEAMS) return bad_field(EW_FIELD_NUM_BEAMS);
  uint64_t beams = p->num_beams,
           keep = (uint64_t)max_u32(2, min_u32(p->eos_n, 1u << 16) + 1) * beams;
  uint64_t rows = beams * p->max_length * 4, total = sizeof *s +
                                                     beams * (4 + 4 + sizeof(ew_finished)) +
                                                     keep * sizeof(ew_candidate) + 3 * rows;
  if (total > INT32_MAX) return bad_field(EW_FIELD_MAX_LENGTH);
  *s = (ew_beams){.num_beams = p->num_beams,
                  .keep = (uint32_t)keep,
                  .prompt_length = p->prompt_length,
                  .max_length = p->max_length};
  s->scores_at = sizeof *s;
  s->parents_at = s->scores_at + 4 * s->num_beams;
  s->candidates_at = s->parents_at + 4 * s->num_beams;
  s->done_at = s->candidates_at + (uint32_t)(keep * sizeof(ew_candidate));
  s->rows_at = s->done_at + s->num_beams * (uint32_t)sizeof(ew_finished);
  s->spare_at = s->rows_at + (uint32_t)rows;
  s->finished_at = s->spare_at + (uint32_t)rows;
  s->total_bytes = (uint32_t)total;
  return (int32_t)total;
}

EW_API(ew_beams_bytes)
int32_t ew_beams_bytes(const ew_sampling *p) {
  ew_beams s;
  return lay_out(p, &s);
}

/* Only one beam runs at first: with several, all would say the same. */
EW_API(ew_beams_start)
int32_t ew_beams_start(const ew_sampling *p, ew_beams *s, const int32_t *ids, uint32_t n) {
  int32_t bytes = lay_out(p, s);
  if (bytes < 0) return bytes;
  if (!n || n != p->prompt_length || n >= p->max_length) return EW_S_BAD_CALL;
  if (check_ids(ids, n, p->vocab_size)) return EW_S_BAD_TOKEN;
  memcpy(row(s, s->rows_at, 0), ids, n * sizeof *ids);
  *(float *)at(s, s->scores_at) = 0;
  *(int32_t *)at(s, s->parents_at) = 0;
  s->length = n;
  s->n_running = 1;
  return 0;
}

EW_API(ew_beams_offer)
int32_t ew_beams_offer(const ew_sampling *p, ew_beams *s, uint32_t beam, const void *work,
                       ew_rng *rng) {
  if (beam >= s->n_running) return EW_S_BAD_CALL;
  if (beam == 0) s->n_candidates = 0;
  const float *score = work;
  float so_far = ((float *)at(s, s->scores_at))[beam];
  ew_candidate *best = at(s, s->candidates_at);
  uint32_t n = s->n_candidates;
  for (uint32_t token = 0; token < p->vocab_size; token++) {
    if (!(score[token] > NEG_INF)) continue;
    float total = score[token] + so_far;
    float key = p->do_sample ? (float)(total - ln_(-ln_(uniform(rng)))) : total;
    if (n == s->keep && !(key > best[n - 1].key)) continue;
    uint32_t i = n < s->keep ? n++ : n - 1;
    for (; i > 0 && key > best[i - 1].key; i--) best[i] = best[i - 1];
    best[i] = (ew_candidate){beam, token, total, key, EW_ENDED_RUNNING};
  }
  s->n_candidates = n;
  return 0;
}

EW_API(ew_beams_rank)
int32_t ew_beams_rank(const ew_sampling *p, const int32_t *lists, ew_beams *s) {
  ew_candidate *c = at(s, s->candidates_at);
  for (uint32_t i = 0; i < s->n_candidates; i++)
    c[i].done = is_in(lists + p->eos_at, p->eos_n, (int32_t)c[i].token) ? EW_ENDED_EOS
                : s->length + 1 >= s->max_length                        ? EW_ENDED_LENGTH
                                                                        : EW_ENDED_RUNNING;
  return (int32_t)s->n_candidates;
}

static void append(ew_beams *s, int32_t *to, const ew_candidate *c) {
  memcpy(to, row(s, s->rows_at, c->beam), s->length * sizeof *to);
  to[s->length] = (int32_t)c->token;
}

/* Puts a finished candidate among the best num_beams. */
static void finish(const ew_sampling *p, ew_beams *s, const ew_candidate *c) {
  ew_finished *done = at(s, s->done_at);
  uint32_t length = s->length + 1;
  float score = c->score / (float)power_of_length(length - s->prompt_length, p->length_penalty);
  uint32_t last = s->n_done < s->num_beams ? s->n_done : s->num_beams - 1,
           place = s->n_done < s->num_beams ? last : done[last].row;
  if (s->n_done == s->num_beams && !(score > done[last].score)) return;
  append(s, row(s, s->finished_at, place), c);
  uint32_t i = last;
  for (; i > 0 && score > done[i - 1].score; i--) done[i] = done[i - 1];
  done[i] = (ew_finished){score, length, place, c->done};
  s->n_done = last + 1;
}

EW_API(ew_beams_advance)
int32_t ew_beams_advance(const ew_sampling *p, ew_beams *s) {
  ew_candidate *c = at(s, s->candidates_at);
  float *scores = at(s, s->scores_at);
  int32_t *parents = at(s, s->parents_at);
  if (s->length >= s->max_length) return EW_S_BAD_CALL;
  if (!s->n_candidates && !s->n_done) return EW_S_NO_TOKEN;

  /* Candidates past the first num_beams are there only to have enough that go on; their end does
   * not count. */
  for (uint32_t i = 0; i < s->n_candidates && i < s->num_beams; i++)
    if (c[i].done) finish(p, s, c + i);

  uint32_t running = 0;
  for (; running < s->num_beams; running++) { /* by score: a draw comes in another order */
    ew_candidate *best = 0;
    for (uint32_t i = 0; i < s->n_candidates; i++)
      if (!c[i].done && (!best || c[i].score > best->score)) best = c + i;
    if (!best) break;
    append(s, row(s, s->spare_at, running), best);
    scores[running] = best->score;
    parents[running] = (int32_t)best->beam;
    best->done = UINT32_MAX; /* taken */
  }
  uint32_t rows_at = s->rows_at;
  s->rows_at = s->spare_at;
  s->spare_at = rows_at;
  s->n_running = running;
  s->n_candidates = 0;
  s->length++;

  if (!running) return 0;
  if (s->n_done < s->num_beams) return 1;
  if (p->early_stopping == 1) return 0;
  /* Can the best running beam still beat the worst finished one? _check_early_stop_heuristic */
  uint32_t length = (p->early_stopping == 2 && p->length_penalty > 0 ? s->max_length : s->length) -
                    s->prompt_length;
  float possible = scores[0] / (float)power_of_length(length, p->length_penalty);
  return possible > ((ew_finished *)at(s, s->done_at))[s->num_beams - 1].score;
}
