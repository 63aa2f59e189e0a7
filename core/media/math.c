/* The sine of filters, with the same bits on every machine. */
#include "media/media.h"

double ew_sin_pi(double x) {
  const double nearest = (double)(int32_t)(x < 0 ? x - 0.5 : x + 0.5);
  const double t = (x - nearest) * 3.141592653589793, s = t * t;
  double y = 0; /* the Taylor series: |t| <= pi / 2, so 11 terms suffice */
  for (int k = 21; k >= 3; k -= 2) y = -(1 + y) * s / (double)(k * (k - 1));
  y = t + t * y;
  return (int32_t)nearest & 1 ? -y : y;
}
