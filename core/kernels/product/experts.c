/* Products of mixtures of experts: a slot is a row of a and the number of the expert that
 * multiplies it. Slots are sorted by expert; the rows of an expert are one product of the kernel
 * gemm or matmul_nbits, so its weights are read once, and those of others are not. */
#include "kernels/elementwise/each.h"
#include <string.h>

enum {
  ROWS = 256,      /* slots of an expert in one product, where their rows are gathered */
  PRODUCT = 262144 /* floats of scratch of a product */
};

typedef struct {
  int32_t slots, experts;
  const int_m *order; /* slots, those of the first expert first */
  const int_m *end;   /* of each expert: the number of slots up to its last one */
  real *room;         /* for rows of ROWS slots */
} sorted;

/* Sorts slots by expert; false if there is no such expert. */
static bool sort(ew_context *c, const void *index, int32_t type, int32_t slots, int32_t experts,
                 real *scratch, sorted *out) {
  int_m *order = (int_m *)(scratch + PRODUCT), *end = order + slots;
  memset(end, 0, (size_t)experts * sizeof *end);
  for (int32_t s = 0; s < slots; s++) {
    const int64_t e = ew_index(c, index, type, s, experts);
    if (e < 0) return false;
    if (e + 1 < experts) end[e + 1]++;
  }
  for (int32_t e = 1; e < experts; e++) end[e] += end[e - 1];
  for (int32_t s = 0; s < slots; s++) order[end[ew_index(c, index, type, s, experts)]++] = s;
  *out = (sorted){slots, experts, order, end, (real *)(end + experts)};
  return true;
}

EW_INLINE int32_t first_of(const sorted *s, int32_t expert) {
  return expert ? s->end[expert - 1] : 0;
}
/* Rows of n floats of these slots, one slot after the other. */
static void gather_rows(const int_m *slots, int32_t count, int32_t each, const real *from,
                        int64_t row, int32_t n, real *to) {
  for (int32_t i = 0; i < count; i++, to += n)
    memcpy(to, from + slots[i] / each * row, (size_t)n * sizeof *to);
}

typedef struct product product;
struct product {
  void *const *operand;
  const void *params;
  const real *a;
  real *y;
  int64_t a_row;
  int32_t each, in, out; /* columns of a and of y */
  /* y[m][out] = rows of a, a_row apart, times the weights of an expert */
  int32_t (*multiply)(ew_context *, const product *, int32_t expert, int32_t m, const real *a,
                      int32_t a_row, real *y);
};

/* One product: m slots of an expert. */
static int32_t multiply_slots(ew_context *c, const product *p, int32_t expert, const int_m *slots,
                              int32_t m, real *room) {
  const bool adjacent = slots[m - 1] - slots[0] == m - 1;
  const real *a = p->a + slots[0] / p->each * p->a_row;
  real *y = p->y + (int64_t)slots[0] * p->out;
  int32_t a_row = (int32_t)p->a_row;
  if (m > 1 && !(adjacent && p->each == 1)) {
    gather_rows(slots, m, p->each, p->a, p->a_row, p->in, room);
    a = room, a_row = p->in, room += (int64_t)m * p->in;
  }
  const int32_t code = p->multiply(c, p, expert, m, a, a_row, adjacent ? y : room);
  for (int32_t i = 0; i < m && !adjacent && !code; i++)
    memcpy(p->y + (int64_t)slots[i] * p->out, room + (int64_t)i * p->out,
           (size_t)p->out * sizeof *y);
  return code;
}

static int32_t multiply_all(ew_context *c, const product *p, const sorted *s) {
  for (int32_t e = c->page; e < s->experts; e++)
    for (int32_t at = first_of(s, e), m; at < s->end[e]; at += m) {
      const int_m *slots = s->order + at;
      m = s->end[e] - at;
      if (p->each > 1 || slots[m - 1] - slots[0] != m - 1) m = m < ROWS ? m : ROWS;
      if (ew_stopping(c)) return EW_OK;
      const int32_t code = multiply_slots(c, p, e, slots, m, s->room);
      if (code) return code;
    }
  return EW_OK;
}

