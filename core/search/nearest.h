/* Search in many vectors: those with the greatest dot products with a query, all of them compared.
 * The number of vectors is known at run time only and grows, so no plan can have it.
 *
 * Vectors are kept as float32 [count, size], or as signed bytes [count, blocks, EW_NEAREST_BLOCK]
 * with float32 scales [count, blocks], blocks = ceil(size / EW_NEAREST_BLOCK). They come in parts:
 * the host packs vectors with ew_nearest_pack, and passes the parts to ew_nearest_find one after
 * the other. The results are the same bits in all builds and for any number of threads: sums have a
 * fixed order, and no multiply-add is fused.
 *
 * Functions return a nonnegative result, or -EW_E_ARGUMENT for sizes that are not allowed or
 * numbers that are not finite, -EW_E_MEMORY for parts beyond 2 GiB, -EW_E_STOPPED after ew_stop.
 * Nothing here allocates. Memory is 16-byte aligned. */
#ifndef EDGEWISE_NEAREST_H
#define EDGEWISE_NEAREST_H
#include "engine.h"

enum { EW_NEAREST_BLOCK = 128, EW_NEAREST_MAX_SIZE = 1 << 16 };

/* A part of the vectors. */
typedef struct {
  uint32_t count;    /* vectors */
  uint32_t size;     /* numbers of each, 1 to EW_NEAREST_MAX_SIZE */
  uint32_t is_bytes; /* signed bytes with scales instead of float32 */
  uint32_t first;    /* index of the first vector, for the results */
} ew_nearest;

typedef struct {
  float score;
  uint32_t index;
} ew_match;

/* Bytes of ew_nearest_find's `work`. */
int32_t ew_nearest_work_bytes(const ew_nearest *);

/* Packs float32 vectors [count, size]. scales: NULL for float32. */
int32_t ew_nearest_pack(const ew_nearest *, const float *vectors, void *packed, float *scales);

/* Adds to the `found` best matches so far those of a part, and returns how many there are then, at
 * most top_k. best: room for top_k; a heap until `last`, then sorted: the highest score first, of
 * equal ones the lowest index. query: float32 [size]. */
int32_t ew_nearest_find(ew_engine *, const ew_nearest *, const void *packed, const float *scales,
                        const float *query, void *work, ew_match *best, uint32_t found,
                        uint32_t top_k, uint32_t last);
#endif
