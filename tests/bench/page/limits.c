/* What this machine can do at most, in the browser: multiply-adds from registers, and reading memory. Built in both flavours. */
#include "../../../core/simd.h"
#include <stdlib.h>

enum { CHAINS = 12 };  /* independent sums, to hide the latency of a multiplication and an addition as far as registers allow */
static volatile float sink;

/* Floating-point operations that were done. */
__attribute__((export_name("multiply_adds"))) double multiply_adds(int32_t rounds) {
  vf x[CHAINS], a = vf_splat(0.999f), b = vf_splat(0.001f);
  for (int i = 0; i < CHAINS; i++) x[i] = vf_splat((float)i);
  for (int32_t j = 0; j < rounds; j++)
    for (int i = 0; i < CHAINS; i++) x[i] = vf_fma(a, x[i], b);
  vf sum = x[0];
  for (int i = 1; i < CHAINS; i++) sum += x[i];
  sink = vf_sum(sum);
  return 2.0 * VF * CHAINS * rounds;
}

static float *area;
static const int64_t SIZE = 64 << 20;

/* Bytes that were read: far more than caches hold. 0: there is no memory. */
__attribute__((export_name("read_memory"))) double read_memory(void) {
  if (!area) {
    area = malloc((size_t)SIZE);
    if (!area) return 0;
    for (int64_t i = 0; i < SIZE / 4; i++) area[i] = (float)(i & 1023);
  }
  vf sum[4] = {vf_splat(0), vf_splat(0), vf_splat(0), vf_splat(0)};
  for (int64_t i = 0; i < SIZE / 4; i += 4 * VF)
    for (int j = 0; j < 4; j++) sum[j] += vf_load(area + i + j * VF);
  sink = vf_sum(sum[0] + sum[1] + sum[2] + sum[3]);
  return (double)SIZE;
}
