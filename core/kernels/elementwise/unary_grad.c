/* dx = dy f'(x), elementwise: gradients of unary functions. Some derivatives are computed from y =
 * f(x) instead of x.
 *
 * Strided operands and threads: each.h. Computed on vectors of VF lanes, with at most one
 * exponential per element. */
#include "vector_math.h"
#include "kernels/elementwise/each.h"

typedef struct {
  int32_t op;
  float alpha, beta;
} unary_grad;

/* Mish: tanh(softplus(x)) = 1 - 2 / (w + 2) with e = e^x, w = e (e + 2) */
EW_INLINE vf mish_slope(vf x) {
  vf z = vf_min(x, vf_splat(20)), e = vf_exp_low(z), w = e * (e + 2.0f), r = 1.0f / (w + 2.0f),
     none = vf_splat(0);
  return w * r + vf_select(e == none, none, z * 4.0f * e * (e + 1.0f) * r * r);
}

static void vectors(const void *job, int32_t n, const void *const *in, void *out) {
  const unary_grad *u = job;
  const m_f32 *dy = in[0], *x = in[1];
  m_f32 *dx = out;
  const float a = u->alpha, b = u->beta;
  const vf one = vf_splat(1), none = vf_splat(0);
#define CASE(NAME, expression)                          \
  case EW_SLOPE_##NAME:                                 \
    for (int32_t i = 0; i < n; i += VF) {               \
      const vf g = vf_load(dy + i), v = vf_load(x + i); \
      vf_store(dx + i, expression);                     \
    }                                                   \
    break;
  switch (u->op) {
    CASE(STEP, vf_select(v > vf_splat(b), g, a * g))
    CASE(SIGMOID, g * v * (1.0f - v))
    CASE(TANH, g * (1.0f - v * v))
    CASE(SOFTSIGN, g * (1.0f - vf_abs(v)) * (1.0f - vf_abs(v)))
    CASE(HARD_SWISH, g * vf_select(v <= vf_splat(-3), none,
                                   vf_select(v < vf_splat(3), v * (1.0f / 3) + 0.5f, one)))
    CASE(ELU, g * vf_select(v > none, one, a * vf_exp(b * v)))
    CASE(MISH, g * mish_slope(v))
  }
#undef CASE
}

static void row(const void *job, int32_t n, const void *const *in, void *out) {
  ew_whole_vectors(vectors, job, n, 2, in, out);
}

int32_t ew_k_unary_grad(ew_context *c, const ew_unary_grad_params *p, void *const *operand) {
  const unary_grad u = {p->op, p->alpha, p->beta};
  const ew_strided in[] = {{operand[EW_UNARY_GRAD_DY], p->dys, 4},
                           {operand[EW_UNARY_GRAD_X], p->xs, 4}},
                   dx = {operand[EW_UNARY_GRAD_DX], p->dxs, 4};
  ew_each(c, p->dims, 2, in, dx, row, &u);
  return EW_OK;
}
