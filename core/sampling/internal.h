/* Shared by the files of this folder: limits, the work buffer, and numeric helpers. */
#ifndef EDGEWISE_SAMPLING_INTERNAL_H
#define EDGEWISE_SAMPLING_INTERNAL_H
#include "sampling/sampling.h"
#include <float.h>
#include <string.h>

/* Equal results in all builds need separately rounded products and sums. */
#if defined(__clang__)
#  pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
#  pragma GCC optimize("fp-contract=off")
#endif

#define NEG_INF (-__builtin_inff())
#define FINITE_OR_NEG_INF(x) ((x) < __builtin_inff()) /* false for NaN and +inf */
#define MAX_VOCAB (1u << 26)
#define MAX_BEAMS 1024u
#define BINS 2048u /* histogram bins of the radix select in warp.c */

static inline int32_t bad_field(int field) { return EW_S_BAD_FIELD - field; }
static inline uint32_t min_u32(uint32_t a, uint32_t b) { return a < b ? a : b; }
static inline uint32_t max_u32(uint32_t a, uint32_t b) { return a > b ? a : b; }

/* The work buffer. */
typedef struct {
  float *score, *weight, *key; /* arrays of `vocab` elements */
  int32_t *token;              /* the n candidates of the warpers, ascending */
  double *mass;                /* BINS sums of weights */
  uint32_t vocab, n;
} ew_candidates;

static inline ew_candidates ew_s_open(const void *work, uint32_t vocab) {
  float *f = (float *)work;
  return (ew_candidates){f,
                         f + vocab,
                         f + 2 * (size_t)vocab,
                         (int32_t *)(f + 3 * (size_t)vocab),
                         (double *)(f + 4 * (size_t)vocab),
                         vocab,
                         0};
}

/* math.c: the same bits on every machine */
double ew_s_exp(double x);
double ew_s_ln(double x); /* x > 0 and normal */
/* length^exponent, 1 for length 0 */
double ew_s_length_power(uint32_t length, float exponent);
/* Replaces the scores by their log-softmax. */
void ew_s_log_softmax(float *score, uint32_t n);
/* A random number in (0, 1) with 53 bits. */
double ew_s_uniform(ew_rng *);

/* check.c */
int32_t ew_s_check_ids(const int32_t *ids, uint32_t n, uint32_t vocab);
int ew_s_is_in(const int32_t *ids, uint32_t n, int32_t id);
#endif
