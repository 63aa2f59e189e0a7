/* Warpers, which remove or rescale candidates when sampling, and the choice of a token. Each warper
 * filters a shrinking list of candidates. */
#include "sampling/internal.h"

/* Maps a float to an unsigned integer of the same order; -0 equals 0. */
static uint32_t rank_of(float f) {
  uint32_t bits;
  f += 0.0f;
  memcpy(&bits, &f, 4);
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}

/* Returns the rank r such that the candidates of higher rank have a total weight below `target`,
 * and together with those of rank r at least `target` (the lowest rank if all together have less).
 * *above: total weight of the higher ranks. A radix select in three passes, without sorting. weight
 * NULL: each weight is 1. */
static uint32_t select_rank(const ew_candidates *c, const float *key, const float *weight,
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

/* Of the candidates at the limit, keep all, or the first or last `room` by token id. */
enum ties { ALL_TIES, LOW_TIES, HIGH_TIES };

static void keep_ranks(ew_candidates *c, const float *key, uint32_t limit, enum ties ties,
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

static void keep_best(ew_candidates *c, const float *key, uint32_t k, enum ties ties) {
  if (k >= c->n) return;
  double above;
  uint32_t limit = select_rank(c, key, 0, k, &above);
  keep_ranks(c, key, limit, ties, k - (uint32_t)above);
}

/* Keeps the candidates with a weight of at least `limit`, or the `least` best ones if those are
 * fewer. */
static void keep_heavy(ew_candidates *c, double limit, uint32_t least, enum ties ties) {
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

/* Sets the weight of each candidate to exp(score - highest score); returns their sum. */
static double weigh(ew_candidates *c, float *highest) {
  float top = NEG_INF;
  for (uint32_t i = 0; i < c->n; i++)
    top = c->score[c->token[i]] > top ? c->score[c->token[i]] : top;
  double sum = 0;
  for (uint32_t i = 0; i < c->n; i++) {
    double x = (double)c->score[c->token[i]] - top;
    sum += c->weight[c->token[i]] = x > -87 ? (float)ew_s_exp(x) : 0;
  }
  *highest = top;
  return sum;
}

static double entropy(const ew_candidates *c, float highest, double sum) {
  double mean = 0;
  for (uint32_t i = 0; i < c->n; i++) {
    float w = c->weight[c->token[i]];
    if (w > 0) mean += w * ((double)c->score[c->token[i]] - highest);
  }
  return ew_s_ln(sum) - mean / sum;
}

EW_API(ew_sampling_warp)
int32_t ew_sampling_warp(const ew_sampling *p, void *work) {
  uint32_t vocab = p->vocab_size;
  ew_candidates c = ew_s_open(work, vocab);
  for (uint32_t i = 0; i < vocab; i++) {
    if (!FINITE_OR_NEG_INF(c.score[i])) return EW_S_NOT_FINITE;
    c.token[c.n] = (int32_t)i;
    c.n += c.score[i] > NEG_INF;
  }
  if (!c.n) return EW_S_NO_TOKEN;
  if (!p->do_sample) {
    if (p->renormalize_logits) ew_s_log_softmax(c.score, vocab);
    return 0;
  }
  /* beam search needs a token to continue with besides the end tokens */
  uint32_t least = p->num_beams == 1 ? 1 : max_u32(2, p->eos_n + 1);
  double above, sum;
  float highest;

  if (p->temperature != 1)
    for (uint32_t i = 0; i < c.n; i++) {
      float s = c.score[c.token[i]] / p->temperature;
      c.score[c.token[i]] = s > FLT_MAX ? FLT_MAX : s < -FLT_MAX ? -FLT_MAX : s;
    }
  if (p->top_k) keep_best(&c, c.score, max_u32(p->top_k, least), ALL_TIES);
  /* the smallest set whose probability reaches top_p; among equals those with the higher id, as
   * with the sort of transformers */
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
    weigh(&c, &highest); /* the best has weight 1 */
    keep_heavy(&c, p->min_p, least, LOW_TIES);
  }
  /* the smallest set whose probability reaches typical_p, of those whose information is closest to
   * the entropy */
  if (p->typical_p < 1) {
    sum = weigh(&c, &highest);
    double shift = highest + ew_s_ln(sum), h = entropy(&c, highest, sum);
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
  if (p->eta_cutoff > 0) { /* the limit is min(eta, sqrt(eta) exp(-entropy)) */
    sum = weigh(&c, &highest);
    double low = ew_s_exp(0.5 * ew_s_ln(p->eta_cutoff) - entropy(&c, highest, sum));
    keep_heavy(&c, (low < p->eta_cutoff ? low : p->eta_cutoff) * sum, least, ALL_TIES);
  }
  if (p->renormalize_logits) ew_s_log_softmax(c.score, vocab);
  return 0;
}

EW_API(ew_sampling_pick)
int32_t ew_sampling_pick(const ew_sampling *p, void *work, ew_rng *rng) {
  int32_t e = ew_sampling_warp(p, work);
  if (e) return e;
  ew_candidates c = ew_s_open(work, p->vocab_size);
  uint32_t best = 0;
  for (uint32_t i = 1; i < c.vocab; i++)
    if (c.score[i] > c.score[best]) best = i;
  if (!p->do_sample) return (int32_t)best;

  float top = c.score[best];
  double sum = 0;
  for (uint32_t i = 0; i < c.vocab; i++) {
    if (!(c.score[i] > NEG_INF)) continue;
    double x = (double)c.score[i] - top;
    c.weight[c.n] = x > -87 ? (float)ew_s_exp(x) : 0;
    c.token[c.n] = (int32_t)i;
    sum += c.weight[c.n++];
  }
  double left = ew_s_uniform(rng) * sum;
  for (uint32_t i = 0; i < c.n; i++) {
    left -= c.weight[i];
    if (left < 0) return c.token[i];
  }
  return (int32_t)best; /* all remaining probability was lost to rounding */
}

EW_API(ew_sampling_next)
int32_t ew_sampling_next(const ew_sampling *p, const int32_t *lists, const int32_t *ids, uint32_t n,
                         const float *logits, void *work, ew_rng *rng) {
  int32_t e = ew_sampling_process(p, lists, ids, n, logits, work);
  return e ? e : ew_sampling_pick(p, work, rng);
}
