/* Of bytes, the query is split into whole numbers of 16 bits with scales of the same blocks:
 * rounding it costs less than 1/30000 of a block's largest number, and the sums of a block are
 * exact, at most 128 * 128 * 32767 < 2^31. */
#include "search/nearest.h"
#include "kernel.h"
#include "simd.h"
#include "vm.h"

#if defined(__clang__)
#  pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
#  pragma GCC optimize("fp-contract=off")
#endif

enum { BLOCK = EW_NEAREST_BLOCK, ROWS = 512 /* vectors of a task */, ALIGN = 16 };

static uint64_t blocks_of(const ew_nearest *n) { return (n->size + BLOCK - 1u) / BLOCK; }
static uint64_t rounded(uint64_t bytes) { return (bytes + ALIGN - 1) & ~(uint64_t)(ALIGN - 1); }

static int32_t checked(const ew_nearest *n) {
  if (!n->size || n->size > EW_NEAREST_MAX_SIZE || n->is_bytes > 1 || !n->count ||
      n->first > UINT32_MAX - n->count)
    return -EW_E_ARGUMENT;
  const uint64_t row = n->is_bytes ? blocks_of(n) * BLOCK : n->size * sizeof(float);
  return n->count * row > INT32_MAX ? -EW_E_MEMORY : EW_OK;
}

/* The scores, the digits of the query, their scales. */
static uint64_t score_bytes(const ew_nearest *n) {
  return rounded((uint64_t)n->count * sizeof(float));
}
EW_API(ew_nearest_work_bytes) int32_t ew_nearest_work_bytes(const ew_nearest *n) {
  const uint64_t digits = blocks_of(n) * (BLOCK * sizeof(int16_t) + sizeof(float));
  const int32_t code = checked(n);
  if (code) return code;
  return score_bytes(n) + digits > INT32_MAX ? -EW_E_MEMORY : (int32_t)(score_bytes(n) + digits);
}

/* The largest magnitude; NaN or infinity if one number is not finite. */
static float most_of(const float *x, uint32_t n) {
  float most = 0;
  for (uint32_t i = 0; i < n; i++) {
    const float y = x[i] < 0 ? -x[i] : x[i];
    if (!(y <= most)) most = y; /* NaN stays, since it is not less or equal */
    if (most != most) break;
  }
  return most;
}

/* To the nearest integer, of two the even one; |x| < 2^22. */
static int32_t nearest_int(float x) {
  volatile float shifted = x + 0x1.8p23f;
  return (int32_t)(shifted - 0x1.8p23f);
}

static bool is_finite(float x) { return x - x == 0; }

#define TINY 0x1p-100f /* of less, the scale would not be exact: such a block counts as 0 */

/* Rounds a block of n numbers to integers of at most `largest` and returns the scale; NaN if one is
 * not finite. The rest of the block becomes 0. */
#define SPLIT(NAME, TYPE, LARGEST)                                              \
  static float NAME(const float *x, uint32_t n, TYPE *to) {                     \
    const float most = most_of(x, n), scale = most < TINY ? 0 : most / LARGEST; \
    if (!is_finite(most)) return most - most;                                   \
    for (uint32_t i = 0; i < BLOCK; i++)                                        \
      to[i] = i < n && scale > 0 ? (TYPE)nearest_int(x[i] / scale) : 0;         \
    return scale;                                                               \
  }
SPLIT(split_bytes, int8_t, 127)
SPLIT(split_shorts, int16_t, 32767)

EW_API(ew_nearest_pack)
int32_t ew_nearest_pack(const ew_nearest *n, const float *vectors, void *packed, float *scales) {
  const int32_t code = checked(n);
  if (code) return code;
  const uint32_t blocks = (uint32_t)blocks_of(n);
  float *floats = packed;
  int8_t *codes = packed;
  for (uint32_t v = 0; v < n->count; v++, vectors += n->size) {
    if (!n->is_bytes) {
      if (!is_finite(most_of(vectors, n->size))) return -EW_E_ARGUMENT;
      for (uint32_t i = 0; i < n->size; i++) *floats++ = vectors[i];
      continue;
    }
    for (uint32_t b = 0; b < blocks; b++, codes += BLOCK) {
      const uint32_t from = b * BLOCK, left = n->size - from;
      const float scale = split_bytes(vectors + from, left < BLOCK ? left : BLOCK, codes);
      if (scale != scale) return -EW_E_ARGUMENT;
      *scales++ = scale;
    }
  }
  return EW_OK;
}

typedef struct {
  const ew_nearest *part;
  const void *packed;
  const float *scales, *query;
  const int16_t *digits;
  const float *digit_scales;
  float *scores;
} search;

