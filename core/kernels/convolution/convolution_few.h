/* Forward convolution with few output positions per plane (convolution_few.c). */
#ifndef EDGEWISE_CONVOLUTION_FEW_H
#define EDGEWISE_CONVOLUTION_FEW_H
#include "kernel.h"

/* Computes the whole convolution and returns true, or returns false without writing anything if the
 * blocked product is faster. */
bool ew_conv_few_positions(ew_context *ctx, const ew_conv_params *p, void *const *operand);
#endif
