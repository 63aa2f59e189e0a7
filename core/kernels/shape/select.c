/* Kernels whose output size depends on data: NonZero, Unique and NonMaxSuppression. Outputs have
 * room for the largest possible result; the number of results is written to a separate operand. */
#include "kernels/elementwise/each.h"

int32_t ew_k_nonzero(ew_context *c, const ew_nonzero_params *p, void *const *operand) {
  (void)c;
  const int32_t size = ew_bytes_of(p->type), inner = p->dims[5];
  const bool is_float =
      p->type == EW_F32 || p->type == EW_F16 || p->type == EW_BF16 || p->type == EW_F64;
  /* masks the sign, so that -0.0 counts as zero */
  const uint64_t mask = is_float ? (UINT64_C(1) << (size * 8 - 1)) - 1 : UINT64_MAX;
  const uint8_t *x = operand[EW_NONZERO_X];
  m_i64 *y = operand[EW_NONZERO_Y], *count = operand[EW_NONZERO_COUNT];
  int64_t total = 1, found = 0;
  for (int i = 0; i < 6; i++) total *= p->dims[i];
  for (int pass = 0; pass < 2; pass++) { /* pass 0 counts; pass 1 writes [rank, found] */
    int64_t at = 0;
    int32_t place[6] = {0};
    for (int64_t row = 0; row < total; row += inner) {
      for (int32_t j = 0; j < inner; j++) {
        uint64_t v;
        switch (size) {
        case 1: v = x[row + j]; break;
        case 2: v = ((const m_u16 *)x)[row + j]; break;
        case 4: v = ((const m_u32 *)x)[row + j]; break;
        default: v = ((const m_u64 *)x)[row + j];
        }
        if (!(v & mask)) continue;
        if (pass) {
          place[5] = j;
          for (int32_t d = 0; d < p->rank; d++) y[d * found + at] = place[6 - p->rank + d];
        }
        at++;
      }
      for (int d = 4; d >= 0 && ++place[d] == p->dims[d]; d--) place[d] = 0;
    }
    found = at;
  }
  *count = found;
  return EW_OK;
}

/* Maps an element to an integer of the same order. NaN is the largest value and equals itself. */
static int64_t order_of(const uint8_t *x, int32_t type, int64_t i) {
  switch (type) {
  case EW_F32: {
    const int32_t bits = ((const m_i32 *)x)[i], size = bits & INT32_MAX;
    return size > 0x7f800000 ? INT64_MAX : bits < 0 ? -(int64_t)size : size;
  }
  case EW_F64: {
    const int64_t bits = ((const m_i64 *)x)[i], size = bits & INT64_MAX;
    return size > INT64_C(0x7ff0000000000000) ? INT64_MAX : bits < 0 ? -size : size;
  }
  case EW_I8: return (int8_t)x[i];
  case EW_I16: return ((const m_i16 *)x)[i];
  case EW_U16: return ((const m_u16 *)x)[i];
  case EW_I32: return ((const m_i32 *)x)[i];
  case EW_U32: return ((const m_u32 *)x)[i];
  case EW_U64: return (int64_t)(((const m_u64 *)x)[i] ^ UINT64_C(0x8000000000000000));
  case EW_I64: return ((const m_i64 *)x)[i];
  /* EW_U8, EW_BOOL. The compiler emits no other type; reading one byte is in bounds for all of
   * them. */
  default: return x[i];
  }
}

static int compare(const ew_unique_params *p, const uint8_t *x, int64_t a, int64_t b) {
  for (int64_t i = 0; i < p->cols; i++) {
    const int64_t u = order_of(x, p->type, a * p->cols + i),
                  v = order_of(x, p->type, b * p->cols + i);
    if (u != v) return u < v ? -1 : 1;
  }
  return 0;
}

