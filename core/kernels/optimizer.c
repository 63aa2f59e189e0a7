/* One step of an optimizer over a parameter and its states, in place.
 *
 * adam     g' = g + l2 p; m += (1-b1) (g' - m); v += (1-b2) (g'^2 - v); p = (before p - rate m / (root sqrt(v) + epsilon)) after
 *          Decoupled decay before (torch) or after (ort) the update, decay in the gradient (adam), and where the bias is corrected are all in the factors.
 * sgd      g' = g + l2 p; s = keep s + take g'; p -= lr (straight g' + along s)
 * adagrad  g' = g + l2 p; s += g'^2; p -= lr g' / (sqrt(s) + epsilon)
 * rmsprop  g' = g + l2 p; s += (1-alpha) (g'^2 - s); centered: t += (1-alpha) (g' - t); d = g' / (sqrt(s - t^2) + epsilon); momentum: u = momentum u + d, d = u; p -= lr d
 * lion     p = before p - lr sign(s + (1-b1) (g - s)); s += (1-b2) (g - s)
 * where g is the gradient times `scale`. */
#include "../kernel.h"
#include "../simd.h"
#include <math.h>
#include <string.h>

typedef struct {
  const ew_optimizer_params *p;
  real *x, *s[3];
  const real *g;
  int32_t length; /* of a task */
  float lr, scale, rate, root, before, after, l2, keep, take, straight, along;
} step;

/* 1 - (1 - rest)^n: beta comes as its distance from 1, which a float holds exactly enough. */
static double correction(float rest, int64_t n) {
  double beta = 1.0 - (double)rest, power = 1;
  for (uint64_t k = n < 0 ? 0 : (uint64_t)n; k; k >>= 1, beta *= beta)
    if (k & 1) power *= beta;
  return 1 - power;
}

/* n is a multiple of VF. `rule` is a constant wherever this is called. */
EW_INLINE void update(const step *w, int32_t rule, real *x, const real *g, real *s, real *t, real *u, int64_t n) {
  const ew_optimizer_params *p = w->p;
  const float a = p->rest1, b = p->rest2;
  for (int64_t i = 0; i < n; i += VF) {
    vf v = vf_load(x + i), d = vf_load(g + i) * w->scale;
    if (rule != EW_OPTIMIZER_RULE_LION) d += v * w->l2;
    if (rule == EW_OPTIMIZER_RULE_ADAM) {
      vf m = vf_load(s + i), q = vf_load(t + i);
      m = vf_fma(d - m, vf_splat(a), m), q = vf_fma(vf_fma(d, d, -q), vf_splat(b), q);
      vf_store(s + i, m), vf_store(t + i, q);
      v = (v * w->before - m * w->rate / vf_fma(vf_sqrt(q), vf_splat(w->root), vf_splat(p->epsilon))) * w->after;
    } else if (rule == EW_OPTIMIZER_RULE_SGD) {
      if (s) {
        vf m = vf_load(s + i) * w->keep + d * w->take;
        vf_store(s + i, m), d = d * w->straight + m * w->along;
      }
      v -= d * w->lr;
    } else if (rule == EW_OPTIMIZER_RULE_ADAGRAD) {
      vf q = vf_load(s + i) + d * d;
      vf_store(s + i, q), v -= d * w->lr / (vf_sqrt(q) + p->epsilon);
    } else if (rule == EW_OPTIMIZER_RULE_RMSPROP) {
      vf q = vf_load(s + i), r;
      q = vf_fma(vf_fma(d, d, -q), vf_splat(a), q), r = q;
      vf_store(s + i, q);
      if (t) {
        vf m = vf_load(t + i);
        m = vf_fma(d - m, vf_splat(a), m), r -= m * m;
        vf_store(t + i, m);
      }
      d /= vf_sqrt(vf_max(r, vf_splat(0))) + p->epsilon;
      if (u) d += vf_load(u + i) * p->momentum, vf_store(u + i, d);
      v -= d * w->lr;
    } else {
      vf m = vf_load(s + i), c = vf_fma(d - m, vf_splat(a), m), lr = vf_splat(w->lr), none = vf_splat(0);
      vf_store(s + i, vf_fma(d - m, vf_splat(b), m));
      v = v * w->before - vf_select(c > none, lr, vf_select(c < none, -lr, c)); /* the sign of 0 is 0, of NaN NaN */
    }
    vf_store(x + i, v);
  }
}