static float dot_of_floats(const float *a, const float *b, uint32_t n) {
  f32x4 sum[4] = {{0}, {0}, {0}, {0}};
  uint32_t i = 0;
  for (; i + 16 <= n; i += 16)
    for (int j = 0; j < 4; j++)
      sum[j] += *(const f32x4_m *)(a + i + 4 * j) * *(const f32x4_m *)(b + i + 4 * j);
  const f32x4 all = (sum[0] + sum[1]) + (sum[2] + sum[3]);
  float total = (all[0] + all[1]) + (all[2] + all[3]);
  for (; i < n; i++) total += a[i] * b[i];
  return total;
}

static float dot_of_bytes(const search *s, uint32_t row) {
  const uint32_t blocks = (uint32_t)blocks_of(s->part);
  const int8_t *codes = (const int8_t *)s->packed + (size_t)row * blocks * BLOCK;
  const float *scales = s->scales + (size_t)row * blocks;
  const int16_t *digits = s->digits;
  float total = 0;
  for (uint32_t b = 0; b < blocks; b++) {
    vi sum = {0};
    for (int i = 0; i < BLOCK; i += 2 * VF)
      sum = vi_dot_shorts(vi_load_shorts(codes + i), *(const vi_m *)(digits + i), sum);
    int32_t whole = 0;
    for (int i = 0; i < VF; i++) whole += sum[i];
    total += (float)whole * (scales[b] * s->digit_scales[b]);
    codes += BLOCK, digits += BLOCK;
  }
  return total;
}

static void score_rows(void *arg, int32_t index, int32_t thread) {
  (void)thread;
  const search *s = arg;
  const uint32_t from = (uint32_t)index * ROWS, left = s->part->count - from;
  for (uint32_t i = from; i < from + (left < ROWS ? left : ROWS); i++)
    s->scores[i] = s->part->is_bytes
                       ? dot_of_bytes(s, i)
                       : dot_of_floats((const float *)s->packed + (size_t)i * s->part->size,
                                       s->query, s->part->size);
}

/* Whether a comes after b in the results. A sum that overflowed to NaN comes last. */
static bool is_worse(ew_match a, ew_match b) {
  const float x = a.score == a.score ? a.score : -__builtin_inff(),
              y = b.score == b.score ? b.score : -__builtin_inff();
  return x != y ? x < y : a.index > b.index;
}

/* Moves the match at `at` down a heap whose root is the worst one. */
static void sink(ew_match *heap, uint32_t n, uint32_t at) {
  const ew_match moved = heap[at];
  for (uint32_t child; (child = 2 * at + 1) < n; at = child) {
    if (child + 1 < n && is_worse(heap[child + 1], heap[child])) child++;
    if (!is_worse(heap[child], moved)) break;
    heap[at] = heap[child];
  }
  heap[at] = moved;
}

static void rise(ew_match *heap, uint32_t at) {
  const ew_match moved = heap[at];
  for (; at && is_worse(moved, heap[(at - 1) / 2]); at = (at - 1) / 2)
    heap[at] = heap[(at - 1) / 2];
  heap[at] = moved;
}

EW_API(ew_nearest_find)
int32_t ew_nearest_find(ew_engine *e, const ew_nearest *n, const void *packed, const float *scales,
                        const float *query, void *work, ew_match *best, uint32_t found,
                        uint32_t top_k, uint32_t last) {
  const int32_t needed = ew_nearest_work_bytes(n);
  if (needed < 0) return needed;
  if (found > top_k || !top_k) return -EW_E_ARGUMENT;
  const uint32_t blocks = (uint32_t)blocks_of(n);
  int16_t *digits = (int16_t *)((uint8_t *)work + score_bytes(n));
  float *digit_scales = (float *)(digits + (size_t)blocks * BLOCK);
  for (uint32_t b = 0; b < blocks; b++) {
    const uint32_t from = b * BLOCK, left = n->size - from;
    const float scale =
        split_shorts(query + from, left < BLOCK ? left : BLOCK, digits + (size_t)b * BLOCK);
    if (scale != scale) return -EW_E_ARGUMENT;
    digit_scales[b] = scale;
  }
  search s = {n, packed, scales, query, digits, digit_scales, work};
  ew_context c = {.engine = e};
  __atomic_store_n(&e->stopped, 0, __ATOMIC_RELAXED);
  ew_parallel(&c, (int32_t)((n->count + ROWS - 1) / ROWS), score_rows, &s);
  if (__atomic_load_n(&e->stopped, __ATOMIC_RELAXED)) return -EW_E_STOPPED;

  for (uint32_t i = 0; i < n->count; i++) {
    const ew_match one = {s.scores[i], n->first + i};
    if (found < top_k)
      best[found] = one, rise(best, found++);
    else if (is_worse(best[0], one))
      best[0] = one, sink(best, found, 0);
  }
  if (last)
    for (uint32_t i = found; i-- > 1;) {
      const ew_match worst = best[0];
      best[0] = best[i], best[i] = worst;
      sink(best, i, 0);
    }
  return (int32_t)found;
}
