/* Checks of sampling options and token ids, and the size of the work buffer. */
#include "sampling/internal.h"

EW_API(ew_sampling_work_bytes)
int32_t ew_sampling_work_bytes(uint32_t vocab) {
  if (!vocab || vocab > MAX_VOCAB) return bad_field(EW_FIELD_VOCAB_SIZE);
  return (int32_t)(vocab * 16 + BINS * 8);
}

int32_t ew_s_check_ids(const int32_t *ids, uint32_t n, uint32_t vocab) {
  for (uint32_t i = 0; i < n; i++)
    if ((uint32_t)ids[i] >= vocab) return EW_S_BAD_TOKEN;
  return 0;
}

static int32_t check_list(const ew_sampling *p, const int32_t *lists, uint32_t at, uint32_t n) {
  if (at > p->lists_length || n > p->lists_length - at) return EW_S_BAD_LIST;
  return ew_s_check_ids(lists + at, n, p->vocab_size);
}

/* Checks a list of sequences: each is its length, that many ids, then `tail` more words. */
static int32_t check_sequences(const ew_sampling *p, const int32_t *lists, uint32_t at, uint32_t n,
                               uint32_t tail) {
  if (at > p->lists_length || n > p->lists_length - at) return EW_S_BAD_LIST;
  for (uint32_t i = 0; i < n;) {
    uint32_t length = (uint32_t)lists[at + i++];
    if (length < 1 || length > n - i || tail > n - i - length) return EW_S_BAD_LIST;
    if (ew_s_check_ids(lists + at + i, length, p->vocab_size)) return EW_S_BAD_TOKEN;
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
  if (!(p->encoder_repetition_penalty > 0) || !is_finite(p->encoder_repetition_penalty))
    return bad_field(EW_FIELD_ENCODER_REPETITION_PENALTY);
  if (p->timestamp_begin >= p->vocab_size || (p->timestamp_begin && !p->eos_n))
    return bad_field(EW_FIELD_TIMESTAMP_BEGIN);
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
  /* the range in which length^penalty is finite */
  if (!(p->length_penalty >= -64 && p->length_penalty <= 64))
    return bad_field(EW_FIELD_LENGTH_PENALTY);
  if (p->forced_bos_token_id < -1 || p->forced_bos_token_id >= (int64_t)p->vocab_size)
    return EW_S_BAD_TOKEN;
  int32_t e;
  if ((e = check_list(p, lists, p->eos_at, p->eos_n))) return e;
  if ((e = check_list(p, lists, p->forced_eos_at, p->forced_eos_n))) return e;
  if ((e = check_list(p, lists, p->suppress_at, p->suppress_n))) return e;
  if ((e = check_list(p, lists, p->begin_suppress_at, p->begin_suppress_n))) return e;
  if ((e = check_list(p, lists, p->encoder_at, p->encoder_n))) return e;
  if ((e = check_sequences(p, lists, p->bad_words_at, p->bad_words_n, 0))) return e;
  return check_sequences(p, lists, p->bias_at, p->bias_n, 1);
}

int ew_s_is_in(const int32_t *ids, uint32_t n, int32_t id) {
  for (uint32_t i = 0; i < n; i++)
    if (ids[i] == id) return 1;
  return 0;
}