static __attribute__((noinline)) void update_by_rule(const step *w, real *x, const real *g, real *s, real *t, real *u, int64_t n) {
  switch (w->p->rule) {
  case EW_OPTIMIZER_RULE_ADAM: update(w, EW_OPTIMIZER_RULE_ADAM, x, g, s, t, NULL, n); break;
  case EW_OPTIMIZER_RULE_SGD: update(w, EW_OPTIMIZER_RULE_SGD, x, g, s, NULL, NULL, n); break;
  case EW_OPTIMIZER_RULE_ADAGRAD: update(w, EW_OPTIMIZER_RULE_ADAGRAD, x, g, s, NULL, NULL, n); break;
  case EW_OPTIMIZER_RULE_RMSPROP: update(w, EW_OPTIMIZER_RULE_RMSPROP, x, g, s, t, u, n); break;
  default: update(w, EW_OPTIMIZER_RULE_LION, x, g, s, NULL, NULL, n);
  }
}

static void optimizer_task(void *arg, int32_t index, int32_t thread) {
  const step *w = arg;
  (void)thread;
  int64_t from = (int64_t)index * w->length, n = w->p->n - from < w->length ? w->p->n - from : w->length, whole = n / VF * VF;
  real *s[3];
  for (int k = 0; k < 3; k++) s[k] = w->s[k] ? w->s[k] + from : NULL;
  update_by_rule(w, w->x + from, w->g + from, s[0], s[1], s[2], whole);
  if (whole == n) return;
  float rest[5][VF] = {{0}}; /* the last, incomplete vector */
  size_t bytes = (size_t)(n - whole) * 4;
  memcpy(rest[0], w->x + from + whole, bytes), memcpy(rest[1], w->g + from + whole, bytes);
  for (int k = 0; k < 3; k++)
    if (s[k]) memcpy(rest[2 + k], s[k] + whole, bytes);
  update_by_rule(w, rest[0], rest[1], s[0] ? rest[2] : NULL, s[1] ? rest[3] : NULL, s[2] ? rest[4] : NULL, VF);
  memcpy(w->x + from + whole, rest[0], bytes);
  for (int k = 0; k < 3; k++)
    if (s[k]) memcpy(s[k] + whole, rest[2 + k], bytes);
}

int32_t ew_k_optimizer(ew_context *ctx, const ew_optimizer_params *p, void *const *operand) {
  const double lr = *(const real *)operand[EW_OPTIMIZER_LEARNING_RATE];
  const int64_t count = *(const long_m *)operand[EW_OPTIMIZER_STEP];
  const real *scale = operand[EW_OPTIMIZER_SCALE];
  const bool adam = p->rule == EW_OPTIMIZER_RULE_ADAM, ort = adam && p->form == EW_OPTIMIZER_FORM_ORT, l2 = p->form == EW_OPTIMIZER_FORM_L2;
  const double c1 = adam ? correction(p->rest1, count) : 1, c2 = adam ? sqrt(correction(p->rest2, count)) : 1;
  const float decayed = (float)(1 - lr * (double)p->weight_decay);
  step w = {p, operand[EW_OPTIMIZER_NEW_X], {operand[EW_OPTIMIZER_NEW_S], operand[EW_OPTIMIZER_NEW_T], operand[EW_OPTIMIZER_NEW_U]}, operand[EW_OPTIMIZER_G], 32768,
            .lr = (float)lr, .scale = scale ? *scale : 1, .rate = (float)(ort ? lr * c2 / c1 : lr / c1), .root = ort ? 1 : (float)(1 / c2),
            .before = l2 || ort ? 1 : decayed, .after = ort ? decayed : 1, .l2 = l2 ? p->weight_decay : 0,
            .keep = count == 1 ? 0 : p->momentum, .take = count == 1 ? 1 : 1 - p->dampening, .straight = p->nesterov ? 1 : 0, .along = p->nesterov ? p->momentum : 1};
  ew_parallel(ctx, (p->n - 1) / w.length + 1, optimizer_task, &w);
  return EW_OK;
}
