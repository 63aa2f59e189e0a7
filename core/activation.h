/* Activation functions on vectors, for kernels that apply one to results still in registers. */
#ifndef EDGEWISE_ACTIVATION_H
#define EDGEWISE_ACTIVATION_H
#include "kernel.h"
#include "vector_math.h"

EW_INLINE vf vf_activate(vf v, int32_t activation) {
#define CASE(NAME, expression) \
case EW_ACTIVATION_##NAME: return expression;
  switch (activation) { EW_ACTIVATIONS(CASE) }
#undef CASE
  return v;
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
