/* Row sums shared by the norms and their gradients. */
#ifndef EDGEWISE_NORM_H
#define EDGEWISE_NORM_H
#include "kernels/elementwise/each.h"
#include <math.h>

/* Sums of d = v - center and of d^2, in four vector accumulators each: short dependency chains and
 * small rounding errors. */
typedef struct {
  float sum, squares;
} norm_sums;
EW_INLINE norm_sums sums_of(const real *v, int32_t n, float center, bool rms) {
  enum { SIDE = 4 };
  vf s[SIDE] = {{0}}, q[SIDE] = {{0}};
  int32_t j = 0;
  for (; j + SIDE * VF <= n; j += SIDE * VF)
    for (int u = 0; u < SIDE; u++) {
      vf d = vf_load(v + j + u * VF);
      if (!rms) d -= center, s[u] += d;
      q[u] = vf_fma(d, d, q[u]);
    }
  norm_sums found = {vf_sum((s[0] + s[1]) + (s[2] + s[3])), vf_sum((q[0] + q[1]) + (q[2] + q[3]))};
  EW_PLAIN_FOR (; j < n; j++) {
    const float d = rms ? v[j] : v[j] - center;
    found.sum += d, found.squares += d * d;
  }
  return found;
}

/* The mean of a row and 1 / sqrt(variance + epsilon); rms: 0 and 1 / sqrt(mean of squares +
 * epsilon). One pass over the row finds both, with differences from its first element. Only if that
 * is more than two standard deviations from the mean, a second pass takes differences from the
 * mean, lest digits cancel. */
EW_INLINE float norm_factor(const real *v, int32_t n, bool rms, float epsilon, float *mean) {
  norm_sums s = sums_of(v, n, rms ? 0 : v[0], rms);
  const float by = 1.0f / (float)n, d = rms ? 0 : s.sum * by;
  float variance = s.squares * by - d * d;
  *mean = rms ? 0 : v[0] + d;
  if (!rms && !(d * d <= 4 * variance)) variance = sums_of(v, n, *mean, false).squares * by;
  return 1.0f / sqrtf(variance + epsilon);
}
#endif
