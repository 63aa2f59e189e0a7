/* Beam search, as _beam_search of transformers/generation/utils.py. The whole state lies in one
 * block of the caller's memory: ew_beams, followed by arrays at the offsets that it contains. */
#include "sampling/internal.h"

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

/* Only one beam runs at first: several would all be the same. */
EW_API(ew_beams_start)
int32_t ew_beams_start(const ew_sampling *p, ew_beams *s, const int32_t *ids, uint32_t n) {
  int32_t bytes = lay_out(p, s);
  if (bytes < 0) return bytes;
  if (!n || n != p->prompt_length || n >= p->max_length) return EW_S_BAD_CALL;
  if (ew_s_check_ids(ids, n, p->vocab_size)) return EW_S_BAD_TOKEN;
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
    float key = p->do_sample ? (float)(total - ew_s_ln(-ew_s_ln(ew_s_uniform(rng)))) : total;
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
    c[i].done = ew_s_is_in(lists + p->eos_at, p->eos_n, (int32_t)c[i].token) ? EW_ENDED_EOS
                : s->length + 1 >= s->max_length                             ? EW_ENDED_LENGTH
                                                                             : EW_ENDED_RUNNING;
  return (int32_t)s->n_candidates;
}

static void append(ew_beams *s, int32_t *to, const ew_candidate *c) {
  memcpy(to, row(s, s->rows_at, c->beam), s->length * sizeof *to);
  to[s->length] = (int32_t)c->token;
}

/* Inserts a finished candidate into the list of the num_beams best ones. */
static void finish(const ew_sampling *p, ew_beams *s, const ew_candidate *c) {
  ew_finished *done = at(s, s->done_at);
  uint32_t length = s->length + 1;
  float score = c->score / (float)ew_s_length_power(length - s->prompt_length, p->length_penalty);
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

  /* Candidates after the first num_beams only ensure that enough beams continue; if they end, they
   * are not recorded. */
  for (uint32_t i = 0; i < s->n_candidates && i < s->num_beams; i++)
    if (c[i].done) finish(p, s, c + i);

  uint32_t running = 0;
  for (; running < s->num_beams; running++) { /* by score: draws are in another order */
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
  float possible = scores[0] / (float)ew_s_length_power(length, p->length_penalty);
  return possible > ((ew_finished *)at(s, s->done_at))[s->num_beams - 1].score;
}
