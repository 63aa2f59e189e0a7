/* Portable SIMD: a small set of operations on vectors of VF floats.
 *
 * Vectors are GCC/Clang vector extensions: +, -, *, / and comparisons use the normal operators, and
 * compilers lower them to scalar code on targets without vectors. Functions exist only for what
 * operators cannot express. Each has a portable form and, where it pays, one per instruction set:
 * wasm simd128, wasm relaxed-simd, SSE, AVX2 + FMA (vectors twice as wide) and AVX-512 (four
 * times). Operands of a plan may have any address, so memory is accessed only through the unaligned
 * types `real`, `half`, ... of simd/vector.h (aligned(1)). */
#ifndef EDGEWISE_SIMD_H
#define EDGEWISE_SIMD_H
#include "simd/exp.h"
#include "simd/half.h"
#include "simd/integer.h"
#include "simd/vector.h"
#endif
