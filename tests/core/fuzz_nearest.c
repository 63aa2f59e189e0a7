/* Packs vectors of all sizes and numbers in parts, and searches in them, with each buffer in a heap
 * block of exactly its size. For usage see common/fuzz.h. */
#include "common/fuzz.h"
#include "search/nearest.h"

enum { MAX_PARTS = 4, MAX_COUNT = 700, BLOCK = EW_NEAREST_BLOCK };

static void *block(size_t bytes) {
  uint8_t *p = malloc(bytes ? bytes : 1);
  if (!p) abort();
  return p;
}

static float number(void) {
  switch (below(40)) {
  case 0: return (float)telling();
  case 1: return 0;
  case 2: return 1e-41f;
  default: return (float)below(2001) / 1000 - 1;
  }
}

static bool is_finite(const float *x, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (x[i] - x[i] != 0) return false;
  return true;
}

static void refuses(void) {
  ew_nearest n = {(uint32_t)telling(), (uint32_t)telling(), below(3), (uint32_t)telling()};
  const int32_t bytes = ew_nearest_work_bytes(&n);
  if (bytes >= 0 && (!n.count || !n.size || n.size > EW_NEAREST_MAX_SIZE || n.is_bytes > 1))
    die("sizes that are not allowed have memory", "nearest");
  if (bytes < 0 && !ew_nearest_pack(&n, NULL, NULL, NULL)) die("packs them", "nearest");
  failed += bytes < 0;
}

static void run(ew_engine *engine) {
  if (one_in(4)) refuses();
  const uint32_t size = one_in(4) ? 1 + below(700) : 1 + below(20), is_bytes = below(2),
                 blocks = (size + BLOCK - 1) / BLOCK, parts = 1 + below(MAX_PARTS);
  ew_nearest part[MAX_PARTS];
  void *packed[MAX_PARTS];
  float *scales[MAX_PARTS];
  uint32_t total = 0, most = 0;
  bool ok = true;
  for (uint32_t i = 0; i < parts; i++) {
    const uint32_t count = 1 + below(one_in(8) ? MAX_COUNT : 9);
    part[i] = (ew_nearest){count, size, is_bytes, total};
    const size_t numbers = (size_t)count * size;
    float *given = block(4 * numbers);
    for (size_t j = 0; j < numbers; j++) given[j] = number();
    packed[i] = block(is_bytes ? (size_t)count * blocks * BLOCK : 4 * numbers);
    scales[i] = is_bytes ? block(4 * (size_t)count * blocks) : NULL;
    const int32_t code = ew_nearest_pack(&part[i], given, packed[i], scales[i]);
    if ((code == EW_OK) != is_finite(given, numbers)) die("finite numbers", "pack");
    ok &= code == EW_OK;
    free(given);
    total += count, most = count > most ? count : most;
  }
  float *query = block(4 * (size_t)size);
  for (uint32_t j = 0; j < size; j++) query[j] = number();
  const uint32_t top_k = 1 + below(one_in(3) ? total + 3 : 5);
  ew_match *best = block(top_k * sizeof *best);
  const ew_nearest largest = {most, size, is_bytes, 0};
  void *work = block((size_t)ew_nearest_work_bytes(&largest));
  int32_t found = 0;
  for (uint32_t i = 0; ok && i < parts && found >= 0; i++)
    found = ew_nearest_find(engine, &part[i], packed[i], scales[i], query, work, best,
                            (uint32_t)found, top_k, i + 1 == parts);
  if (ok && found < 0 && is_finite(query, size)) die("a search is refused", "find");
  if (ok && found >= 0) {
    if ((uint32_t)found != (top_k < total ? top_k : total)) die("a number of matches", "find");
    for (int32_t i = 0; i < found; i++) {
      if (best[i].index >= total) die("an index", "find");
      if (i && (best[i].score > best[i - 1].score ||
                (best[i].score == best[i - 1].score && best[i].index <= best[i - 1].index)))
        die("the order of matches", "find");
    }
    ran++;
  }
  for (uint32_t i = 0; i < parts; i++) free(packed[i]), free(scales[i]);
  free(query), free(best), free(work);
}

int main(int argc, char **argv) { return fuzz(argc, argv, run, false); }
