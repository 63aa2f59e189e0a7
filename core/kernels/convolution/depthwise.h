/* Windows of 3 x 3 taps over a plane of one channel, with stride 1 or 2: the common depthwise
 * convolution. */
#ifndef EDGEWISE_DEPTHWISE_H
#define EDGEWISE_DEPTHWISE_H
#include "activation.h"
#include "kernels/convolution/window.h"

/* True if the window is of this kind, its rows are at least one vector long, and the padding is at
 * most one element on either side. */
bool ew_is_depthwise(const ew_window *);
/* y = bounded(w [9] * x + start) over one plane */
void ew_depthwise_forward(const ew_window *, const real *x, const real *w, float start,
                          const ew_bounds *, real *y);
/* dw [9] += gradient with respect to the weights, for a gradient dy of y. */
void ew_depthwise_by_weights(const ew_window *, const real *x, const real *dy, real *dw);
#endif
