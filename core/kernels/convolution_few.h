/* Forward convolution where a plane of y has few positions (convolution_few.c). */
#ifndef EDGEWISE_CONVOLUTION_FEW_H
#define EDGEWISE_CONVOLUTION_FEW_H
#include "../kernel.h"

/* Computes the whole convolution and returns true; false where the blocked product is the better
 * way, and nothing has been written. */
bool ew_conv_few_positions(ew_context *ctx, const ew_conv_params *p, void *const *operand);
#endif
