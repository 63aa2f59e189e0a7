/* Elementary functions on vectors of floats, accurate to a few units in the last place. NaN is
 * preserved; infinities give the limits. Those that are formulas of others are generated:
 * gen/formulas.h. */
#ifndef EDGEWISE_VECTOR_MATH_H
#define EDGEWISE_VECTOR_MATH_H
#include "simd.h"
#include <math.h>

EW_INLINE vf vf_expm1(vf x) { return vf_expm1_of(x, false); }

/* x = 2^e m with m in [sqrt(1/2), sqrt(2)), then a polynomial in m - 1 */
EW_INLINE vf vf_log(vf x) {
  const vf none = vf_splat(0);
  vi tiny = x < vf_splat(1.17549435e-38f);
  vu u = (vu)vf_select(tiny, x * 8388608.0f, x) - 0x3f3504f3u;
  vf e = __builtin_convertvector((vi)u >> 23, vf) + (vf)(tiny & (vi)vf_splat(-23.0f)),
     m = (vf)((u & 0x007fffffu) + 0x3f3504f3u) - 1.0f, z = m * m;
  vf p = vf_splat(7.0376836292e-2f);
  p = vf_fma(p, m, vf_splat(-1.1514610310e-1f));
  p = vf_fma(p, m, vf_splat(1.1676998740e-1f));
  p = vf_fma(p, m, vf_splat(-1.2420140846e-1f));
  p = vf_fma(p, m, vf_splat(1.4249322787e-1f));
  p = vf_fma(p, m, vf_splat(-1.6668057665e-1f));
  p = vf_fma(p, m, vf_splat(2.0000714765e-1f));
  p = vf_fma(p, m, vf_splat(-2.4999993993e-1f));
  p = vf_fma(p, m, vf_splat(3.3333331174e-1f));
  vf y = vf_fma(p * m, z, vf_fma(e, vf_splat(-2.12194440e-4f), -0.5f * z));
  y = vf_fma(e, vf_splat(0.693359375f), m + y);
  vf edge = vf_select(x == none, vf_splat(-INFINITY), vf_select(x > none, x, vf_splat(NAN)));
  return vf_select((x > none) & (x < vf_splat(INFINITY)), y, edge);
}

/* log(1 + x) for finite x. Scaling by x / ((1 + x) - 1) corrects the rounding error of 1 + x. */
EW_INLINE vf vf_log1p(vf x) {
  vf w = 1.0f + x, d = w - 1.0f;
  return vf_select(d == vf_splat(0), x, vf_log(w) * (x / d));
}

/* 1 / (1 + e^-x), for x < 0 as e^x / (1 + e^x) */
EW_INLINE vf vf_sigmoid(vf x) {
  const vf e = vf_exp_soft((vf)((vi)x | (vi)vf_constant(EW_SIGN))), one = vf_constant(EW_SOFT_0);
  return vf_select((vi)x >> 31, e, one) / (one + e);
}

/* tanh(x) = t / (t + 2) with t = e^2x - 1 */
EW_INLINE vf vf_tanh(vf x) {
  vf t = vf_expm1_of(vf_min(x + x, vf_splat(40)), true);
  return t / (t + 2.0f);
}

/* The logarithm of 1 - erf(a) for 0 <= a <= EW_ERF_MAX as a p(a), with p fitted to an error of erf
 * of 4e-8. From 3.95 on erf(a) rounds to 1. */
EW_INLINE vf vf_erf_log(vf a) {
  vf p = vf_constant(EW_ERF_7);
  p = vf_fma(p, a, vf_constant(EW_ERF_6));
  p = vf_fma(p, a, vf_constant(EW_ERF_5));
  p = vf_fma(p, a, vf_constant(EW_ERF_4));
  p = vf_fma(p, a, vf_constant(EW_ERF_3));
  p = vf_fma(p, a, vf_constant(EW_ERF_2));
  p = vf_fma(p, a, vf_constant(EW_ERF_1));
  return vf_fma(p, a, vf_constant(EW_ERF_0)) * a;
}
EW_INLINE vf vf_erf(vf x) {
  const vf a = vf_min(vf_abs(x), vf_constant(EW_ERF_MAX));
  return vf_copysign(vf_expm1_of(vf_erf_log(a), true), x);
}

/* max(x, 0) - |x| (1 - erf(|x| / sqrt(2))) / 2, with h = x / 2 */
EW_INLINE vf vf_gelu(vf x) {
  const vf h = 0.5f * x, a = vf_abs(h), b = vf_min(a, vf_constant(EW_ERF_MAX));
  return h + a - b * vf_exp_soft(vf_erf_log(b * 1.41421356f));
}
/* min(max(x, low), high): if low > high, the result is high. NaN is preserved. */
EW_INLINE vf vf_clamp(vf x, float low, float high) {
  return vf_min(vf_max(x, vf_splat(low)), vf_splat(high));
}
/* NaN where one of them is */
EW_INLINE vf vf_minimum(vf a, vf b) { return vf_select(b == b, vf_min(a, b), b); }
EW_INLINE vf vf_maximum(vf a, vf b) { return vf_select(b == b, vf_max(a, b), b); }

/* On doubles, what libm has not or has with other rules for NaN: these are as those above. */
EW_INLINE double f64_min(double a, double b) { return b < a ? b : a; }
EW_INLINE double f64_max(double a, double b) { return a < b ? b : a; }
EW_INLINE double f64_minimum(double a, double b) { return b != b ? b : f64_min(a, b); }
EW_INLINE double f64_maximum(double a, double b) { return b != b ? b : f64_max(a, b); }
EW_INLINE double f64_sigmoid(double x) { return 1 / (1 + exp(-x)); }
/* The remainder with the sign of the divisor, as Python's %. */
EW_INLINE double f64_modulo(double a, double b) {
  const double r = fmod(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

#include "gen/formulas.h"
#endif
