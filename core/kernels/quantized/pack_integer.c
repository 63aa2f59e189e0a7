/* Packing of the weights of integer_product. */
#include "kernels/quantized/integer_product.h"
#include "kernels/elementwise/each.h"
#include <string.h>

typedef struct {
  const ew_pack_integer_params *p;
  const uint8_t *w;
  uint8_t *y;
  int64_t k4, item; /* k rounded up to a multiple of four; bytes per packed item */
  int32_t group;    /* rows side by side */
  bool marks, wide; /* whether sums are marked; whether weights that were to be narrow are not */
} packing;

/* Whether a sum of four products with bytes, of a block of narrow weights, may leave 16 bits. */
static bool overflows(const int8_t *w) {
  for (int32_t i = 0; i < 4 * COLUMNS; i += 2) {
    int32_t positive = 0, negative = 0;
    for (int32_t j = 0; j < 4; j++) {
      const int32_t x = w[i + (j & 1) + (j >> 1) * 4 * COLUMNS];
      if (x > 0)
        positive += x;
      else
        negative -= x;
    }
    if (positive > 2 * NARROW || negative > 2 * NARROW) return true;
  }
  return false;
}

static void mark(const int8_t *w, int64_t k, uint32_t *sum) {
  const int32_t blocks = (int32_t)(k / BLOCK_ROWS), segment = ew_segment(k);
  for (int32_t i = 0; i < COLUMNS; i++) sum[i] = (sum[i] + SUM_OFFSET) << 8;
  for (int32_t b = 0; b < blocks; b++, w += BLOCK_ROWS * COLUMNS) {
    const int32_t at = b / segment;
    if (overflows(w)) sum[at / 8] |= 1u << at % 8;
  }
}

static void pack_task(void *arg, int32_t index, int32_t thread) {
  packing *s = arg;
  const ew_pack_integer_params *p = s->p;
  (void)thread;
  const int32_t panels = (int32_t)up_to(p->n, COLUMNS), j = index % panels * COLUMNS,
                cols = (int32_t)less(p->n - j, COLUMNS), group = s->group;
  const uint8_t flip = p->type == EW_U8 ? 128 : 0,
                *w = s->w + (int64_t)(index / panels) * p->item_stride + (int64_t)j * p->n_stride;
  uint8_t *item = s->y + index / panels * s->item,
          *y = item + up_to(p->n, WIDEST) * WIDEST * 4 + j * s->k4;
  uint32_t sum[COLUMNS] = {0}; /* wraps, like all sums of products */
  int64_t k = 0;
  bool wide = false;
  for (int32_t tap = 0; tap < p->taps; tap++)
    for (int32_t c = 0; c < p->c; c++, k++) {
      const uint8_t *from = w + (int64_t)tap * p->tap_stride + (int64_t)c * p->c_stride;
      uint8_t *to = y + k / group * group * COLUMNS + k % group;
      EW_PLAIN_FOR (int32_t i = 0; i < cols; i++) {
        uint8_t x = from[(int64_t)i * p->n_stride] ^ flip;
        to[i * group] = x, sum[i] += (uint32_t)(int8_t)x;
        wide |= (uint8_t)(x + NARROW) > 2 * NARROW;
      }
      EW_PLAIN_FOR (int32_t i = cols; i < COLUMNS; i++) to[i * group] = 0;
      if (EW_RELAXED_DOTS && s->marks && (wide || __atomic_load_n(&s->wide, __ATOMIC_RELAXED))) {
        __atomic_store_n(&s->wide, true, __ATOMIC_RELAXED);
        return;
      }
    }
  for (; k < s->k4; k++)
    EW_PLAIN_FOR (int32_t i = 0; i < COLUMNS; i++)
      y[k / group * group * COLUMNS + k % group + i * group] = 0;
  if (EW_RELAXED_DOTS && s->marks) mark((const int8_t *)y, k, sum);
  memcpy(item + 4 * (int64_t)j, sum, sizeof sum);
}

int32_t ew_k_pack_integer(ew_context *ctx, const ew_pack_integer_params *p, void *const *operand) {
  const int64_t k = (int64_t)p->taps * p->c;
  packing s = {.p = p,
               .w = operand[EW_PACK_INTEGER_W],
               .y = operand[EW_PACK_INTEGER_Y],
               .k4 = up_to(k, 4) * 4,
               .group = vi_dots() ? 4 : 2,
               .marks = ew_may_mark(k)};
  const int32_t tasks = (int32_t)(p->items * up_to(p->n, COLUMNS));
  s.item = up_to(p->n, WIDEST) * WIDEST * (4 + s.k4);
  if (s.marks) s.group = 4;
  ew_parallel(ctx, tasks, pack_task, &s);
  if (EW_RELAXED_DOTS && s.wide) {
    s.group = 2, s.marks = s.wide = false;
    ew_parallel(ctx, tasks, pack_task, &s);
  }
  return EW_OK;
}
