/* The exponential function, on which those of vector_math.h are built. */
#ifndef EDGEWISE_SIMD_EXP_H
#define EDGEWISE_SIMD_EXP_H
#include "simd/constants.h"

/* e^x with an error of one unit in the last place: x = n ln 2 + r, a minimax polynomial for e^r
 * (error 3e-9), times 2^n, taken from the low bits of n + 1.5 * 2^23. The product is computed as 2
 * e^r times 2^(n-1), because 2^128 is not a float. Below -86.99 the result is 0 rather than
 * subnormal, since x86 computes on subnormals about a hundred times slower; above 88.7 it is
 * infinity; NaN is preserved. `low`: the caller guarantees x <= 88. */
typedef struct {
  vf r, p, scale;
} vf_exp_parts; /* e^x = (r p + 2) scale */
EW_INLINE vf_exp_parts vf_exp_apart(vf x, bool low) {
  const vf round = vf_constant(EW_EXP_ROUND);
  vf t = vf_max(x, vf_constant(EW_EXP_MIN));
  if (!low) t = vf_min(t, vf_constant(EW_EXP_MAX));
  vf bits = vf_fma(t, vf_constant(EW_EXP_LOG2_E), round), n = bits - round;
  vf r = vf_fma(n, vf_constant(EW_EXP_LN2_HIGH), t);
  r = vf_fma(n, vf_constant(EW_EXP_LN2_LOW), r);
  vf p = vf_constant(EW_EXP_5);
  p = vf_fma(p, r, vf_constant(EW_EXP_4));
  p = vf_fma(p, r, vf_constant(EW_EXP_3));
  p = vf_fma(p, r, vf_constant(EW_EXP_2));
  p = vf_fma(p, r, vf_constant(EW_EXP_1));
  p = vf_fma(p, r, vf_constant(EW_EXP_0));
  return (vf_exp_parts){r, p, (vf)((vi)bits << 23)};
}
EW_INLINE vf vf_exp_of(vf x, bool low) {
  vf_exp_parts e = vf_exp_apart(x, low);
  return vf_fma(e.p, e.r, vf_constant(EW_EXP_0)) * e.scale;
}
EW_INLINE vf vf_exp(vf x) { return vf_exp_of(x, false); }
EW_INLINE vf vf_exp_low(vf x) { return vf_exp_of(x, true); }
/* e^x for x <= 88 in fewer instructions, with an error of two units in the last place, three below
 * -40: fused multiply-adds subtract n ln 2 in one step. (Relaxed SIMD on a machine without them:
 * |x| / 2 units, as much as the rounding of a difference x.) Below -87 the result is 0; NaN is
 * preserved. */
EW_INLINE vf vf_exp_soft(vf x) {
  const vf round = vf_constant(EW_SOFT_ROUND), bits = vf_fma(x, vf_constant(EW_EXP_LOG2_E), round);
#if defined(__wasm_relaxed_simd__) || VF > 4
  const vf r = vf_fma(bits - round, vf_constant(EW_SOFT_LN2), x);
#else
  const vf n = bits - round;
  const vf r = n * vf_constant(EW_EXP_LN2_LOW) + (n * vf_constant(EW_EXP_LN2_HIGH) + x);
#endif
  vf p = vf_constant(EW_SOFT_5);
  p = vf_fma(p, r, vf_constant(EW_SOFT_4));
  p = vf_fma(p, r, vf_constant(EW_SOFT_3));
  p = vf_fma(p, r, vf_constant(EW_SOFT_2));
  p = vf_fma(p, r, vf_constant(EW_SOFT_1));
  p = vf_fma(p, r, vf_constant(EW_SOFT_0));
  const vf result = (vf)((vi)((vu)p + ((vu)bits << 23)) & ~(x < vf_constant(EW_SOFT_MIN)));
  return vf_select(x == x, result, x);
}
/* e^x - 1 without cancellation near 0 */
EW_INLINE vf vf_expm1_of(vf x, bool low) {
  vf_exp_parts e = vf_exp_apart(x, low);
  return vf_fma(e.p * e.r, e.scale, e.scale + e.scale - 1.0f);
}
#endif
