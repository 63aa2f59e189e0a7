/* Activation functions on vectors, for kernels that apply one to results still in registers. */
#ifndef EDGEWISE_ACTIVATION_H
#define EDGEWISE_ACTIVATION_H
#include "kernel.h"
#include "vector_math.h"

EW_INLINE vf vf_activate(vf x, int32_t activation) {
  switch (activation) {
  case EW_ACTIVATION_RELU: return vf_max(x, vf_splat(0));
  case EW_ACTIVATION_RELU6: return vf_min(vf_max(x, vf_splat(0)), vf_splat(6));
  case EW_ACTIVATION_GELU: return vf_gelu(x);
  case EW_ACTIVATION_GELU_TANH: return vf_gelu_tanh(x);
  case EW_ACTIVATION_SILU: return vf_silu(x);
  case EW_ACTIVATION_TANH: return vf_tanh(x);
  case EW_ACTIVATION_SIGMOID: return vf_sigmoid(x);
  case EW_ACTIVATION_QUICK_GELU: return x * vf_sigmoid(1.702f * x);
  default: return x;
  }
}

/* Cheap activations (none, ReLU, ReLU6) as lower and upper bounds, which are applied in registers.
 * `dear` is true for all others, which need a second pass. */
typedef struct {
  vf low, high;
  bool dear;
} ew_bounds;
EW_INLINE ew_bounds ew_bounds_of(int32_t activation) {
  const bool relu6 = activation == EW_ACTIVATION_RELU6,
             relu = relu6 || activation == EW_ACTIVATION_RELU;
  return (ew_bounds){vf_splat(relu ? 0 : -INFINITY), vf_splat(relu6 ? 6 : INFINITY),
                     !relu && activation != EW_ACTIVATION_NONE};
}
EW_INLINE vf ew_bounded(const ew_bounds *b, vf x) { return vf_min(vf_max(x, b->low), b->high); }
#endif
