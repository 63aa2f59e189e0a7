/* Activations over vectors, for kernels that apply one to what they have just computed. */
#ifndef EDGEWISE_ACTIVATION_H
#define EDGEWISE_ACTIVATION_H
#include "kernel.h"
#include "simd.h"
#include <math.h>

EW_INLINE vf vf_sigmoid(vf x) { /* of e^-|x|, which neither overflows nor cancels */
  vf e = vf_exp_low((vf)((vi)x | vi_splat(INT32_MIN)));
  return vf_select(x < vf_splat(0), e, vf_splat(1)) / (1.0f + e);
}

/* 1 - 2 / (e^2x + 1) cancels near zero, where x times a polynomial of x^2 takes over. */
EW_INLINE vf vf_tanh(vf x) {
  vf z = x * x, large = 1.0f - 2.0f / (vf_exp(2.0f * x) + 1.0f);
  vf p = vf_splat(-5.70498872745e-3f);
  p = vf_fma(p, z, vf_splat(2.06390887954e-2f));
  p = vf_fma(p, z, vf_splat(-5.37397155531e-2f));
  p = vf_fma(p, z, vf_splat(1.33314422036e-1f));
  p = vf_fma(p, z, vf_splat(-3.33332819422e-1f));
  return vf_select(z < vf_splat(0.390625f), vf_fma(p * z, x, x), large);
}

/* erfc(z) for z >= 0, relative error about 2e-7 (Numerical Recipes, section 6.2). */
EW_INLINE vf vf_erfc(vf z) {
  static const float c[] = {0.17087277f, -0.82215223f, 1.48851587f, -1.13520398f, 0.27886807f, -0.18628806f, 0.09678418f, 0.37409196f, 1.00002368f, -1.26551223f};
  vf t = 1.0f / (1.0f + 0.5f * z), p = vf_splat(c[0]);
  for (int i = 1; i < 10; i++) p = vf_fma(p, t, vf_splat(c[i]));
  return t * vf_exp_low(p - z * z);
}

EW_INLINE vf vf_gelu(vf x) {
  vi negative = x < vf_splat(0);
  vf z = (vf)((vi)x & 0x7fffffff), tail = 0.5f * z * vf_erfc(z * 0.70710678f);
  return vf_select(negative, -tail, x - tail);
}

EW_INLINE vf vf_activate(vf x, int32_t activation) {
  switch (activation) {
  case EW_ACTIVATION_RELU: return vf_max(x, vf_splat(0));
  case EW_ACTIVATION_RELU6: return vf_min(vf_max(x, vf_splat(0)), vf_splat(6));
  case EW_ACTIVATION_GELU: return vf_gelu(x);
  case EW_ACTIVATION_GELU_TANH: return x * vf_sigmoid(1.5957691216f * vf_fma(0.044715f * x * x, x, x)); /* 0.5 (1 + tanh u) = sigmoid 2u */
  case EW_ACTIVATION_SILU: return x * vf_sigmoid(x);
  case EW_ACTIVATION_TANH: return vf_tanh(x);
  case EW_ACTIVATION_SIGMOID: return vf_sigmoid(x);
  case EW_ACTIVATION_QUICK_GELU: return x * vf_sigmoid(1.702f * x);
  default: return x;
  }
}

/* The cheap activations are bounds, which are applied in registers; the others are dear. */
typedef struct { vf low, high; bool dear; } ew_bounds;
EW_INLINE ew_bounds ew_bounds_of(int32_t activation) {
  const bool relu6 = activation == EW_ACTIVATION_RELU6, relu = relu6 || activation == EW_ACTIVATION_RELU;
  return (ew_bounds){vf_splat(relu ? 0 : -INFINITY), vf_splat(relu6 ? 6 : INFINITY), !relu && activation != EW_ACTIVATION_NONE};
}
EW_INLINE vf ew_bounded(const ew_bounds *b, vf x) { return vf_min(vf_max(x, b->low), b->high); }
#endif