static int32_t multiply_floats(ew_context *c, const product *of, int32_t expert, int32_t m,
                               const real *a, int32_t a_row, real *y) {
  const ew_expert_gemm_params *p = of->params;
  void *const *operand = of->operand;
  const int64_t bytes = p->b_type == EW_F16 ? 2 : 4;
  const int64_t row = 4 * (int64_t)p->n;
  void *b, *bias;
  int32_t code =
      ew_page(c, EW_EXPERT_GEMM_B, operand[EW_EXPERT_GEMM_B], expert, p->b_expert * bytes,
              ((p->k - 1) * (int64_t)p->b_row + (p->n - 1) * (int64_t)p->b_col + 1) * bytes, &b);
  if (!code)
    code = ew_page(c, EW_EXPERT_GEMM_BIAS, operand[EW_EXPERT_GEMM_BIAS], expert, row, row, &bias);
  if (code) return code;
  const ew_gemm_params q = {.batch0 = 1,
                            .batch1 = 1,
                            .m = m,
                            .n = p->n,
                            .k = p->k,
                            .a_row = a_row,
                            .a_col = 1,
                            .b_row = p->b_row,
                            .b_col = p->b_col,
                            .y_row = p->n,
                            .bias_col = 1,
                            .b_type = p->b_type,
                            .b_normal = p->b_normal,
                            .alpha = p->alpha,
                            .beta = 1};
  void *const mine[] = {
      [EW_GEMM_A] = (void *)a, [EW_GEMM_B] = b,
      [EW_GEMM_BIAS] = bias,   [EW_GEMM_RESIDUAL] = NULL,
      [EW_GEMM_Y] = y,         [EW_GEMM_SCRATCH] = operand[EW_EXPERT_GEMM_SCRATCH]};
  return ew_k_gemm(c, &q, mine);
}

int32_t ew_k_expert_gemm(ew_context *c, const ew_expert_gemm_params *p, void *const *operand) {
  sorted s;
  if (!sort(c, operand[EW_EXPERT_GEMM_INDEX], p->index_type, p->slots, p->experts,
            operand[EW_EXPERT_GEMM_SCRATCH], &s))
    return EW_E_INDEX;
  const product all = {.operand = operand,
                       .params = p,
                       .a = operand[EW_EXPERT_GEMM_A],
                       .y = operand[EW_EXPERT_GEMM_Y],
                       .a_row = p->a_row,
                       .each = p->each,
                       .in = p->k,
                       .out = p->n,
                       .multiply = multiply_floats};
  return multiply_all(c, &all, &s);
}

static int32_t multiply_nbits(ew_context *c, const product *of, int32_t expert, int32_t m,
                              const real *a, int32_t a_row, real *y) {
  const ew_expert_nbits_params *p = of->params;
  void *const *operand = of->operand;
  const int64_t blocks = (p->k - 1) / p->block + 1, n = p->n;
  const int64_t size[] = {
      [EW_EXPERT_NBITS_B] = n * blocks * (((int64_t)p->block * p->bits + 7) / 8),
      [EW_EXPERT_NBITS_SCALES] = n * blocks * (p->scale_type == EW_F16 ? 2 : 4),
      [EW_EXPERT_NBITS_ZEROS] = n * (p->zero_type == EW_U8    ? (blocks * p->bits + 7) / 8
                                     : p->zero_type == EW_F16 ? 2 * blocks
                                                              : 4 * blocks),
      [EW_EXPERT_NBITS_BIAS] = 4 * (int64_t)of->out};
  void *at[EW_EXPERT_NBITS_BIAS + 1];
  for (int i = EW_EXPERT_NBITS_B; i <= EW_EXPERT_NBITS_BIAS; i++) {
    const int32_t code = ew_page(c, i, operand[i], expert, size[i], size[i], &at[i]);
    if (code) return code;
  }
  const ew_matmul_nbits_params q = {.m = m,
                                    .n = p->n,
                                    .k = p->k,
                                    .bits = p->bits,
                                    .block = p->block,
                                    .scale_type = p->scale_type,
                                    .zero_type = p->zero_type,
                                    .a_row = a_row,
                                    .y_row = of->out,
                                    .accuracy = p->accuracy,
                                    .transposed = p->transposed};
  void *const mine[] = {[EW_MATMUL_NBITS_A] = (void *)a,
                        [EW_MATMUL_NBITS_B] = at[EW_EXPERT_NBITS_B],
                        [EW_MATMUL_NBITS_SCALES] = at[EW_EXPERT_NBITS_SCALES],
                        [EW_MATMUL_NBITS_ZEROS] = at[EW_EXPERT_NBITS_ZEROS],
                        [EW_MATMUL_NBITS_BIAS] = at[EW_EXPERT_NBITS_BIAS],
                        [EW_MATMUL_NBITS_RESIDUAL] = NULL,
                        [EW_MATMUL_NBITS_Y] = y,
                        [EW_MATMUL_NBITS_SCRATCH] = operand[EW_EXPERT_NBITS_SCRATCH]};
  return ew_k_matmul_nbits(c, &q, mine);
}

