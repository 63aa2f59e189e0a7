/* Windows of 3 x 3 taps over a plane of one channel, at step 1 or 2: what most depthwise
 * convolutions are. */
#ifndef EDGEWISE_DEPTHWISE_H
#define EDGEWISE_DEPTHWISE_H
#include "../activation.h"
#include "window.h"

/* Whether a window is one of these, its lines are at least a vector long, and they meet at most one
 * place of pads on either side. */
bool ew_is_depthwise(const ew_window *);
/* y = bounded(w [9] * x + start) */
void ew_depthwise_forward(const ew_window *, const real *x, const real *w, float start,
                          const ew_bounds *, real *y);
/* dw [9] += gradient by the weights, for a gradient dy. */
void ew_depthwise_by_weights(const ew_window *, const real *x, const real *dy, real *dw);
#endif
