/* Row sums shared by the norms and their gradients. */
#ifndef EDGEWISE_NORM_H
#define EDGEWISE_NORM_H
#include "kernels/elementwise/each.h"

/* Sum of v, or of (v - mean)^2, in 8 vector accumulators: short dependency chains and small
 * rounding errors. */
EW_INLINE float sum_of(const real *v, int32_t n, float mean, bool squares) {
  enum { LANES = 8 };
  vf s[LANES] = {{0}};
  int32_t j = 0;
  for (; j + LANES * VF <= n; j += LANES * VF)
    for (int u = 0; u < LANES; u++) {
      vf d = vf_load(v + j + u * VF);
      if (squares)
        d -= mean, s[u] = vf_fma(d, d, s[u]);
      else
        s[u] += d;
    }
  float rest = 0;
  EW_PLAIN_FOR (; j < n; j++) rest += squares ? (v[j] - mean) * (v[j] - mean) : v[j];
  return vf_sum(((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]))) + rest;
}
#endif
