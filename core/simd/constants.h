/* Constants of the polynomials of exp.h and vector_math.h, and masks of half.h.
 *
 * V8 makes a vector constant of WebAssembly anew wherever it is used, in loops as well, in four
 * instructions. There they are read from a table that the compiler knows nothing of, so that loops
 * keep them in registers or on the stack: e^x takes a third of the time, and less code. */
#ifndef EDGEWISE_SIMD_CONSTANTS_H
#define EDGEWISE_SIMD_CONSTANTS_H
#include "simd/vector.h"
#include <math.h>

#define EW_CONSTANTS(_)            \
  _(EXP_ROUND, 0x1.8p23f + 126)    \
  _(EXP_MIN, -87.2f)               \
  _(EXP_MAX, 88.8f)                \
  _(EXP_LOG2_E, 1.44269504f)       \
  _(EXP_LN2_HIGH, -0x1.62e4p-1f)   \
  _(EXP_LN2_LOW, -0x1.7f7d1cp-20f) \
  _(EXP_5, 2 * 1.3814540580e-3f)   \
  _(EXP_4, 2 * 8.3687454462e-3f)   \
  _(EXP_3, 2 * 4.1668388993e-2f)   \
  _(EXP_2, 2 * 1.6666521132e-1f)   \
  _(EXP_1, 2 * 4.9999994040e-1f)   \
  _(EXP_0, 2)                      \
  _(SOFT_ROUND, 0x1.8p23f)         \
  _(SOFT_MIN, -87.0f)              \
  _(SOFT_LN2, -0x1.62e430p-1f)     \
  _(SOFT_5, 0x1.0fa7d8p-7f)        \
  _(SOFT_4, 0x1.573adp-5f)         \
  _(SOFT_3, 0x1.555a6ep-3f)        \
  _(SOFT_2, 0x1.fffdc4p-2f)        \
  _(SOFT_1, 0x1.fffff6p-1f)        \
  _(SOFT_0, 1)                     \
  _(SIGN, -0.0f)                   \
  _(HALF_OVER, 0x1p16f)            \
  _(HALF_EXPONENT, INFINITY)       \
  _(HALF_MIN, 0x1p-14f)            \
  _(HALF_STEP, 0x1p13f)            \
  _(HALF_BIAS, 0x1.f8p-133f)       \
  _(HALF_POWER, 0x1p112f)          \
  _(HALF_SPECIAL, 0x1.001fp-96f)   \
  _(HALF_INFINITY, 0x1.00ep97f)    \
  _(HALF_OTHERS, -0x1.ff1ffep-96f) \
  _(ERF_MAX, 16.0f)                \
  _(ERF_7, -4.0707869639e-5f)      \
  _(ERF_6, 3.8100022357e-4f)       \
  _(ERF_5, -1.2517453870e-3f)      \
  _(ERF_4, -2.0571774803e-4f)      \
  _(ERF_3, 1.9321717322e-2f)       \
  _(ERF_2, -1.0281441361e-1f)      \
  _(ERF_1, -6.3661646843e-1f)      \
  _(ERF_0, -1.1283792257f)

#define EACH(NAME, VALUE) EW_##NAME,
enum { EW_CONSTANTS(EACH) };
#undef EACH
#define EACH(NAME, VALUE) VALUE,
#if !defined(__wasm_simd128__)
static const float ew_constants[] = {EW_CONSTANTS(EACH)};
#elif defined(EW_DEFINE_CONSTANTS)
const float ew_constants[] = {EW_CONSTANTS(EACH)};
#else
extern const float ew_constants[];
#endif
#undef EACH

EW_INLINE vf vf_constant(int index) { return vf_load_splat(ew_constants + index); }
#endif
