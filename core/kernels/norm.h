/* What norms and their gradients share. */
#ifndef EDGEWISE_NORM_H
#define EDGEWISE_NORM_H
#include "each.h"

/* Sums run in 4 vectors of lanes: short chains, so little rounding error too. */
EW_INLINE float sum_of(const real *v, int32_t n, float mean, bool squares) {
  vf s[4] = {{0}};
  int32_t j = 0;
  for (; j + 4 * VF <= n; j += 4 * VF)
    for (int u = 0; u < 4; u++) {
      vf d = vf_load(v + j + u * VF);
      if (squares) d -= mean, s[u] = vf_fma(d, d, s[u]);
      else s[u] += d;
    }
  float rest = 0;
  EW_PLAIN for (; j < n; j++) rest += squares ? (v[j] - mean) * (v[j] - mean) : v[j];
  return vf_sum((s[0] + s[1]) + (s[2] + s[3])) + rest;
}
#endif
