/* Gather, GatherElements and GatherND: copies elements or contiguous slices of x selected by an
 * index tensor. Each index is checked before it is used (EW_E_INDEX).
 *
 * gather splits its outer x count slices among threads; the other two run on one thread. */
#include "kernels/elementwise/each.h"
#include <string.h>

enum { CHUNK = 512 }; /* indices of a gather that are checked at a time */

static inline void copy_element(uint8_t *to, const uint8_t *from, int32_t size) {
  switch (size) {
  case 1: *to = *from; break;
  case 2: *(m_u16 *)to = *(const m_u16 *)from; break;
  case 4: *(m_u32 *)to = *(const m_u32 *)from; break;
  default: *(m_u64 *)to = *(const m_u64 *)from;
  }
}

/* Copies a slice of n elements of `size` bytes. */
static inline void copy_slice(uint8_t *to, const uint8_t *from, int64_t n, int32_t size) {
  if (n == 1)
    copy_element(to, from, size);
  else
    memcpy(to, from, (size_t)(n * size));
}

typedef struct {
  ew_context *context;
  const ew_gather_params *p;
  const uint8_t *x;
  const void *index;
  uint8_t *y;
  int64_t per_task; /* slices per task, out of outer x count */
  int32_t failed;
} gather;

/* Computes the offsets in x, in elements, of n slices starting at slice `from`; false if an index
 * is out of range. */
static bool find_slices(const gather *g, int64_t from, int64_t n, int64_t *at) {
  for (int64_t i = 0; i < n; i++) {
    const int64_t row = ew_index(g->context, g->index, g->p->index_type, from + i, g->p->rows);
    if (row < 0) return false;
    at[i] = row * g->p->x_row;
  }
  return true;
}

static void gather_task(void *arg, int32_t task, int32_t thread) {
  (void)thread;
  gather *g = arg;
  const ew_gather_params *p = g->p;
  const int64_t total = (int64_t)p->outer * p->count,
                end = (task + 1) * g->per_task < total ? (task + 1) * g->per_task : total;
  /* offsets of `count` slices from `known` on, reused for the next outer index if they are the same
   */
  int64_t at[CHUNK], known = -1, count = 0;
  for (int64_t i = task * g->per_task, n; i < end; i += n) {
    const int64_t o = i / p->count, c = i % p->count,
                  left = p->count - c < end - i ? p->count - c : end - i;
    n = left < CHUNK ? left : CHUNK;
    if (c != known || n > count) {
      if (!find_slices(g, c, n, at)) {
        __atomic_store_n(&g->failed, 1, __ATOMIC_RELAXED);
        return;
      }
      known = c, count = n;
    }
    const uint8_t *x = g->x + o * p->x_outer * p->size;
    uint8_t *y = g->y + (o * p->y_outer + c * p->inner) * p->size;
    if (p->inner == 1 && p->size == 4)
      EW_PLAIN_FOR (int64_t k = 0; k < n; k++) ((m_u32 *)y)[k] = ((const m_u32 *)x)[at[k]];
    else
      for (int64_t k = 0; k < n; k++)
        copy_slice(y + k * p->inner * p->size, x + at[k] * p->size, p->inner, p->size);
  }
}

int32_t ew_k_gather(ew_context *c, const ew_gather_params *p, void *const *operand) {
  gather g = {c, p, operand[EW_GATHER_X], operand[EW_GATHER_INDEX], operand[EW_GATHER_Y], 0, 0};
  const int64_t total = (int64_t)p->outer * p->count;
  const int64_t work = total < INT32_MAX ? total * ((int64_t)p->inner + 8) : INT64_MAX;
  const int32_t tasks = ew_tasks(c, work, 32768, total);
  g.per_task = (total + tasks - 1) / tasks;
  ew_parallel(c, (int32_t)((total + g.per_task - 1) / g.per_task), gather_task, &g);
  return g.failed ? EW_E_INDEX : EW_OK;
}

int32_t ew_k_gather_elements(ew_context *c, const ew_gather_elements_params *p,
                             void *const *operand) {
  const uint8_t *x = operand[EW_GATHER_ELEMENTS_X];
  const void *index = operand[EW_GATHER_ELEMENTS_INDEX];
  uint8_t *y = operand[EW_GATHER_ELEMENTS_Y];
  int32_t at[6] = {0};
  for (;;) { /* one row of the innermost dimension per iteration */
    int64_t from = 0, i = 0;
    for (int d = 0; d < 5; d++) from += (int64_t)at[d] * p->xs[d], i += (int64_t)at[d] * p->is[d];
    for (int32_t k = 0; k < p->dims[5]; k++, y += p->size) {
      const int64_t row = ew_index(c, index, p->index_type, i + (int64_t)k * p->is[5], p->rows);
      if (row < 0) return EW_E_INDEX;
      copy_element(y, x + (from + (int64_t)k * p->xs[5] + row * p->x_axis) * p->size, p->size);
    }
    int d = 4;
    while (d >= 0 && ++at[d] == p->dims[d]) at[d--] = 0;
    if (d < 0) return EW_OK;
  }
}

int32_t ew_k_gather_nd(ew_context *c, const ew_gather_nd_params *p, void *const *operand) {
  const uint8_t *x = operand[EW_GATHER_ND_X];
  uint8_t *y = operand[EW_GATHER_ND_Y];
  int64_t k = 0;
  for (int64_t b = 0; b < p->batch; b++)
    for (int64_t i = 0; i < p->count; i++, y += (int64_t)p->inner * p->size) {
      int64_t from = b * p->x_batch;
      for (int d = 0; d < p->depth; d++) {
        const int64_t at =
            ew_index(c, operand[EW_GATHER_ND_INDEX], p->index_type, k++, p->sizes[d]);
        if (at < 0) return EW_E_INDEX;
        from += at * p->strides[d];
      }
      copy_slice(y, x + from * p->size, p->inner, p->size);
    }
  return EW_OK;
}
