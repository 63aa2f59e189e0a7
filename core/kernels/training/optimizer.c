/* One optimizer step over a parameter and its states, in place; below, Adam with 8-bit states.
 *
 *     adam     g' = g + l2 p;  m += (1-b1) (g' - m);  v += (1-b2) (g'^2 - v)
 *              p = (before p - rate m / (root sqrt(v) + epsilon)) after
 *     sgd      g' = g + l2 p;  s = keep s + take g';  p -= lr (straight g' + along s)
 *     adagrad  g' = g + l2 p;  s += g'^2;  p -= lr g' / (sqrt(s) + epsilon)
 *     rmsprop  g' = g + l2 p;  s += (1-alpha) (g'^2 - s);  centered: t += (1-alpha) (g' - t)
 *              d = g' / (sqrt(s - t^2) + epsilon);  momentum: u = momentum u + d, d = u;  p -= lr d
 *     lion     p = before p - lr sign(s + (1-b1) (g - s));  s += (1-b2) (g - s)
 *
 * where g is the gradient times `scale`. For Adam the factors before, after, rate and root express
 * decoupled weight decay before (PyTorch) or after (ONNX Runtime) the update, decay in the
 * gradient, and where the bias correction is applied.
 *
 * A task is a range of elements, computed on vectors of VF lanes. */
#include "kernel.h"
#include "simd.h"
#include <math.h>
#include <string.h>

typedef struct {
  const ew_optimizer_params *p;
  real *x, *s[3];
  const real *g;
  int32_t length; /* elements per task */
  float lr, scale, rate, root, before, after, l2, keep, take, straight, along;
} step;

/* 1 - beta^n. beta is passed as rest = 1 - beta, which a float represents precisely enough. */
static double correction(float rest, int64_t n) {
  double beta = 1.0 - (double)rest, power = 1;
  for (uint64_t k = n < 0 ? 0 : (uint64_t)n; k; k >>= 1, beta *= beta)
    if (k & 1) power *= beta;
  return 1 - power;
}

/* n is a multiple of VF. `rule` is a compile-time constant at every call. */
EW_INLINE void update(const step *all, int32_t rule, real *x, const real *g, real *s, real *t,
                      real *u, int64_t n) {
  /* a local copy, so that the compiler knows that no store changes it */
  const step k = *all, *w = &k;
  const float a = k.p->rest1, b = k.p->rest2, epsilon = k.p->epsilon, momentum = k.p->momentum;
  for (int64_t i = 0; i < n; i += VF) {
    vf v = vf_load(x + i), d = vf_load(g + i) * w->scale;
    if (rule != EW_OPTIMIZER_RULE_LION) d += v * w->l2;
    if (rule == EW_OPTIMIZER_RULE_ADAM) {
      vf m = vf_load(s + i), q = vf_load(t + i);
      m = vf_fma(d - m, vf_splat(a), m), q = vf_fma(vf_fma(d, d, -q), vf_splat(b), q);
      vf_store(s + i, m), vf_store(t + i, q);
      v = (v * w->before - m * w->rate / vf_fma(vf_sqrt(q), vf_splat(w->root), vf_splat(epsilon))) *
          w->after;
    } else if (rule == EW_OPTIMIZER_RULE_SGD) {
      if (s) {
        vf m = vf_load(s + i) * w->keep + d * w->take;
        vf_store(s + i, m), d = d * w->straight + m * w->along;
      }
      v -= d * w->lr;
    } else if (rule == EW_OPTIMIZER_RULE_ADAGRAD) {
      vf q = vf_load(s + i) + d * d;
      vf_store(s + i, q), v -= d * w->lr / (vf_sqrt(q) + epsilon);
    } else if (rule == EW_OPTIMIZER_RULE_RMSPROP) {
      vf q = vf_load(s + i), r;
      q = vf_fma(vf_fma(d, d, -q), vf_splat(a), q), r = q;
      vf_store(s + i, q);
      if (t) {
        vf m = vf_load(t + i);
        m = vf_fma(d - m, vf_splat(a), m), r -= m * m;
        vf_store(t + i, m);
      }
      d /= vf_sqrt(vf_max(r, vf_splat(0))) + epsilon;
      if (u) d += vf_load(u + i) * momentum, vf_store(u + i, d);
      v -= d * w->lr;
    } else {
      vf m = vf_load(s + i), c = vf_fma(d - m, vf_splat(a), m), lr = vf_splat(w->lr),
         none = vf_splat(0);
      vf_store(s + i, vf_fma(d - m, vf_splat(b), m));
      /* sign(0) is 0, sign(NaN) is NaN */
      v = v * w->before - vf_select(c > none, lr, vf_select(c < none, -lr, c));
    }
    vf_store(x + i, v);
  }
}

