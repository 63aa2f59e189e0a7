/* Logits processors: the ones that do not depend on do_sample, in the order of transformers. */
#include "sampling/internal.h"

static void fill(float *score, uint32_t n, float value) {
  for (uint32_t i = 0; i < n; i++) score[i] = value;
}

static void set_all(float *score, const int32_t *ids, uint32_t n, float value) {
  for (uint32_t i = 0; i < n; i++) score[ids[i]] = value;
}

/* True if the last of `words`, as the next token, would complete the sequence. As in transformers,
 * only sequences not longer than ids count. */
static int would_complete(const int32_t *words, uint32_t length, const int32_t *ids, uint32_t n) {
  return length == 1 ||
         (length <= n && !memcmp(ids + n - (length - 1), words, (length - 1) * sizeof *ids));
}

static void remove_invalid(float *score, uint32_t n) { /* InfNanRemoveLogitsProcessor */
  for (uint32_t i = 0; i < n; i++)
    score[i] = score[i] != score[i]  ? 0
               : score[i] > FLT_MAX  ? FLT_MAX
               : score[i] < -FLT_MAX ? -FLT_MAX
                                     : score[i];
}

/* logit_bias and sequence_bias */
static void add_bias(const ew_sampling *p, const int32_t *lists, const int32_t *ids, uint32_t n,
                     float *score) {
  for (uint32_t i = 0; i < p->bias_n;) {
    const int32_t *words = lists + p->bias_at + i + 1;
    uint32_t length = (uint32_t)words[-1];
    float bias;
    memcpy(&bias, words + length, 4);
    if (would_complete(words, length, ids, n)) score[words[length - 1]] += bias;
    i += length + 2;
  }
}

/* encoder_repetition_penalty. count: scratch of `vocab` elements. */
static void follow_encoder(const ew_sampling *p, const int32_t *lists, float *score,
                           int32_t *count) {
  if (p->encoder_repetition_penalty == 1) return;
  const int32_t *encoder = lists + p->encoder_at;
  float penalty = 1 / p->encoder_repetition_penalty;
  memset(count, 0, p->vocab_size * sizeof *count);
  for (uint32_t i = 0; i < p->encoder_n; i++) {
    float *s = score + encoder[i];
    if (!count[encoder[i]]++) *s = *s < 0 ? *s * penalty : *s / penalty;
  }
}

/* repetition_penalty over all tokens; presence_penalty and frequency_penalty, as defined by OpenAI
 * and vLLM, over new tokens only. count: scratch of `vocab` elements. */
static void penalize(const ew_sampling *p, const int32_t *ids, uint32_t n, float *score,
                     int32_t *count) {
  if (p->repetition_penalty != 1) {
    memset(count, 0, p->vocab_size * sizeof *count);
    for (uint32_t i = 0; i < n; i++) {
      float *s = score + ids[i];
      if (!count[ids[i]]++) *s = *s < 0 ? *s * p->repetition_penalty : *s / p->repetition_penalty;
    }
  }
  if ((p->presence_penalty != 0 || p->frequency_penalty != 0) && n > p->prompt_length) {
    memset(count, 0, p->vocab_size * sizeof *count);
    for (uint32_t i = p->prompt_length; i < n; i++) count[ids[i]]++;
    for (uint32_t i = p->prompt_length; i < n; i++) {
      int32_t times = count[ids[i]];
      if (times) score[ids[i]] -= p->frequency_penalty * (float)times + p->presence_penalty;
      count[ids[i]] = 0;
    }
  }
}

/* no_repeat_ngram_size, encoder_no_repeat_ngram_size and bad_words_ids */
static void forbid_sequences(const ew_sampling *p, const int32_t *lists, const int32_t *ids,
                             uint32_t n, float *score) {
  uint32_t gram = p->no_repeat_ngram_size;
  if (gram && n >= gram)
    for (uint32_t i = 0; i + gram <= n; i++)
      if (!memcmp(ids + i, ids + n - (gram - 1), (gram - 1) * sizeof *ids))
        score[ids[i + gram - 1]] = NEG_INF;
  gram = p->encoder_no_repeat_ngram_size;
  const int32_t *encoder = lists + p->encoder_at;
  if (gram && n >= gram - 1)
    for (uint32_t i = 0; gram <= p->encoder_n && i <= p->encoder_n - gram; i++)
      if (!memcmp(encoder + i, ids + n - (gram - 1), (gram - 1) * sizeof *ids))
        score[encoder[i + gram - 1]] = NEG_INF;
  for (uint32_t i = 0; i < p->bad_words_n;) {
    const int32_t *words = lists + p->bad_words_at + i + 1;
    uint32_t length = (uint32_t)words[-1];
    /* transformers allows eos */
    int only_eos = length == 1 && ew_s_is_in(lists + p->eos_at, p->eos_n, words[0]);
    if (!only_eos && would_complete(words, length, ids, n)) score[words[length - 1]] = NEG_INF;
    i += length + 1;
  }
}

