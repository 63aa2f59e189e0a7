/* Keys and values to rows of 8 or 4 bits and back (rows.h). */
#include "kernels/attention/rows.h"

/* The head of a block of 8 bits: its scale. */
static uint16_t half_of(float x) {
  half h[2 * VF];
  vf_store_halves(h, vf_splat(x), vf_splat(x));
  return h[0];
}

/* The scale of a block of 4 bits, rounded up so that all numbers are within reach: see rows.h. */
static uint16_t scale_of(float x) {
  const union {
    float f;
    uint32_t u;
  } small = {x * 0x1p-112f};
  const uint32_t up = (small.u + 0xffff) >> 16;
  return (uint16_t)((up < 0xfff ? up : 0xfff) << 4);
}

/* x * factor + middle, rounded to an integer of 0..top. */
static uint8_t code_of(float x, float factor, float middle, float top) {
  const float t = x * factor + (middle + 0.5f);
  return (uint8_t)(t > top ? top : t > 0 ? t : 0);
}

/* Stores a block of n columns. What is not a number, and what a scale cannot hold, gives codes that
 * are as good as any. */
static void put_block(const real *x, int32_t n, uint8_t *block, bool eight) {
  float least = 0, most = 0;
  EW_PLAIN_FOR (int32_t c = 0; c < n; c++) {
    if (x[c] < least) least = x[c];
    if (x[c] > most) most = x[c];
  }
  uint16_t head = eight ? half_of((-least > most ? -least : most) * (1.0f / 127))
                        : scale_of((most - least) * (1.0f / 15));
  vf scale, zero;
  ew_row_head(vi_splat(head), &scale, &zero, eight);
  const float factor = scale[0] > 0 ? 1 / scale[0] : 0, top = eight ? 255 : 15;
  const uint8_t middle = eight ? 128 : code_of(-least, factor, 0, top);
  if (!eight) head |= middle;
  *(m_u16 *)block = head;
  uint8_t code[GROUP];
  EW_PLAIN_FOR (int32_t c = 0; c < GROUP; c++)
    code[c] = c < n ? code_of(x[c], factor, middle, top) : middle;
  EW_PLAIN_FOR (int32_t c = 0; c < (eight ? GROUP : GROUP / 2); c++)
    block[2 + c] = eight ? code[c] : (uint8_t)(code[c] | code[c + GROUP / 2] << 4);
}

typedef struct {
  const ew_store_rows_params *p;
  const real *x;
  uint8_t *y;
} store_work;

static void store_task(void *arg, int32_t index, int32_t thread) {
  const store_work *w = arg;
  const ew_store_rows_params *p = w->p;
  const bool eight = p->type == EW_I8;
  const int64_t b = index / p->heads, h = index % p->heads;
  (void)thread;
  for (int64_t s = 0; s < p->count; s++) {
    const real *x = w->x + b * p->x_b + h * p->x_h + s * p->x_s;
    uint8_t *y = w->y + b * p->y_b + h * p->y_h + s * p->y_s;
    for (int32_t c = 0; c < p->dim; c += GROUP, y += eight ? ROW8 : ROW4)
      put_block(x + c, p->dim - c < GROUP ? p->dim - c : GROUP, y, eight);
  }
}

int32_t ew_k_store_rows(ew_context *c, const ew_store_rows_params *p, void *const *operand) {
  store_work w = {p, operand[EW_STORE_ROWS_X], operand[EW_STORE_ROWS_Y]};
  ew_parallel(c, p->batch * p->heads, store_task, &w);
  return EW_OK;
}

typedef struct {
  const ew_load_rows_params *p;
  const uint8_t *x;
  real *y;
} load_work;

static void load_task(void *arg, int32_t index, int32_t thread) {
  const load_work *w = arg;
  const ew_load_rows_params *p = w->p;
  const int64_t b = index / p->heads, h = index % p->heads;
  (void)thread;
  for (int64_t s = 0; s < p->count; s++) {
    const uint8_t *x = w->x + b * p->x_b + h * p->x_h + s * p->x_s;
    real *y = w->y + b * p->y_b + h * p->y_h + s * p->y_s, part[GROUP];
    for (int32_t c = 0; c < p->dim; c += GROUP) {
      ew_row_load(x, c, GROUP, part, p->type == EW_I8);
      EW_PLAIN_FOR (int32_t i = 0; i < GROUP && c + i < p->dim; i++) y[c + i] = part[i];
    }
  }
}

int32_t ew_k_load_rows(ew_context *c, const ew_load_rows_params *p, void *const *operand) {
  load_work w = {p, operand[EW_LOAD_ROWS_X], operand[EW_LOAD_ROWS_Y]};
  ew_parallel(c, p->batch * p->heads, load_task, &w);
  return EW_OK;
}
