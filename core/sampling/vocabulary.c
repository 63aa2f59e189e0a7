/* The bytes of tokens, and a trie of them in preorder. */
#include "sampling/vocabulary.h"
#include "sampling/internal.h"

static uint32_t begin_of(const uint32_t *ends, uint32_t token) {
  return token ? ends[token - 1] : 0;
}

static uint32_t length_of(const uint32_t *ends, uint32_t token) {
  return ends[token] - begin_of(ends, token);
}

static int before(const uint32_t *ends, const uint8_t *bytes, uint32_t a, uint32_t b) {
  const uint32_t m = length_of(ends, a), n = length_of(ends, b);
  const int order = memcmp(bytes + begin_of(ends, a), bytes + begin_of(ends, b), min_u32(m, n));
  return order ? order < 0 : m != n ? m < n : a < b;
}

static uint32_t shared(const uint32_t *ends, const uint8_t *bytes, uint32_t a, uint32_t b) {
  const uint32_t most = min_u32(length_of(ends, a), length_of(ends, b));
  const uint8_t *p = bytes + begin_of(ends, a), *q = bytes + begin_of(ends, b);
  uint32_t n = 0;
  while (n < most && p[n] == q[n]) n++;
  return n;
}

/* Merges the sorted runs [at, middle) and [middle, end). */
static void merge(const uint32_t *ends, const uint8_t *bytes, const uint32_t *from, uint32_t *to,
                  uint32_t at, uint32_t middle, uint32_t end) {
  uint32_t i = at, j = middle;
  for (uint32_t k = at; k < end; k++) {
    const int left = j >= end || (i < middle && !before(ends, bytes, from[j], from[i]));
    to[k] = left ? from[i++] : from[j++];
  }
}

static uint64_t size_of(uint64_t n, uint64_t sorted, uint64_t nodes, uint64_t text) {
  const uint64_t words = sizeof(ew_vocabulary) / 4 + n + sorted + 2 * nodes + 1;
  return (words * 4 + nodes * 3 + text + 15) & ~UINT64_C(15);
}

EW_API(ew_vocabulary_sort)
int32_t ew_vocabulary_sort(uint32_t n, const uint32_t *ends, const uint8_t *bytes,
                           uint32_t *order) {
  if (!n || n > MAX_VOCAB) return bad_field(EW_FIELD_VOCAB_SIZE);
  uint32_t count = 0;
  for (uint32_t i = 0; i < n; i++) {
    if (ends[i] < begin_of(ends, i) || ends[i] > MAX_TEXT) return EW_S_BAD_LIST;
    const uint32_t length = length_of(ends, i);
    if (length && length <= MAX_TOKEN) order[count++] = i;
  }
  uint32_t *from = order, *to = order + n;
  for (uint32_t width = 1; width < count; width *= 2) {
    for (uint32_t at = 0; at < count; at += 2 * width)
      merge(ends, bytes, from, to, at, min_u32(at + width, count), min_u32(at + 2 * width, count));
    uint32_t *const other = from;
    from = to, to = other;
  }
  if (from != order) memcpy(order, from, count * sizeof *order);
  uint64_t nodes = 0;
  for (uint32_t i = 0; i < count; i++)
    nodes += length_of(ends, order[i]) - (i ? shared(ends, bytes, order[i - 1], order[i]) : 0);
  order[2 * (uint64_t)n] = count;
  const uint64_t size = size_of(n, count, nodes, ends[n - 1]);
  return size > INT32_MAX ? EW_S_BAD_LIST : (int32_t)size;
}

EW_API(ew_vocabulary_make)
int32_t ew_vocabulary_make(uint32_t n, const uint32_t *ends, const uint8_t *bytes,
                           const uint32_t *order, void *vocabulary) {
  const uint32_t count = order[2 * (uint64_t)n], text = n ? ends[n - 1] : 0;
  uint32_t nodes = 0, deepest = 0;
  for (uint32_t i = 0; i < count; i++) {
    const uint32_t length = length_of(ends, order[i]);
    nodes += length - (i ? shared(ends, bytes, order[i - 1], order[i]) : 0);
    deepest = max_u32(deepest, length);
  }
  *(ew_vocabulary *)vocabulary = (ew_vocabulary){n, count, nodes, deepest};
  const ew_trie t = ew_s_trie(vocabulary);
  memcpy((uint32_t *)t.ends, ends, n * sizeof *ends);
  memcpy((uint32_t *)t.order, order, count * sizeof *order);
  memcpy((uint8_t *)t.text, bytes, text);
  uint32_t *at = (uint32_t *)t.at, *after = (uint32_t *)t.after;
  uint16_t *depth = (uint16_t *)t.depth;
  uint8_t *byte = (uint8_t *)t.byte;
  uint32_t k = 0;
  for (uint32_t i = 0; i < count; i++) {
    const uint32_t length = length_of(ends, order[i]);
    for (uint32_t d = i ? shared(ends, bytes, order[i - 1], order[i]) : 0; d < length; d++, k++) {
      at[k] = i, depth[k] = (uint16_t)d;
      byte[k] = bytes[begin_of(ends, order[i]) + d];
    }
  }
  at[nodes] = count;
  for (k = nodes; k--;) {
    after[k] = k + 1;
    while (after[k] < nodes && depth[after[k]] > depth[k]) after[k] = after[after[k]];
  }
  return 0;
}

ew_trie ew_s_trie(const void *vocabulary) {
  const ew_vocabulary *v = vocabulary;
  const uint32_t *words = (const uint32_t *)(v + 1);
  ew_trie t = {.n = v->n, .nodes = v->nodes, .deepest = v->deepest};
  t.ends = words;
  t.order = t.ends + v->n;
  t.at = t.order + v->sorted;
  t.after = t.at + v->nodes + 1;
  t.depth = (const uint16_t *)(t.after + v->nodes);
  t.byte = (const uint8_t *)(t.depth + v->nodes);
  t.text = t.byte + v->nodes;
  return t;
}