int32_t ew_k_expert_nbits(ew_context *c, const ew_expert_nbits_params *p, void *const *operand) {
  sorted s;
  if (!sort(c, operand[EW_EXPERT_NBITS_INDEX], p->index_type, p->slots, p->experts,
            operand[EW_EXPERT_NBITS_SCRATCH], &s))
    return EW_E_INDEX;
  const product all = {.operand = operand,
                       .params = p,
                       .a = operand[EW_EXPERT_NBITS_A],
                       .y = operand[EW_EXPERT_NBITS_Y],
                       .a_row = p->a_row,
                       .each = p->each,
                       .in = p->transposed ? p->n : p->k,
                       .out = p->transposed ? p->k : p->n,
                       .multiply = multiply_nbits};
  return multiply_all(c, &all, &s);
}

int32_t ew_k_expert_outer(ew_context *c, const ew_expert_outer_params *p, void *const *operand) {
  const real *a = operand[EW_EXPERT_OUTER_A], *b = operand[EW_EXPERT_OUTER_B];
  real *scratch = operand[EW_EXPERT_OUTER_SCRATCH], *y = operand[EW_EXPERT_OUTER_Y];
  sorted s;
  if (!sort(c, operand[EW_EXPERT_OUTER_INDEX], p->index_type, p->slots, p->experts, scratch, &s))
    return EW_E_INDEX;
  for (int32_t e = 0; e < p->experts; e++, y += (int64_t)p->n * p->k) {
    const int32_t first = first_of(&s, e);
    if (first == s.end[e]) memset(y, 0, (size_t)p->n * (size_t)p->k * sizeof *y);
    for (int32_t at = first, m; at < s.end[e] && !ew_stopping(c); at += m) {
      m = s.end[e] - at < ROWS ? s.end[e] - at : ROWS;
      real *rows = s.room, *columns = rows + (int64_t)m * p->n;
      gather_rows(s.order + at, m, p->a_each, a, p->a_row, p->n, rows);
      gather_rows(s.order + at, m, p->b_each, b, p->b_row, p->k, columns);
      const ew_gemm_params q = {.batch0 = 1,
                                .batch1 = 1,
                                .m = p->n,
                                .n = p->k,
                                .k = m,
                                .a_row = 1,
                                .a_col = p->n,
                                .b_row = p->k,
                                .b_col = 1,
                                .y_row = p->k,
                                .b_type = EW_F32,
                                .alpha = 1,
                                .beta = 1};
      void *const mine[] = {[EW_GEMM_A] = rows,    [EW_GEMM_B] = columns,
                            [EW_GEMM_BIAS] = NULL, [EW_GEMM_RESIDUAL] = at > first ? y : NULL,
                            [EW_GEMM_Y] = y,       [EW_GEMM_SCRATCH] = scratch};
      const int32_t code = ew_k_gemm(c, &q, mine);
      if (code) return code;
    }
  }
  return EW_OK;
}
