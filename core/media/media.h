/* Resampling of pictures and sound: sizes and rates are known at run time only, so no plan can have
 * them. One implementation for Python and JavaScript.
 *
 * Both work on streams: the host passes rows or samples piece by piece, so engine memory holds the
 * piece, the filter, a few rows or milliseconds, and the result. Nothing here allocates or keeps
 * state outside of the caller's `work` memory. The results are the same bits in all builds: no
 * fused multiply-add, no sine of a C library, sums in a fixed order.
 *
 * Functions return a nonnegative result, or -EW_E_ARGUMENT for sizes, rates or calls that are not
 * allowed, or -EW_E_MEMORY for sizes that would need more than 2 GiB. They are thread-safe as long
 * as calls on the same memory do not overlap. `work` is 16-byte aligned. */
#ifndef EDGEWISE_MEDIA_H
#define EDGEWISE_MEDIA_H
#include "engine.h"
#include "gen/resampling.h"

#if defined(__clang__)
#  pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
#  pragma GCC optimize("fp-contract=off")
#endif

/* A resize of height x width pixels of `channels` interleaved values each. box: the part of the
 * source that becomes the result, in pixels: left, top, right, bottom. */
typedef struct {
  uint32_t height, width, channels, out_height, out_width;
  uint32_t filter;   /* enum ew_resize_filter */
  uint32_t is_float; /* values are float32 instead of uint8 */
  float box[4];
} ew_resize;

/* Size of `work` in bytes. */
int32_t ew_resize_bytes(const ew_resize *);
/* Begins a resize: computes the filters. Returns 0. */
int32_t ew_resize_open(const ew_resize *, void *work);
/* Takes the next n rows of the source, in order from the top. Writes to `out`, which has the whole
 * result, the rows that are complete, and returns their number so far. */
int32_t ew_resize_feed(void *work, const void *rows, uint32_t n, void *out);

/* Size of `work` in bytes, for sampling rates in Hz. */
int32_t ew_resample_bytes(uint32_t rate, uint32_t to_rate);
/* Begins a stream. Returns 0. */
int32_t ew_resample_open(void *work, uint32_t rate, uint32_t to_rate);
/* Largest number of samples that a call with n samples gives. */
int32_t ew_resample_most(const void *work, uint32_t n);
/* Takes the next n samples and returns the number of samples written to `out`, at most `room`. `in`
 * NULL ends the stream: the samples that still wait for later ones get zeros. In all a stream of N
 * samples gives ceil(N * to_rate / rate). */
int32_t ew_resample_feed(void *work, const float *in, uint32_t n, float *out, uint32_t room);

/* sin(pi x) for |x| < 2^31, with an error below 3e-16. */
double ew_sin_pi(double x);
#endif
