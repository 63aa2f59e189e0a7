/* The limits of this machine in the browser: multiply-adds and integer dot products in registers,
 * memory reads, moved bytes, and functions. Built in both flavours: relaxed SIMD has dot products
 * of bytes, simd128 of 16-bit integers. */
#include "../../../core/vector_math.h"
#include <stdlib.h>

/* Independent sums, to hide the latency of a multiplication and an addition as far as the number of
 * registers permits; relaxed SIMD fuses both, and its dot products need registers of their own. */
#if EW_RELAXED_DOTS
enum { CHAINS = 8 };
#else
enum { CHAINS = 12 };
#endif
static volatile float sink;
/* Read from memory: V8 makes vector constants anew wherever they are used, see simd/constants.h,
 * and then keeps sums in memory. */
static const volatile float factors[] = {0.999f, 0.001f};
static const volatile int32_t integer_factors[] = {0x03020103, 0x01020301};

/* Returns the number of floating-point operations. */
__attribute__((export_name("multiply_adds"))) double multiply_adds(int32_t rounds) {
  vf x[CHAINS], a = vf_splat(factors[0]), b = vf_splat(factors[1]);
  for (int i = 0; i < CHAINS; i++) x[i] = vf_splat((float)i);
  for (int32_t j = 0; j < rounds; j++)
    for (int i = 0; i < CHAINS; i++) x[i] = vf_fma(a, x[i], b);
  vf sum = x[0];
  for (int i = 1; i < CHAINS; i++) sum += x[i];
  sink = vf_sum(sum);
  return 2.0 * VF * CHAINS * rounds;
}

/* Returns the number of integer multiplications and additions. */
#if EW_RELAXED_DOTS
#  define DOT vi_dot_bytes
enum { PER_LANE = 4 };
#else
#  define DOT vi_dot_shorts
enum { PER_LANE = 2 };
#endif
__attribute__((export_name("dots"))) double dots(int32_t rounds) {
  vi x[CHAINS], a = vi_splat(integer_factors[0]), b = vi_splat(integer_factors[1]);
  for (int i = 0; i < CHAINS; i++) x[i] = vi_splat(i);
  for (int32_t j = 0; j < rounds; j++)
    for (int i = 0; i < CHAINS; i++) x[i] = DOT(a + j, b, x[i]);
  vi sum = x[0];
  for (int i = 1; i < CHAINS; i++) sum += x[i];
  sink = (float)(sum[0] + sum[1] + sum[2] + sum[3]);
  return 2.0 * PER_LANE * VF * CHAINS * rounds;
}

static float *area;
static const int64_t SIZE = 64 << 20;

/* Returns the number of bytes read, far more than fit caches; 0 if memory runs out. */
__attribute__((export_name("read_memory"))) double read_memory(void) {
  if (!area) {
    area = malloc((size_t)SIZE);
    if (!area) return 0;
    for (int64_t i = 0; i < SIZE / 4; i++) area[i] = (float)(i & 1023);
  }
  vf sum[4] = {vf_splat(0), vf_splat(0), vf_splat(0), vf_splat(0)};
  for (int64_t i = 0; i < SIZE / 4; i += 4 * VF)
    for (int j = 0; j < 4; j++) sum[j] += vf_load(area + i + j * VF);
  sink = vf_sum(sum[0] + sum[1] + sum[2] + sum[3]);
  return (double)SIZE;
}

/* Reads and writes the given numbers of bytes, in place or from one buffer to another. Returns 0 if
 * memory runs out. */
static uint8_t *from, *to;
static int64_t from_bytes, to_bytes;
static uint8_t *at_least(uint8_t **block, int64_t *have, int64_t bytes) {
  if (*have < bytes) {
    free(*block);
    *block = calloc(1, (size_t)bytes);
    *have = *block ? bytes : 0;
  }
  return *block;
}
__attribute__((export_name("move"))) int32_t move(int32_t reads, int32_t writes, int32_t in_place) {
  const int64_t step = 16 * VF, both = (reads < writes ? reads : writes) / step * step;
  const uint8_t *x = at_least(&from, &from_bytes, reads + step);
  uint8_t *y = in_place ? from : at_least(&to, &to_bytes, writes + step);
  if (!x || !y) return 0;
  vf sum[4] = {vf_splat(0), vf_splat(0), vf_splat(0), vf_splat(0)};
  int64_t i = 0;
  for (; i < both; i += step)
    for (int j = 0; j < 4; j++) {
      vf v = vf_load((const real *)(x + i) + j * VF);
      vf_store((real *)(y + i) + j * VF, in_place ? (vf)((vi)v ^ 1) : v);
    }
  for (int64_t k = i; k < reads; k += step)
    for (int j = 0; j < 4; j++) sum[j] += vf_load((const real *)(x + k) + j * VF);
  for (; i < writes; i += step)
    for (int j = 0; j < 4; j++) vf_store((real *)(y + i) + j * VF, vf_splat(1));
  sink = vf_sum(sum[0] + sum[1] + sum[2] + sum[3]);
  return 1;
}

