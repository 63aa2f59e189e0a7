/* Rotary position embedding (RotaryEmbedding): (x1, x2) -> (x1 cos - x2 sin, x2 cos + x1 sin) for
 * the pairs of each head, interleaved or in halves. A task is a range of tokens; both layouts
 * are vectorized. */
#include "kernels/elementwise/each.h"

typedef struct {
  const ew_rope_params *p;
  const real *x, *cos, *sin;
  const long_m *ids;
  real *y;
  int32_t tokens; /* per task */
} rope_work;

/* Row of the cos/sin tables for token `s` of batch item `b`. */
EW_INLINE int64_t table_row(const ew_rope_params *p, const long_m *ids, int32_t b, int32_t s) {
  switch (p->positions) {
  case 2: return ids ? ids[(int64_t)b * p->seq + s] : s;
  case 3: return (int64_t)((uint64_t)(ids ? ids[b] : 0) + (uint64_t)s);
  default: return (int64_t)p->position + s;
  }
}

static void rotate(const ew_rope_params *p, const real *x, const real *c, const real *s, real *y) {
  /* local copies, so that the compiler knows that no store changes them */
  const int32_t half = p->rotary_dim / 2, head = p->head_dim;
  const float scale = p->scale;
  int32_t i = 0;
  if (p->interleaved && EW_USES(ROPE_INTERLEAVED, 1)) {
    for (; i + 4 <= half; i += 4) {
      f32x4 a = *(const f32x4_m *)(x + 2 * i), b = *(const f32x4_m *)(x + 2 * i + 4),
            ci = *(const f32x4_m *)(c + i), si = *(const f32x4_m *)(s + i);
      f32x4 x1 = __builtin_shufflevector(a, b, 0, 2, 4, 6),
            x2 = __builtin_shufflevector(a, b, 1, 3, 5, 7), y1 = (x1 * ci - x2 * si) * scale,
            y2 = (x2 * ci + x1 * si) * scale;
      *(f32x4_m *)(y + 2 * i) = __builtin_shufflevector(y1, y2, 0, 4, 1, 5),
                           *(f32x4_m *)(y + 2 * i + 4) =
                               __builtin_shufflevector(y1, y2, 2, 6, 3, 7);
    }
    EW_PLAIN_FOR (; i < half; i++) {
      float x1 = x[2 * i], x2 = x[2 * i + 1];
      y[2 * i] = (x1 * c[i] - x2 * s[i]) * scale, y[2 * i + 1] = (x2 * c[i] + x1 * s[i]) * scale;
    }
  } else {
    for (; i + VF <= half; i += VF) {
      vf x1 = vf_load(x + i), x2 = vf_load(x + half + i), ci = vf_load(c + i), si = vf_load(s + i);
      vf_store(y + i, (x1 * ci - x2 * si) * scale),
          vf_store(y + half + i, (x2 * ci + x1 * si) * scale);
    }
    EW_PLAIN_FOR (; i < half; i++) {
      float x1 = x[i], x2 = x[half + i];
      y[i] = (x1 * c[i] - x2 * s[i]) * scale, y[half + i] = (x2 * c[i] + x1 * s[i]) * scale;
    }
  }
  EW_PLAIN_FOR (i = 2 * half; i < head; i++) y[i] = x[i];
}

static void rope_task(void *arg, int32_t index, int32_t thread) {
  const rope_work *w = arg;
  const ew_rope_params *p = w->p;
  (void)thread;
  int64_t tokens = (int64_t)p->batch * p->seq, from = (int64_t)index * w->tokens,
          to = from + w->tokens < tokens ? from + w->tokens : tokens;
  for (int64_t t = from; t < to; t++) {
    int32_t b = (int32_t)(t / p->seq), s = (int32_t)(t % p->seq);
    int64_t at = p->positions ? table_row(p, w->ids, b, s) * p->c_s
                              : (int64_t)b * p->c_b + (int64_t)s * p->c_s;
    for (int64_t h = 0; h < p->heads; h++)
      rotate(p, w->x + (int64_t)b * p->x_b + h * p->x_h + (int64_t)s * p->x_s, w->cos + at,
             w->sin + at, w->y + (int64_t)b * p->y_b + h * p->y_h + (int64_t)s * p->y_s);
  }
}

int32_t ew_k_rope(ew_context *ctx, const ew_rope_params *p, void *const *operand) {
  rope_work w = {p,
                 operand[EW_ROPE_X],
                 operand[EW_ROPE_COS],
                 operand[EW_ROPE_SIN],
                 operand[EW_ROPE_POSITION_IDS],
                 operand[EW_ROPE_Y],
                 (int32_t)(65536 / ((int64_t)p->heads * p->head_dim)) + 1};
  if (p->positions)
    for (int32_t b = 0; b < p->batch; b++)
      for (int32_t s = 0; s < p->seq; s++) {
        int64_t row = table_row(p, w.ids, b, s);
        if (row < 0 || row >= p->c_rows) {
          ctx->detail = row;
          return EW_E_INDEX;
        }
      }
  ew_parallel(ctx, (int32_t)(((int64_t)p->batch * p->seq - 1) / w.tokens + 1), rope_task, &w);
  return EW_OK;
}
