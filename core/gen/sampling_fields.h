/* Made by python/edgewise/text/emit.py from fields.py, where each member is explained. Do not edit. */
#ifndef EDGEWISE_SAMPLING_FIELDS_H
#define EDGEWISE_SAMPLING_FIELDS_H
#include <stdint.h>

typedef struct {
  uint32_t vocab_size;
  uint32_t prompt_length;
  uint32_t max_length;
  uint32_t lists_length;
  uint32_t min_length;
  uint32_t min_new_tokens;
  float repetition_penalty;
  float presence_penalty;
  float frequency_penalty;
  uint32_t no_repeat_ngram_size;
  float encoder_repetition_penalty;
  uint32_t encoder_no_repeat_ngram_size;
  uint32_t timestamp_begin;
  int32_t max_initial_timestamp;
  int32_t forced_bos_token_id;
  uint32_t remove_invalid_values;
  int32_t exponential_decay_start;
  float exponential_decay_factor;
  uint32_t begin_index;
  uint32_t renormalize_logits;
  uint32_t do_sample;
  float temperature;
  uint32_t top_k;
  float top_p;
  float min_p;
  float typical_p;
  float epsilon_cutoff;
  float eta_cutoff;
  uint32_t num_beams;
  uint32_t early_stopping;
  float length_penalty;
  uint32_t eos_at;
  uint32_t eos_n;
  uint32_t forced_eos_at;
  uint32_t forced_eos_n;
  uint32_t suppress_at;
  uint32_t suppress_n;
  uint32_t begin_suppress_at;
  uint32_t begin_suppress_n;
  uint32_t bad_words_at;
  uint32_t bad_words_n;
  uint32_t bias_at;
  uint32_t bias_n;
  uint32_t encoder_at;
  uint32_t encoder_n;
} ew_sampling;

typedef struct {
  uint32_t num_beams;
  uint32_t keep;
  uint32_t prompt_length;
  uint32_t max_length;
  uint32_t length;
  uint32_t n_running;
  uint32_t n_done;
  uint32_t n_candidates;
  uint32_t scores_at;
  uint32_t parents_at;
  uint32_t candidates_at;
  uint32_t done_at;
  uint32_t rows_at;
  uint32_t spare_at;
  uint32_t finished_at;
  uint32_t total_bytes;
} ew_beams;

typedef struct {
  uint32_t beam;
  uint32_t token;
  float score;
  float key;
  uint32_t done;
} ew_candidate;

typedef struct {
  float score;
  uint32_t length;
  uint32_t row;
  uint32_t reason;
} ew_finished;

enum {
  EW_FIELD_VOCAB_SIZE = 0,
  EW_FIELD_PROMPT_LENGTH = 1,
  EW_FIELD_MAX_LENGTH = 2,
  EW_FIELD_LISTS_LENGTH = 3,
  EW_FIELD_MIN_LENGTH = 4,
  EW_FIELD_MIN_NEW_TOKENS = 5,
  EW_FIELD_REPETITION_PENALTY = 6,
  EW_FIELD_PRESENCE_PENALTY = 7,
  EW_FIELD_FREQUENCY_PENALTY = 8,
  EW_FIELD_NO_REPEAT_NGRAM_SIZE = 9,
  EW_FIELD_ENCODER_REPETITION_PENALTY = 10,
  EW_FIELD_ENCODER_NO_REPEAT_NGRAM_SIZE = 11,
  EW_FIELD_TIMESTAMP_BEGIN = 12,
  EW_FIELD_MAX_INITIAL_TIMESTAMP = 13,
  EW_FIELD_FORCED_BOS_TOKEN_ID = 14,
  EW_FIELD_REMOVE_INVALID_VALUES = 15,
  EW_FIELD_EXPONENTIAL_DECAY_START = 16,
  EW_FIELD_EXPONENTIAL_DECAY_FACTOR = 17,
  EW_FIELD_BEGIN_INDEX = 18,
  EW_FIELD_RENORMALIZE_LOGITS = 19,
  EW_FIELD_DO_SAMPLE = 20,
  EW_FIELD_TEMPERATURE = 21,
  EW_FIELD_TOP_K = 22,
  EW_FIELD_TOP_P = 23,
  EW_FIELD_MIN_P = 24,
  EW_FIELD_TYPICAL_P = 25,
  EW_FIELD_EPSILON_CUTOFF = 26,
  EW_FIELD_ETA_CUTOFF = 27,
  EW_FIELD_NUM_BEAMS = 28,
  EW_FIELD_EARLY_STOPPING = 29,
  EW_FIELD_LENGTH_PENALTY = 30,
  EW_FIELD_EOS_AT = 31,
  EW_FIELD_EOS_N = 32,
  EW_FIELD_FORCED_EOS_AT = 33,
  EW_FIELD_FORCED_EOS_N = 34,
  EW_FIELD_SUPPRESS_AT = 35,
  EW_FIELD_SUPPRESS_N = 36,
  EW_FIELD_BEGIN_SUPPRESS_AT = 37,
  EW_FIELD_BEGIN_SUPPRESS_N = 38,
  EW_FIELD_BAD_WORDS_AT = 39,
  EW_FIELD_BAD_WORDS_N = 40,
  EW_FIELD_BIAS_AT = 41,
  EW_FIELD_BIAS_N = 42,
  EW_FIELD_ENCODER_AT = 43,
  EW_FIELD_ENCODER_N = 44,
};
enum {
  EW_S_BAD_TOKEN = -1,
  EW_S_NOT_FINITE = -2,
  EW_S_NO_TOKEN = -3,
  EW_S_BAD_LIST = -4,
  EW_S_BAD_CALL = -5,
  EW_S_BAD_FIELD = -1000,
};
enum {
  EW_ENDED_RUNNING = 0,
  EW_ENDED_EOS = 1,
  EW_ENDED_LENGTH = 2,
  EW_ENDED_STOP_STRING = 3,
  EW_ENDED_MAX_TIME = 4,
  EW_ENDED_STOPPING_CRITERIA = 5,
};
#endif
