/* dx = dy f'(x), element by element; some slopes are told from y = f(x). One exponential each at most. */
#include "../scalar_math.h"
#include "each.h"

typedef struct { int32_t op; float alpha, beta; } unary_grad;

/* x (1 - 2 / (w + 2)) with e = e^x, w = e (e + 2) */
static inline float mish_slope(float x) {
  float z = x > 20.0f ? 20.0f : x, e = ew_exp(z), w = e * (e + 2.0f), r = 1.0f / (w + 2.0f);
  return w * r + (e == 0 ? 0 : z * 4.0f * e * (e + 1.0f) * r * r);
}

static void row(const void *job, int32_t n, const void *const *in, void *out) {
  const unary_grad *u = job;
  const m_f32 *dy = in[0], *x = in[1];
  m_f32 *dx = out;
  const float a = u->alpha, b = u->beta;
#define CASE(NAME, expression)               \
  case EW_SLOPE_##NAME:                      \
    EW_EACH for (int32_t i = 0; i < n; i++) { \
      const float g = dy[i], v = x[i];       \
      dx[i] = expression;                    \
    }                                        \
    break;
  switch (u->op) {
    CASE(STEP, v > b ? g : a * g)
    CASE(SIGMOID, g * v * (1.0f - v))
    CASE(TANH, g * (1.0f - v * v))
    CASE(SOFTSIGN, g * (1.0f - fabsf(v)) * (1.0f - fabsf(v)))
    CASE(HARD_SWISH, g * (v <= -3.0f ? 0 : v < 3.0f ? v * (1.0f / 3) + 0.5f : 1.0f))
    CASE(ELU, g * (v > 0 ? 1.0f : a * ew_exp(b * v)))
    CASE(MISH, g * mish_slope(v))
  }
#undef CASE
}

int32_t ew_k_unary_grad(ew_context *c, const ew_unary_grad_params *p, void *const *operand) {
  const unary_grad u = {p->op, p->alpha, p->beta};
  const ew_strided in[] = {{operand[EW_UNARY_GRAD_DY], p->dys, 4}, {operand[EW_UNARY_GRAD_X], p->xs, 4}}, dx = {operand[EW_UNARY_GRAD_DX], p->dxs, 4};
  ew_each(c, p->dims, 2, in, dx, row, &u);
  return EW_OK;
}