/* Evaluates a function on 1024 values, which stay in the L1 cache, with the formula of the kernels.
 * READ is a pass over values that are near: what a norm needs before it can write its first result.
 * BYTES divides, rounds, saturates and packs; FLOATS unpacks; RANDOM: Philox-4x32-7. */
enum { EXP, SQRT, DIVIDE, LOG, TANH, ERF, SOFT, SIGMOID, READ, HALVES, BYTES, FLOATS, RANDOM };
enum { N = 1024 };
enum { SIDE = 4, ROUNDS = 7 };
static float in[N], out[N];
static uint8_t packed[2 * N];

/* Functions of their own, so that V8 allocates registers for one loop at a time. */
#define ALONE static __attribute__((noinline)) void
ALONE sum_up(void) {
  vf sum[SIDE] = {{0}};
  for (int i = 0; i < N; i += SIDE * VF)
    for (int u = 0; u < SIDE; u++) sum[u] += vf_load(in + i + u * VF);
  vf_store(out, sum[0] + sum[1] + sum[2] + sum[3]);
}
ALONE into_halves(void) {
  for (int i = 0; i < N; i += 2 * VF)
    vf_store_halves((half *)packed + i, vf_load(in + i), vf_load(in + i + VF));
}
static const volatile float bounds[] = {0, 255, 0x1.8p23f, 0x1p23f, 0.01f};
ALONE into_bytes(void) {
  const vf low = vf_splat(bounds[0]), high = vf_splat(bounds[1]), round = vf_splat(bounds[2]),
           scale = vf_splat(bounds[4]);
  for (int i = 0; i < N; i += SIDE * VF) {
    vi v[SIDE];
    for (int u = 0; u < SIDE; u++)
      v[u] = (vi)(vf_min(vf_max(low, vf_load(in + i + u * VF) / scale), high) + round) - (vi)round;
    *(u8x16_m *)(packed + i) = u8x16_of(v[0], v[1], v[2], v[3]);
  }
}
ALONE into_floats(void) {
  const vf base = vf_splat(bounds[3]);
  for (int i = 0; i < N; i += 2 * VF)
    for (int u = 0; u < 2 * VF; u += VF)
      vf_store(out + i + u, (vf)(vi_load_bytes(packed + i + u) ^ (vi)base) - base);
}
ALONE random_numbers(int32_t round_of_calls) {
  static const volatile u32x4 factors[2] = {{0xd2511f53, 0xd2511f53, 0xd2511f53, 0xd2511f53},
                                            {0xcd9e8d57, 0xcd9e8d57, 0xcd9e8d57, 0xcd9e8d57}};
  for (int i = 0; i < N; i += 32) {
    u32x4 c[2][4] = {{{0}}}, low[2], high[2];
    u32x4 k0 = (u32x4){0} + (uint32_t)round_of_calls, k1 = k0;
    for (int s = 0; s < 2; s++) c[s][0] = (u32x4){0, 1, 2, 3} + (uint32_t)(i + s);
    for (int r = 0; r < ROUNDS; r++, k0 += 0x9e3779b9u, k1 += 0xbb67ae85u)
      for (int s = 0; s < 2; s++) {
        u32x4_mul_wide(c[s][0], factors[0], &low[0], &high[0]);
        u32x4_mul_wide(c[s][2], factors[1], &low[1], &high[1]);
        c[s][0] = high[1] ^ c[s][1] ^ k0, c[s][1] = low[1];
        c[s][2] = high[0] ^ c[s][3] ^ k1, c[s][3] = low[0];
      }
    for (int w = 0; w < 8; w++) *(u32x4_m *)(out + i + 4 * w) = c[w / 4][w % 4];
  }
}
__attribute__((export_name("functions"))) void functions(int32_t kind, int32_t rounds) {
  for (int i = 0; i < N; i++)
    in[i] = (float)i * (kind == SQRT || kind == LOG   ? 1.0f
                        : kind == EXP || kind == SOFT ? -0.01f
                                                      : 0.002f);
  for (int32_t r = 0; r < rounds; r++) {
    switch (kind) {
#define LOOP(NAME, f)                                                      \
  case NAME:                                                               \
    for (int i = 0; i < N; i += VF) vf_store(out + i, f(vf_load(in + i))); \
    break
      LOOP(EXP, vf_exp_low);
      LOOP(SQRT, vf_sqrt);
      LOOP(DIVIDE, 1.0f /);
      LOOP(LOG, vf_log);
      LOOP(TANH, vf_tanh);
      LOOP(ERF, vf_erf);
      LOOP(SOFT, vf_exp_soft);
      LOOP(SIGMOID, vf_sigmoid);
    case READ: sum_up(); break;
    case HALVES: into_halves(); break;
    case BYTES: into_bytes(); break;
    case FLOATS: into_floats(); break;
    case RANDOM: random_numbers(r); break;
    }
    in[r & 1023] += out[(r + 7) & 1023] * 1e-20f; /* prevents the compiler from removing rounds */
    packed[r & 1023] ^= (uint8_t)r;
  }
}
