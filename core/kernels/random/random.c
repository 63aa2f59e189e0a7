/* Random numbers that depend only on a seed, a stream and the index of the element, so that they
 * can be recomputed: RandomUniform, RandomNormal, Bernoulli, Dropout.
 *
 * The generator is Philox-4x32-7 (Salmon, Moraes, Dror, Shaw 2011, Parallel Random Numbers: As Easy
 * as 1, 2, 3; seven rounds pass BigCrush). Its key is the seed and its counter (block, 0, stream,
 * 0); each block yields four words. Four blocks are computed side by side in vector lanes: word w
 * of block 4 b + l belongs to element 16 b + 4 w + l. A task is a range of LENGTH elements. */
#include "kernel.h"
#include "simd.h"
#include <string.h>

/* SIDE: groups of blocks computed together, which hides the latency of the multiplications; STRIDE:
 * their elements; LENGTH: elements per task */
enum { ROUNDS = 7, SIDE = 2, STRIDE = 16 * SIDE, LENGTH = 16384 };

typedef struct {
  const ew_random_params *p;
  const real *x;
  real *y;
  uint32_t key[2];
} random_job;

/* see u32x4_mul_wide */
static const volatile u32x4 factors[2] = {{0xd2511f53, 0xd2511f53, 0xd2511f53, 0xd2511f53},
                                          {0xcd9e8d57, 0xcd9e8d57, 0xcd9e8d57, 0xcd9e8d57}};

static void generate(const random_job *w, uint32_t index, const real *x, real *y) {
  const ew_random_params *p = w->p;
  u32x4 c[SIDE][4], low[2], high[2];
  u32x4 k0 = (u32x4){0} + w->key[0], k1 = (u32x4){0} + w->key[1];
  for (int s = 0; s < SIDE; s++) {
    c[s][0] = (u32x4){0, 1, 2, 3} + (index * SIDE + (uint32_t)s) * 4,
    c[s][2] = (u32x4){0} + (uint32_t)p->stream;
    c[s][1] = c[s][3] = (u32x4){0};
  }
  for (int round = 0; round < ROUNDS; round++, k0 += 0x9e3779b9u, k1 += 0xbb67ae85u)
    for (int s = 0; s < SIDE; s++) {
      u32x4_mul_wide(c[s][0], factors[0], &low[0], &high[0]),
          u32x4_mul_wide(c[s][2], factors[1], &low[1], &high[1]);
      c[s][0] = high[1] ^ c[s][1] ^ k0, c[s][1] = low[1], c[s][2] = high[0] ^ c[s][3] ^ k1,
      c[s][3] = low[0];
    }
  for (int i = 0; i < 4 * SIDE; i++) {
    u32x4 r = c[i / 4][i % 4];
    f32x4 v;
    if (x)
      v = (f32x4)((i32x4)(*(const f32x4_m *)(x + 4 * i) * p->scale) &
                  (i32x4)(r >= (uint32_t)p->threshold));
    else
      v = __builtin_convertvector((i32x4)(r >> 8), f32x4) * (p->scale * 0x1p-24f) + p->offset;
    *(f32x4_m *)(y + 4 * i) = v;
  }
}

static void random_task(void *arg, int32_t index, int32_t thread) {
  const random_job *w = arg;
  (void)thread;
  for (int64_t i = (int64_t)index * LENGTH, end = i + LENGTH; i < end && i < w->p->n; i += STRIDE) {
    const int64_t n = w->p->n - i;
    if (n >= STRIDE) {
      generate(w, (uint32_t)(i / STRIDE), w->x ? w->x + i : NULL, w->y + i);
      continue;
    }
    float x[STRIDE] = {0}, y[STRIDE];
    if (w->x) memcpy(x, w->x + i, (size_t)n * 4);
    generate(w, (uint32_t)(i / STRIDE), w->x ? x : NULL, y);
    memcpy(w->y + i, y, (size_t)n * 4);
  }
}

int32_t ew_k_random(ew_context *ctx, const ew_random_params *p, void *const *operand) {
  const uint64_t seed = (uint64_t)*(const long_m *)operand[EW_RANDOM_SEED];
  random_job w = {
      p, operand[EW_RANDOM_X], operand[EW_RANDOM_Y], {(uint32_t)seed, (uint32_t)(seed >> 32)}};
  ew_parallel(ctx, (p->n - 1) / LENGTH + 1, random_task, &w);
  return EW_OK;
}
