/* Text generation on logits: logits processors, sampling and beam search; one implementation for
 * Python and JavaScript.
 *
 * Semantics and order of operations are those of version 4.57
 * (transformers/generation/logits_process.py, and _sample and _beam_search in
 * transformers/generation/utils.py). Nothing here allocates, prints or keeps state: all data lies
 * in the caller's memory. Arithmetic is plain IEEE (own exp and log, no contraction to fused
 * multiply-add), so that equal logits and an equal seed give equal tokens natively and in wasm.
 *
 * Functions return a nonnegative result or an error below 0 (EW_S_* of sampling_fields.h). Token
 * ids are checked before they are used as indices. The functions are thread-safe as long as calls
 * on the same memory do not overlap. */
#ifndef EDGEWISE_SAMPLING_H
#define EDGEWISE_SAMPLING_H
#include "engine.h"
#include "gen/sampling_fields.h"

/* Random number generator PCG32 (XSH-RR, M. O'Neill 2014). `stream` selects one of 2^63 sequences;
 * returned sequence i uses stream i. */
typedef struct {
  uint64_t state, increment;
} ew_rng;
int32_t ew_sampling_seed(ew_rng *, uint32_t seed_low, uint32_t seed_high, uint32_t stream);

/* Size in bytes of the `work` buffer (16-byte aligned) that the functions below share. It begins
 * with float32 scores[vocab]; the rest is scratch. */
int32_t ew_sampling_work_bytes(uint32_t vocab_size);

/* Checks ranges, list bounds and token ids. The functions below check them, too; a host calls this
 * one to report an error before the first token. */
int32_t ew_sampling_check(const ew_sampling *, const int32_t *lists);

/* Sets work.scores to the logits (with num_beams > 1: to their log-softmax) after the processors
 * that do not depend on do_sample. ids: the n >= 1 tokens so far, including the prompt. A host with
 * processors of its own runs them between this function and ew_sampling_pick (or ew_sampling_warp).
 */
int32_t ew_sampling_process(const ew_sampling *, const int32_t *lists, const int32_t *ids,
                            uint32_t n, const float *logits, void *work);
/* Applies temperature, top_k, top_p, min_p, typical_p, epsilon_cutoff and eta_cutoff (if
 * do_sample), then renormalize_logits, to work.scores. */
int32_t ew_sampling_warp(const ew_sampling *, void *work);
/* Warps the scores, then returns a token: drawn at random if do_sample, otherwise the one of
 * highest score, the lowest id among equals. */
int32_t ew_sampling_pick(const ew_sampling *, void *work, ew_rng *);
/* ew_sampling_process followed by ew_sampling_pick. */
int32_t ew_sampling_next(const ew_sampling *, const int32_t *lists, const int32_t *ids, uint32_t n,
                         const float *logits, void *work, ew_rng *);

/* Sets *x to the logarithm of a token's probability: log_softmax(scores * *x)[token]. scores:
 * float32[vocab_size], such as those in `work`; *x: a factor above 0, such as a temperature. */
int32_t ew_sampling_log_probability(const float *scores, uint32_t vocab_size, uint32_t token,
                                    float *x);

/* Beam search over one prompt. One step: for each running beam b, process its logits, warp them and
 * call ew_beams_offer(b); then ew_beams_rank; then the host may set `done` of candidates that meet
 * its own stopping criteria; then ew_beams_advance. The rows of the state hold the token ids of
 * each beam. */
int32_t ew_beams_bytes(const ew_sampling *);
int32_t ew_beams_start(const ew_sampling *, ew_beams *, const int32_t *ids, uint32_t n);
/* Adds the continuations of running beam `beam` to the candidates: those of highest accumulated
 * score or, with do_sample, a draw without replacement (the largest values of score + Gumbel noise,
 * which has the same distribution as drawing one after the other). */
int32_t ew_beams_offer(const ew_sampling *, ew_beams *, uint32_t beam, const void *work, ew_rng *);
/* Sorts the candidates, marks those that end by eos or max_length, and returns their number. */
int32_t ew_beams_rank(const ew_sampling *, const int32_t *lists, ew_beams *);
/* Moves on to the selected beams. Returns 1 to continue, 0 if the search is finished. */
int32_t ew_beams_advance(const ew_sampling *, ew_beams *);
#endif