static __attribute__((noinline)) void update_by_rule(const step *w, real *x, const real *g, real *s,
                                                     real *t, real *u, int64_t n) {
  switch (w->p->rule) {
  case EW_OPTIMIZER_RULE_ADAM: update(w, EW_OPTIMIZER_RULE_ADAM, x, g, s, t, NULL, n); break;
  case EW_OPTIMIZER_RULE_SGD: update(w, EW_OPTIMIZER_RULE_SGD, x, g, s, NULL, NULL, n); break;
  case EW_OPTIMIZER_RULE_ADAGRAD:
    update(w, EW_OPTIMIZER_RULE_ADAGRAD, x, g, s, NULL, NULL, n);
    break;
  case EW_OPTIMIZER_RULE_RMSPROP: update(w, EW_OPTIMIZER_RULE_RMSPROP, x, g, s, t, u, n); break;
  default: update(w, EW_OPTIMIZER_RULE_LION, x, g, s, NULL, NULL, n);
  }
}

static void optimizer_task(void *arg, int32_t index, int32_t thread) {
  const step *w = arg;
  (void)thread;
  int64_t from = (int64_t)index * w->length,
          n = w->p->n - from < w->length ? w->p->n - from : w->length, whole = n / VF * VF;
  real *s[3];
  for (int k = 0; k < 3; k++) s[k] = w->s[k] ? w->s[k] + from : NULL;
  update_by_rule(w, w->x + from, w->g + from, s[0], s[1], s[2], whole);
  if (whole == n) return;
  float rest[5][VF] = {{0}}; /* the incomplete last vector */
  size_t bytes = (size_t)(n - whole) * 4;
  memcpy(rest[0], w->x + from + whole, bytes), memcpy(rest[1], w->g + from + whole, bytes);
  for (int k = 0; k < 3; k++)
    if (s[k]) memcpy(rest[2 + k], s[k] + whole, bytes);
  update_by_rule(w, rest[0], rest[1], s[0] ? rest[2] : NULL, s[1] ? rest[3] : NULL,
                 s[2] ? rest[4] : NULL, VF);
  memcpy(w->x + from + whole, rest[0], bytes);
  for (int k = 0; k < 3; k++)
    if (s[k]) memcpy(s[k] + whole, rest[2 + k], bytes);
}

static step begin(int32_t form, bool adam, float rest1, float rest2, float weight_decay,
                  const real *learning_rate, const long_m *number, const real *scale) {
  const double lr = *learning_rate, c1 = adam ? correction(rest1, *number) : 1,
               c2 = adam ? sqrt(correction(rest2, *number)) : 1;
  const bool ort = adam && form == EW_OPTIMIZER_FORM_ORT, l2 = form == EW_OPTIMIZER_FORM_L2;
  const float decayed = (float)(1 - lr * (double)weight_decay);
  return (step){.lr = (float)lr,
                .scale = scale ? *scale : 1,
                .rate = (float)(ort ? lr * c2 / c1 : lr / c1),
                .root = ort ? 1 : (float)(1 / c2),
                .before = l2 || ort ? 1 : decayed,
                .after = ort ? decayed : 1,
                .l2 = l2 ? weight_decay : 0};
}

