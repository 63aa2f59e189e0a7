/* dx = dy f'(x), elementwise: gradients of unary functions, as gen/formulas.h states them. Some
 * derivatives are computed from y = f(x) instead of x.
 *
 * Strided operands and threads: each.h. Computed on vectors of VF lanes, with at most one
 * exponential per element. */
#include "vector_math.h"
#include "kernels/elementwise/each.h"

typedef struct {
  int32_t op;
  float alpha, beta;
} unary_grad;

static void vectors(const void *job, int32_t n, const void *const *in, void *out) {
  const unary_grad *u = job;
  const m_f32 *dy = in[0], *x = in[1];
  m_f32 *dx = out;
  const float alpha = u->alpha, beta = u->beta;
#define CASE(NAME, expression)                          \
  case EW_SLOPE_##NAME:                                 \
    for (int32_t i = 0; i < n; i += VF) {               \
      const vf g = vf_load(dy + i), v = vf_load(x + i); \
      vf_store(dx + i, expression);                     \
    }                                                   \
    break;
  switch (u->op) { EW_SLOPES(CASE) }
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
