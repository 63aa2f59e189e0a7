/* Text generation on logits: processors, sampling, beam search. One implementation for Python and
 * JavaScript.
 *
 * The semantics and the order are those of transformers 4.57 (generation/logits_process.py, and
 * _sample and _beam_search in generation/utils.py). Nothing here allocates, prints or keeps state:
 * everything lies in the caller's memory. All arithmetic is plain IEEE (own exp and log, no
 * contraction to fused multiply-add), so that a seed gives the same tokens natively and in wasm as
 * far as the logits are the same.
 *
 * Results below 0 are errors (EW_S_* of sampling_fields.h); token ids are checked before they are
 * used as indices. / */
#ifndef EDGEWISE_SAMPLING_H
#define EDGEWISE_SAMPLING_H
#include "engine.h"
#include "gen/sampling_fields.h"

/* PCG32 (XSH-RR, M. O'Neill 2014). `stream` picks one of 2^63 sequences, so that returned sequence
 * i has its own. */
typedef struct {
  uint64_t state, increment;
} ew_rng;
int32_t ew_sampling_seed(ew_rng *, uint32_t seed_low, uint32_t seed_high, uint32_t stream);

/* Bytes of `work`, 16-byte aligned, which the functions below share: float32 scores[vocab] first,
 * then scratch. */
int32_t ew_sampling_work_bytes(uint32_t vocab_size);

/* Checks ranges, list bounds and token ids. The functions below do it, too; a host calls it for an
 * error before the first token. */
int32_t ew_sampling_check(const ew_sampling *, const int32_t *lists);

/* work.scores = logits after the processors that do not depend on do_sample; with num_beams > 1, of
 * their log-softmax. ids: the n >= 1 tokens so far, prompt included. A host with processors of its
 * own runs them between this and pick (or warp). */
int32_t ew_sampling_process(const ew_sampling *, const int32_t *lists, const int32_t *ids,
                            uint32_t n, const float *logits, void *work);
/* work.scores after temperature, top_k, top_p, min_p, typical_p, epsilon_cutoff, eta_cutoff (if
 * do_sample), renormalize_logits. */
int32_t ew_sampling_warp(const ew_sampling *, void *work);
/* Warps, then chooses: the token drawn (do_sample) or the best one, the lowest id among equals. */
int32_t ew_sampling_pick(const ew_sampling *, void *work, ew_rng *);
/* process and pick in one call. */
int32_t ew_sampling_next(const ew_sampling *, const int32_t *lists, const int32_t *ids, uint32_t n,
                         const float *logits, void *work, ew_rng *);

/* Beam search over one prompt. A step: for each running beam b, process its logits, warp, offer(b);
 * then rank; then the host may set `done` of candidates that meet criteria of its own; then
 * advance. The rows in the state hold each beam's ids. */
int32_t ew_beams_bytes(const ew_sampling *);
int32_t ew_beams_start(const ew_sampling *, ew_beams *, const int32_t *ids, uint32_t n);
/* Adds the continuations of running beam `beam`: those of highest accumulated score, or with
 * do_sample a draw without replacement (the largest of score + Gumbel noise, which has the
 * distribution of drawing one after the other). */
int32_t ew_beams_offer(const ew_sampling *, ew_beams *, uint32_t beam, const void *work, ew_rng *);
/* the number of candidates; marks eos and max_length */
int32_t ew_beams_rank(const ew_sampling *, const int32_t *lists, ew_beams *);
/* 1: go on; 0: over */
int32_t ew_beams_advance(const ew_sampling *, ew_beams *);
#endif