int32_t ew_k_optimizer(ew_context *ctx, const ew_optimizer_params *p, void *const *operand) {
  const bool adam = p->rule == EW_OPTIMIZER_RULE_ADAM,
             first = *(const long_m *)operand[EW_OPTIMIZER_STEP] == 1;
  if ((p->rule != EW_OPTIMIZER_RULE_SGD && !operand[EW_OPTIMIZER_S]) ||
      (adam && !operand[EW_OPTIMIZER_T]))
    return EW_E_PARAM;
  step w =
      begin(p->form, adam, p->rest1, p->rest2, p->weight_decay, operand[EW_OPTIMIZER_LEARNING_RATE],
            operand[EW_OPTIMIZER_STEP], operand[EW_OPTIMIZER_SCALE]);
  w.p = p, w.x = operand[EW_OPTIMIZER_X], w.g = operand[EW_OPTIMIZER_G], w.length = 32768;
  w.s[0] = operand[EW_OPTIMIZER_S], w.s[1] = operand[EW_OPTIMIZER_T],
  w.s[2] = operand[EW_OPTIMIZER_U];
  w.keep = first ? 0 : p->momentum, w.take = first ? 1 : 1 - p->dampening,
  w.straight = p->nesterov ? 1 : 0, w.along = p->nesterov ? p->momentum : 1;
  ew_parallel(ctx, (p->n - 1) / w.length + 1, optimizer_task, &w);
  return EW_OK;
}

/* Adam with m and v in 8 bits, and for each BLOCK elements the largest |m| and sqrt(v) in float32
 * (block-wise quantization: Dettmers et al. 2022):
 *
 *     m = largest * q / 127, q in -127..127
 *     sqrt(v) = largest * (q + 1) / 256, q in 0..255
 *
 * The code of sqrt(v) has no zero, so that a small v never leads to a division by epsilon (Li,
 * Chen, Zhu 2023, Memory Efficient Optimizers with 4-bit States). A step changes v by about a
 * thousandth, far less than the distance of two codes, so rounding to nearest would never change
 * it; stochastic rounding keeps the mean correct. The random numbers depend only on the element and
 * the step. */
enum { BLOCK = 256, BLOCKS = 64 }; /* elements per block, blocks per task */

typedef struct {
  const ew_optimizer_8bit_params *p;
  step s;
  real *x, *m_largest, *v_largest;
  const real *g;
  int8_t *m;
  uint8_t *v;
  uint32_t salt;
} step_8bit;

static void block_8bit(const step_8bit *w, real *restrict x, const real *restrict g,
                       int8_t *restrict m8, uint8_t *restrict v8, real *m_largest, real *v_largest,
                       uint32_t first) {
  /* local copies, so that the compiler knows that no store changes them */
  const ew_optimizer_8bit_params q = *w->p, *p = &q;
  const step of_all = w->s, *s = &of_all;
  float m[BLOCK], r[BLOCK];
  vf mh = {0}, rh = {0};
  const float m_unit = *m_largest / 127.0f, r_unit = *v_largest / 256.0f;
  /* Bytes are converted to floats as the low bits of 2^23, because LLVM turns the conversion of
   * nonnegative lanes into an unsigned one, which is slow in wasm. */
  const vf keep = vf_splat(s->before * s->after), rate = vf_splat(s->rate * s->after);
  for (int i = 0; i < BLOCK; i += VF) {
    vf a = __builtin_convertvector((vi_load_bytes((const uint8_t *)m8 + i) ^ 128) - 128, vf) *
           m_unit,
       b = ((vf)(vi_load_bytes(v8 + i) | 0x4b000000) - (0x1p23f - 1)) * r_unit;
    vf y = vf_load(x + i), d = vf_fma(y, vf_splat(s->l2), vf_load(g + i) * s->scale);
    a = vf_fma(d - a, vf_splat(p->rest1), a), b *= b;
    b = vf_sqrt(vf_fma(vf_fma(d, d, -b), vf_splat(p->rest2), b));
    vf_store(x + i, y * keep - a * rate / vf_fma(b, vf_splat(s->root), vf_splat(p->epsilon)));
    mh = vf_max(mh, vf_abs(a)), rh = vf_max(rh, b);
    vf_store(m + i, a), vf_store(r + i, b);
  }
  const uint32_t salt = w->salt;
  vu lane;
  for (int i = 0; i < VF; i++) lane[i] = (uint32_t)i;
  *m_largest = vf_highest(mh), *v_largest = vf_highest(rh);
  const float m_scale = *m_largest > 0 ? 127.0f / *m_largest : 0,
              r_scale = *v_largest > 0 ? 256.0f / *v_largest : 0;
  for (int i = 0; i < BLOCK; i += 2 * VF) {
    vi mq[2], vq[2];
    for (int k = 0; k < 2; k++) {
      /* followed by the hash "lowbias32" (Wellons 2018, https://nullprogram.com/blog/2018/07/31) */
      vu h = (lane + (first + (uint32_t)(i + k * VF))) * 0x9e3779b9u + salt;
      h ^= h >> 16, h *= 0x7feb352du, h ^= h >> 15, h *= 0x846ca68bu, h ^= h >> 16;
      /* 128 plus a number in [0, 1) */
      vf up = (vf)((h & 0xffff) | 0x43000000), up2 = (vf)((h >> 16) | 0x43000000);
      /* Rounds down: to the nearest integer after subtracting one half, by adding 1.5 * 2^23, which
       * leaves no fraction bits. 127 is added to keep the values positive. */
      vf a = vf_fma(vf_load(m + i + k * VF), vf_splat(m_scale), up - 1.5f);
      vf b = vf_fma(vf_load(r + i + k * VF), vf_splat(r_scale), up2 - 129.5f);
      a = vf_min(vf_max(a, vf_splat(0)), vf_splat(254)),
      b = vf_min(vf_max(b, vf_splat(0)), vf_splat(255));
      mq[k] = ((vi)(a + 0x1.8p23f) & 255) - 127, vq[k] = (vi)(b + 0x1.8p23f) & 255;
    }
    vi_store_bytes((uint8_t *)m8 + i, mq[0], mq[1]), vi_store_bytes(v8 + i, vq[0], vq[1]);
  }
}