/* min_length, min_new_tokens, forced_bos_token_id and forced_eos_token_id */
static void force_tokens(const ew_sampling *p, const int32_t *lists, uint32_t n, float *score) {
  if (n < p->min_length || (int64_t)n - p->prompt_length < (int64_t)p->min_new_tokens)
    set_all(score, lists + p->eos_at, p->eos_n, NEG_INF);
  if (p->forced_bos_token_id >= 0 && n == 1) {
    fill(score, p->vocab_size, NEG_INF);
    score[p->forced_bos_token_id] = 0;
  }
  if (p->forced_eos_n && n == p->max_length - 1) {
    fill(score, p->vocab_size, NEG_INF);
    set_all(score, lists + p->forced_eos_at, p->forced_eos_n, 0);
  }
}

/* exponential_decay_length_penalty: raises the scores of eos from a given length on */
static void raise_eos(const ew_sampling *p, const int32_t *eos, uint32_t n, float *score) {
  int64_t decayed = (int64_t)n - p->prompt_length - p->exponential_decay_start;
  if (p->exponential_decay_start < 0 || decayed <= 0) return;
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

/* Whisper's rules of times (WhisperTimeStampLogitsProcessor): they come in pairs, never decrease,
 * and one is forced where all times together are likelier than any text. */
static void time_tokens(const ew_sampling *p, const int32_t *lists, const int32_t *ids, uint32_t n,
                        float *score) {
  uint32_t begin = p->timestamp_begin, vocab = p->vocab_size, at = p->prompt_length;
  if (!begin) return;
  score[begin - 1] = NEG_INF; /* <|notimestamps|> */
  uint32_t new_tokens = n > at ? n - at : 0;
  int last = new_tokens && (uint32_t)ids[n - 1] >= begin;
  int before = new_tokens < 2 || (uint32_t)ids[n - 2] >= begin;
  if (last && before) fill(score + begin, vocab - begin, NEG_INF);
  if (last && !before) fill(score, (uint32_t)lists[p->eos_at], NEG_INF);
  for (uint32_t i = n; i > at; i--) {
    uint32_t time = (uint32_t)ids[i - 1];
    if (time < begin) continue;
    fill(score + begin, time - begin + !(last && !before), NEG_INF);
    break;
  }
  if (n == at) {
    fill(score, begin, NEG_INF);
    int64_t allowed = (int64_t)begin + p->max_initial_timestamp + 1;
    if (p->max_initial_timestamp >= 0 && allowed < vocab)
      fill(score + allowed, vocab - (uint32_t)allowed, NEG_INF);
  }
  float text = NEG_INF, time = NEG_INF;
  for (uint32_t i = 0; i < begin; i++) text = score[i] > text ? score[i] : text;
  for (uint32_t i = begin; i < vocab; i++) time = score[i] > time ? score[i] : time;
  if (time == NEG_INF) return;
  double sum = 0;
  for (uint32_t i = begin; i < vocab; i++) sum += ew_s_exp((double)score[i] - time);
  if (time + ew_s_ln(sum) > text) fill(score, begin, NEG_INF);
}

EW_API(ew_sampling_process)
int32_t ew_sampling_process(const ew_sampling *p, const int32_t *lists, const int32_t *ids,
                            uint32_t n, const float *logits, void *work) {
  int32_t e = ew_sampling_check(p, lists);
  if (e) return e;
  if (!n) return EW_S_BAD_CALL;
  if ((e = ew_s_check_ids(ids, n, p->vocab_size))) return e;
  uint32_t vocab = p->vocab_size;
  ew_candidates c = ew_s_open(work, vocab);
  float *score = c.score;

  memcpy(score, logits, vocab * sizeof *score);
  /* also before log_softmax, which a single NaN would make NaN as a whole */
  if (p->remove_invalid_values) remove_invalid(score, vocab);
  int broken = 0;
  for (uint32_t i = 0; i < vocab; i++) broken |= !FINITE_OR_NEG_INF(score[i]);
  if (broken) return EW_S_NOT_FINITE;
  if (p->num_beams > 1) ew_s_log_softmax(score, vocab);

  add_bias(p, lists, ids, n, score);
  follow_encoder(p, lists, score, (int32_t *)c.key);
  penalize(p, ids, n, score, (int32_t *)c.key);
  forbid_sequences(p, lists, ids, n, score);
  force_tokens(p, lists, n, score);
  if (p->remove_invalid_values) remove_invalid(score, vocab);
  raise_eos(p, lists + p->eos_at, n, score);
  set_all(score, lists + p->suppress_at, p->suppress_n, NEG_INF);
  if (n == p->begin_index)
    set_all(score, lists + p->begin_suppress_at, p->begin_suppress_n, NEG_INF);
  time_tokens(p, lists, ids, n, score);
  return 0;
}