int32_t ew_k_unique(ew_context *c, const ew_unique_params *p, void *const *operand) {
  const uint8_t *x = operand[EW_UNIQUE_X];
  m_i64 *first = operand[EW_UNIQUE_FIRST], *inverse = operand[EW_UNIQUE_INVERSE],
        *counts = operand[EW_UNIQUE_COUNTS];
  m_i32 *from = operand[EW_UNIQUE_SCRATCH], *to = from + p->n;
  const int64_t n = p->n;
  for (int64_t i = 0; i < n; i++) from[i] = (int32_t)i;
  /* merge sort: stable, so equal rows keep their order */
  for (int64_t width = 1; width < n; width *= 2) {
    for (int64_t start = 0; start < n; start += 2 * width) {
      if (ew_stopping(c)) return EW_OK;
      const int64_t middle = start + width < n ? start + width : n,
                    end = start + 2 * width < n ? start + 2 * width : n;
      for (int64_t i = start, j = middle, k = start; k < end; k++)
        to[k] = i < middle && (j == end || compare(p, x, from[i], from[j]) <= 0) ? from[i++]
                                                                                 : from[j++];
    }
    m_i32 *other = from;
    from = to, to = other;
  }
  int64_t groups = 0;
  for (int64_t i = 0; i < n; i++) {
    if (!i || compare(p, x, from[i - 1], from[i]))
      first[groups] = from[i], counts[groups] = 0, groups++;
    counts[groups - 1]++, inverse[from[i]] = groups - 1;
  }
  *(m_i64 *)operand[EW_UNIQUE_COUNT] = groups;
  if (p->sorted) return EW_OK;
  /* Sorts groups by first occurrence: renumbers them in the order of their first rows; counts are
   * moved through the slot of the first row. */
  for (int64_t g = 0; g < groups; g++) to[first[g]] = (int32_t)counts[g];
  int64_t next = 0;
  for (int64_t i = 0; i < n; i++) {
    const int64_t g = inverse[i];
    /* `from` is free now: it holds the new number of each group */
    if (first[g] == i) from[g] = (int32_t)next++;
    inverse[i] = from[g];
  }
  for (int64_t i = 0, met = 0; i < n; i++)
    if (inverse[i] == met) first[met] = i, counts[met] = to[i], met++;
  return EW_OK;
}

static bool overlap(const m_f32 *a, const m_f32 *b, bool center, float threshold) {
  float low[2][2], high[2][2], both = 1, size[2] = {1, 1};
  for (int k = 0; k < 2; k++)
    for (int i = 0; i < 2; i++) {
      const m_f32 *box = k ? b : a;
      const float u = center ? box[i] - box[2 + i] / 2 : box[i],
                  v = center ? box[i] + box[2 + i] / 2 : box[2 + i];
      low[k][i] = u < v ? u : v, high[k][i] = u < v ? v : u;
      size[k] *= high[k][i] - low[k][i];
    }
  for (int i = 0; i < 2; i++) {
    const float from = low[0][i] > low[1][i] ? low[0][i] : low[1][i],
                to = high[0][i] < high[1][i] ? high[0][i] : high[1][i];
    if (!(to > from)) return false;
    both *= to - from;
  }
  const float either = size[0] + size[1] - both;
  return both > 0 && size[0] > 0 && size[1] > 0 && either > 0 && both / either > threshold;
}

static bool better(const m_f32 *scores, int32_t a, int32_t b) {
  return scores[a] > scores[b] || (scores[a] == scores[b] && a < b);
}

/* Inserts v into the heap of n candidates (best score at the root) at `at` or below. */
static void sink(m_i32 *heap, const m_f32 *scores, int64_t n, int64_t at, int32_t v) {
  for (;;) {
    int64_t child = 2 * at + 1;
    if (child >= n) break;
    if (child + 1 < n && better(scores, heap[child + 1], heap[child])) child++;
    if (!better(scores, heap[child], v)) break;
    heap[at] = heap[child], at = child;
  }
  heap[at] = v;
}

int32_t ew_k_nms(ew_context *c, const ew_nms_params *p, void *const *operand) {
  m_i64 *y = operand[EW_NMS_SELECTED];
  m_i32 *heap = operand[EW_NMS_SCRATCH];
  int64_t found = 0;
  for (int32_t b = 0; b < p->batch; b++) {
    const m_f32 *boxes = (const m_f32 *)operand[EW_NMS_BOXES] + (int64_t)b * p->n * 4;
    for (int32_t k = 0; k < p->classes; k++) {
      const m_f32 *scores =
          (const m_f32 *)operand[EW_NMS_SCORES] + ((int64_t)b * p->classes + k) * p->n;
      int64_t n = 0;
      const int64_t start = found;
      for (int32_t i = 0; i < p->n; i++)
        if (!p->limited || scores[i] > p->score) heap[n++] = i;
      for (int64_t i = n / 2 - 1; i >= 0; i--) sink(heap, scores, n, i, heap[i]);
      while (n && found - start < p->most) {
        if (ew_stopping(c)) return EW_OK;
        const int32_t best = heap[0];
        if (--n) sink(heap, scores, n, 0, heap[n]);
        bool keep = true;
        for (int64_t s = start; s < found && keep; s++)
          keep = !overlap(boxes + 4 * (int64_t)best, boxes + 4 * y[3 * s + 2], p->center, p->iou);
        if (keep) y[3 * found] = b, y[3 * found + 1] = k, y[3 * found + 2] = best, found++;
      }
    }
  }
  *(m_i64 *)operand[EW_NMS_COUNT] = found;
  return EW_OK;
}