static void optimizer_8bit_task(void *arg, int32_t index, int32_t thread) {
  const step_8bit *w = arg;
  (void)thread;
  for (int64_t k = (int64_t)index * BLOCKS;
       k < ((int64_t)index + 1) * BLOCKS && k * BLOCK < w->p->n; k++) {
    const int64_t at = k * BLOCK, n = w->p->n - at;
    if (n >= BLOCK) {
      block_8bit(w, w->x + at, w->g + at, w->m + at, w->v + at, w->m_largest + k, w->v_largest + k,
                 (uint32_t)at);
      continue;
    }
    float x[BLOCK] = {0}, g[BLOCK] = {0};
    int8_t m[BLOCK] = {0};
    uint8_t v[BLOCK] = {0};
    const size_t bytes = (size_t)n;
    memcpy(x, w->x + at, bytes * 4), memcpy(g, w->g + at, bytes * 4), memcpy(m, w->m + at, bytes),
        memcpy(v, w->v + at, bytes);
    block_8bit(w, x, g, m, v, w->m_largest + k, w->v_largest + k, (uint32_t)at);
    memcpy(w->x + at, x, bytes * 4), memcpy(w->m + at, m, bytes), memcpy(w->v + at, v, bytes);
  }
}

int32_t ew_k_optimizer_8bit(ew_context *ctx, const ew_optimizer_8bit_params *p,
                            void *const *operand) {
  const long_m *number = operand[EW_OPTIMIZER_8BIT_STEP];
  step_8bit w = {p,
                 begin(p->form, true, p->rest1, p->rest2, p->weight_decay,
                       operand[EW_OPTIMIZER_8BIT_LEARNING_RATE], number,
                       operand[EW_OPTIMIZER_8BIT_SCALE]),
                 operand[EW_OPTIMIZER_8BIT_X],
                 operand[EW_OPTIMIZER_8BIT_M_LARGEST],
                 operand[EW_OPTIMIZER_8BIT_V_LARGEST],
                 operand[EW_OPTIMIZER_8BIT_G],
                 operand[EW_OPTIMIZER_8BIT_M],
                 operand[EW_OPTIMIZER_8BIT_V],
                 (uint32_t)*number * 0x85ebca6bu};
  ew_parallel(ctx, (p->n - 1) / (BLOCK * BLOCKS) + 1, optimizer_8bit_task, &w);
  return EW_OK;
}
