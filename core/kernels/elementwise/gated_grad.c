/* Gradients of y = f(a) b, and optionally y itself; without b, of f(a). Fuses what would be three
 * steps and needs one exponential per element (GELU: two).
 *
 *     da = dy b f'(a)
 *     db = dy f(a)
 *
 * f is x s with s = sigmoid(w(x)), so f' = s + x s (1 - s) w'(x). For GELU s is the normal
 * distribution function and f' = s + x times its density. A task is a range of LENGTH elements,
 * computed on vectors of VF lanes. */
#include "activation.h"
#include <string.h>

enum { LENGTH = 8192 }; /* elements per task */

typedef struct {
  const real *dy, *a, *b;
  real *da, *db, *y;
  int32_t n, activation;
  float alpha;
} gated;

EW_INLINE void gate(vf x, int32_t activation, float alpha, vf *f, vf *slope) {
  const vf q = x * x;
  vf s, along; /* x times the derivative of s */
  if (activation == EW_ACTIVATION_GELU) {
    const vf bell = vf_exp_soft(q * -0.5f);
    s = 0.5f + 0.5f * vf_erf(x * 0.70710678f);
    along = vf_select(bell == vf_splat(0), bell, 0.39894228f * x * bell);
  } else {
    const bool tanh = activation == EW_ACTIVATION_GELU_TANH;
    const vf w = tanh ? 1.59576912f * x * vf_fma(q, vf_splat(0.044715f), vf_splat(1)) : x * alpha;
    /* sigmoid(|w|) and sigmoid(-|w|): 1 - s would cancel where s is near 1 */
    const vf e = vf_exp_soft(-vf_abs(w)), high = 1.0f / (1.0f + e), low = e * high;
    s = vf_select(w < vf_splat(0), low, high);
    along = x * (high * low);
    along = tanh ? vf_select(along == vf_splat(0), along,
                             along * vf_fma(q, vf_splat(0.21406445f), vf_splat(1.59576912f)))
                 : along * alpha;
  }
  *f = x * s, *slope = s + along;
}

/* n is a multiple of VF. */
EW_INLINE void gates(const gated *w, int32_t activation, int32_t n) {
  const gated g = *w; /* a local copy, so that the compiler knows that no store changes it */
  for (int32_t i = 0; i < n; i += VF) {
    vf f, slope, dy = vf_load(g.dy + i), b = g.b ? vf_load(g.b + i) : vf_splat(1);
    gate(vf_load(g.a + i), activation, g.alpha, &f, &slope);
    vf_store(g.da + i, dy * b * slope);
    if (g.db) vf_store(g.db + i, dy * f);
    if (g.y) vf_store(g.y + i, f * b);
  }
}

static __attribute__((noinline)) void gates_of(const gated *g, int32_t n) {
  switch (EW_CHOICE(ACTIVATION, g->activation)) {
  case EW_ACTIVATION_GELU: gates(g, EW_ACTIVATION_GELU, n); break;
  case EW_ACTIVATION_GELU_TANH: gates(g, EW_ACTIVATION_GELU_TANH, n); break;
  case EW_ACTIVATION_QUICK_GELU: gates(g, EW_ACTIVATION_QUICK_GELU, n); break;
  }
}

static void gated_grad_task(void *arg, int32_t index, int32_t thread) {
  gated g = *(const gated *)arg;
  (void)thread;
  const int32_t at = index * LENGTH, n = g.n - at < LENGTH ? g.n - at : LENGTH, whole = n / VF * VF;
  const real *in[3] = {g.dy, g.a, g.b};
  real *out[3] = {g.da, g.db, g.y};
  float rest[6][VF] = {{0}}; /* the incomplete last vector */
  const size_t bytes = (size_t)(n - whole) * 4;
  for (int k = 0; k < 3; k++) {
    if (in[k]) in[k] += at, memcpy(rest[k], in[k] + whole, bytes);
    if (out[k]) out[k] += at;
  }
  g.dy = in[0], g.a = in[1], g.b = in[2], g.da = out[0], g.db = out[1], g.y = out[2];
  gates_of(&g, whole);
  if (whole == n) return;
  g.dy = rest[0], g.a = rest[1], g.b = in[2] ? rest[2] : NULL, g.da = rest[3], g.db = rest[4],
  g.y = rest[5];
  gates_of(&g, VF);
  for (int k = 0; k < 3; k++)
    if (out[k]) memcpy(out[k] + whole, rest[3 + k], bytes);
}

int32_t ew_k_gated_grad(ew_context *ctx, const ew_gated_grad_params *p, void *const *operand) {
  gated g = {operand[EW_GATED_GRAD_DY],
             operand[EW_GATED_GRAD_A],
             operand[EW_GATED_GRAD_B],
             operand[EW_GATED_GRAD_DA],
             operand[EW_GATED_GRAD_DB],
             operand[EW_GATED_GRAD_Y],
             p->n,
             p->activation,
             p->alpha};
  ew_parallel(ctx, (p->n - 1) / LENGTH + 1, gated_grad_task, &g);
  return EW_OK;
}
