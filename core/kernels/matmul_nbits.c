/* y = a @ dequantized b, b of 2, 4 or 8 bits in blocks with a scale each. */
#include "gemm.h"

/* bitsandbytes' code books, as in onnxruntime's MatMulBnb4 */
static const float fp4[16] = {0.0f, 5.208333333e-03f, 0.66666667f, 1.0f, 0.33333333f, 0.5f, 0.16666667f, 0.25f, -0.0f, -5.208333333e-03f, -0.66666667f, -1.0f, -0.33333333f, -0.5f, -0.16666667f, -0.25f};
static const float nf4[16] = {-1.0f, -0.6961928009986877f, -0.5250730514526367f, -0.39491748809814453f, -0.28444138169288635f, -0.18477343022823334f, -0.09105003625154495f, 0.0f,
                              0.07958029955625534f, 0.16093020141124725f, 0.24611230194568634f, 0.33791524171829224f, 0.44070982933044434f, 0.5626170039176941f, 0.7229568362236023f, 1.0f};

typedef struct {
  const ew_matmul_nbits_params *p;
  const uint8_t *b, *zeros;
  const void *scales;
  int32_t blocks, block_bytes; /* of a row of b; format 0 */
} nbits;

EW_INLINE float scale_at(const nbits *w, int64_t i) { return real_at(w->scales, i, w->p->scale_type == EW_F16); }

EW_INLINE float zero_at(const nbits *w, int32_t row, int32_t block) {
  const ew_matmul_nbits_params *p = w->p;
  if (!w->zeros) return (float)(1 << (p->bits - 1));
  if (p->zero_type != EW_U8) return real_at(w->zeros, (int64_t)row * w->blocks + block, p->zero_type == EW_F16);
  int64_t row_bytes = ((int64_t)w->blocks * p->bits + 7) / 8, bit = (int64_t)block * p->bits;
  return (float)(w->zeros[row * row_bytes + bit / 8] >> bit % 8 & ((1 << p->bits) - 1));
}

/* The n fields of `bits` from the at-th of b, looked up, to every `step`-th element of out. */
EW_INLINE void look_up(const uint8_t *b, int64_t at, int32_t n, int bits, bool high_first, const float *value, real *out, int32_t step) {
  const int per_byte = 8 / bits, mask = (1 << bits) - 1, flip = high_first ? 8 - bits : 0;
  int32_t i = 0;
  for (; i < n && (at + i) % per_byte; i++) out[(int64_t)i * step] = value[b[(at + i) / per_byte] >> (((at + i) % per_byte * bits) ^ flip) & mask];
  for (b += (at + i) / per_byte; i + per_byte <= n; i += per_byte, b++)
    for (int j = 0; j < per_byte; j++) out[(int64_t)(i + j) * step] = value[*b >> ((j * bits) ^ flip) & mask];
  for (int j = 0; i < n; i++, j++) out[(int64_t)i * step] = value[*b >> ((j * bits) ^ flip) & mask];
}

/* Weights [k0, k0 + count) of row `row`, to every `step`-th element of out. */
EW_INLINE void dequantize(const nbits *w, int32_t row, int32_t k0, int32_t count, real *out, int32_t step) {
  const ew_matmul_nbits_params *p = w->p;
  float value[16];
  for (int32_t i = 0, n; i < count; i += n, out += (int64_t)n * step) {
    /* The flattened array of MatMulBnb4 lets blocks run over the ends of rows. */
    int64_t at = p->format ? (int64_t)row * p->k + k0 + i : k0 + i;
    int64_t block = at / p->block + (p->format ? 0 : (int64_t)row * w->blocks), left = p->block - at % p->block;
    float scale = scale_at(w, block);
    n = left < count - i ? (int32_t)left : count - i;
    if (p->format && (EW_USES(NBITS_FORMAT, 1) || EW_USES(NBITS_FORMAT, 2))) {
      const float *code = p->format == 1 ? fp4 : nf4;
      for (int q = 0; q < 16; q++) value[q] = code[q] * scale;
      look_up(w->b, at, n, 4, true, value, out, step);
      continue;
    }
    float zero = zero_at(w, row, (int32_t)(at / p->block));
    const uint8_t *b = w->b + block * w->block_bytes;
    at %= p->block;
    if (p->bits == 8)
      for (int32_t j = 0; j < n; j++) out[(int64_t)j * step] = ((float)(int32_t)b[at + j] - zero) * scale;
    else {
      for (int q = 0; q < 16; q++) value[q] = ((float)q - zero) * scale;
      if (EW_USES(NBITS, 2) && p->bits == 2) look_up(b, at, n, 2, false, value, out, step);
      else look_up(b, at, n, 4, false, value, out, step);
    }
  }
}

/* The same one behind the other. */
static __attribute__((noinline)) void dequantize_row(const nbits *w, int32_t row, int32_t k0, int32_t count, real *out) { dequantize(w, row, k0, count, out, 1); }

static void pack_b(const ew_gemm_job *g, real *panels, int32_t k0, int32_t kc, int32_t j0, int32_t nc) {
  for (int32_t j = 0; j < nc; j += NR, panels += (int64_t)kc * NR)
    for (int32_t c = 0; c < NR; c++) {
      if (j + c < nc) dequantize(g->b, j0 + j + c, k0, kc, panels + c, NR);
      else
        for (int32_t i = 0; i < kc; i++) panels[(int64_t)i * NR + c] = 0;
    }
}

/* The same of b transposed: its rows are what is summed over, and lie in panels as they are stored. */
static void pack_rows(const ew_gemm_job *g, real *panels, int32_t k0, int32_t kc, int32_t j0, int32_t nc) {
  enum { PIECE = 256 };
  for (int32_t p = 0; p < kc; p++)
    for (int32_t j = 0; j < nc; j += PIECE) {
      float piece[PIECE];
      int32_t n = nc - j < PIECE ? nc - j : PIECE;
      dequantize_row(g->b, k0 + p, j0 + j, n, piece);
      for (; n % NR; n++) piece[n] = 0;
      for (int32_t i = 0; i < n; i += NR)
        for (int32_t c = 0; c < NR; c += VF) vf_store(panels + (int64_t)(j + i) * kc + p * NR + c, vf_load(piece + i + c));
    }
}

/* ---- few rows ----
 *
 * Weights are read 16 bytes at a time, a group; a is put into the order in which a group's weights come out of their bytes, once
 * for all rows of b. With q - zero the zero point is a sum over a: each block's accumulator starts from -zero * sum(a). */

enum { FEW = 8, CHUNK = 512 };

typedef struct few_rows {
  const nbits *w;
  const ew_gemm_job *g;
  void (*rows)(const struct few_rows *, int32_t row, float *out); /* out[m][2] = a times rows `row` and the next of b */
  real *ready;           /* a, prepared */
  int32_t cols;          /* of a task */
  int32_t groups, row;   /* groups of a block; floats of a prepared row */
  int32_t mask;          /* the lowest weight of a group's lane */
  bool symmetric;        /* zero is 2^(bits-1) */
} few_rows;

/* float32: lane i of the 4 holds 32/bits weights. Masking leaves a weight times a power of 2^bits, which a is divided by. The upper
 * half is shifted down first, since the sign bit must stay out of it. A prepared block: its start, then a in that order. */
EW_INLINE void prepare_floats(const few_rows *f, const real *a, real *ready, int bits) {
  const ew_matmul_nbits_params *p = f->w->p;
  int32_t per_lane = 32 / bits;
  for (int32_t block = 0; block < f->w->blocks; block++) {
    real *start = ready;
    float sum[4] = {0};
    ready += 4;
    for (int32_t g = 0; g < f->groups; g++)
      for (int32_t j = 0; j < per_lane; j++, ready += 4)
        for (int32_t i = 0; i < 4; i++) {
          int32_t at = (g * 4 + i) * per_lane + j, k = block * p->block + at;
          float x = k < p->k ? a[k] : 0;
          sum[i] += x, ready[i] = x;
        }
    for (int32_t i = 0; i < 4; i++) start[i] = -sum[i] * (f->symmetric ? (float)(1 << (bits - 1)) : 1);
  }
}

EW_INLINE f32x4 f32x4_fma(f32x4 a, f32x4 b, f32x4 acc) {
#if VF == 4
  return vf_fma(a, b, acc);
#else
  return acc + a * b;
#endif
}

/* Two rows of b at a time, so that a is loaded half as often. */
EW_INLINE void rows_floats(const few_rows *f, int32_t row, float *out, int bits, bool symmetric) {
  const nbits *w = f->w;
  /* From memory rather than a constant: a compiler that knows the sign converts as unsigned, which is slow on x86. */
  i32x4 mask = f->mask - (i32x4){0};
  int64_t row_bytes = (int64_t)w->blocks * w->block_bytes;
  for (int32_t i = 0; i < w->p->m; i++) {
    const real *a = f->ready + (int64_t)i * f->row;
    const uint8_t *b = w->b + row * row_bytes;
    f32x4 sum0 = {0}, sum1 = {0};
    for (int32_t block = 0; block < w->blocks; block++) {
      f32x4 x0 = *(const f32x4_m *)a, x1 = x0;
      if (!symmetric) x0 *= zero_at(w, row, block), x1 *= zero_at(w, row + 1, block);
      a += 4;
      for (int32_t g = 0; g < f->groups; g++, b += 16) {
        i32x4 v0 = *(const i32x4_m *)b, v1 = *(const i32x4_m *)(b + row_bytes);
        for (int j = 0; j < 32 / bits; j++, a += 4, v0 >>= bits, v1 >>= bits) {
          f32x4 y = *(const f32x4_m *)a;
          x0 = f32x4_fma(__builtin_convertvector(v0 & mask, f32x4), y, x0);
          x1 = f32x4_fma(__builtin_convertvector(v1 & mask, f32x4), y, x1);
        }
      }
      int64_t at = (int64_t)row * w->blocks + block;
      sum0 = f32x4_fma(x0, scale_at(w, at) - (f32x4){0}, sum0), sum1 = f32x4_fma(x1, scale_at(w, at + w->blocks) - (f32x4){0}, sum1);
    }
    out[i * 2] = f32x4_sum(sum0), out[i * 2 + 1] = f32x4_sum(sum1);
  }
}

/* Adding 1.5 * 2^23 leaves the rounded number in the lowest bits, whatever x is. */
EW_INLINE int8_t nearest(float x) {
  union { float f; uint32_t u; } v = {x + 0x1.8p23f};
  return (int8_t)(v.u & 255);
}

/* int8: a block of a is rounded to bytes with a scale of its own; a prepared block is that scale, -sum (times zero), then the bytes
 * in the order of a group's planes: all lowest fields of its 16 bytes, then all next ones, ... */
EW_INLINE void prepare_bytes(const few_rows *f, const real *a, real *ready, int bits) {
  const ew_matmul_nbits_params *p = f->w->p;
  int32_t planes = 8 / bits;
  for (int32_t block = 0; block < f->w->blocks; block++, ready += 8 + f->groups * planes * 4) {
    int32_t from = block * p->block, n = p->k - from < p->block ? p->k - from : p->block, sum = 0;
    float most = 0;
    for (int32_t i = 0; i < n; i++) {
      float x = a[from + i] < 0 ? -a[from + i] : a[from + i];
      most = x > most || x != x ? x : most; /* a NaN makes the scale NaN, and so y */
    }
    float scale = most / 127, inverse = most > 0 ? 127 / most : 0;
    int8_t *bytes = (int8_t *)(ready + 8);
    for (int32_t g = 0; g < f->groups; g++)
      for (int32_t i = 0; i < 16; i++)
        for (int32_t j = 0; j < planes; j++) {
          int32_t at = (g * 16 + i) * planes + j;
          int8_t q = at < n ? nearest(a[from + at] * inverse) : 0;
          sum += q, bytes[(g * planes + j) * 16 + i] = q;
        }
    *(i32x4_m *)ready = (i32x4){-sum * (f->symmetric ? 1 << (bits - 1) : 1)};
    ready[4] = scale, ready[5] = (float)-sum * scale;
  }
}

EW_INLINE void rows_bytes(const few_rows *f, int32_t row, float *out, int bits, bool symmetric) {
  const nbits *w = f->w;
  const int planes = 8 / bits;
  int64_t row_bytes = (int64_t)w->blocks * w->block_bytes;
  for (int32_t i = 0; i < w->p->m; i++) {
    const real *a = f->ready + (int64_t)i * f->row;
    const uint8_t *b = w->b + row * row_bytes;
    f32x4 sum0 = {0}, sum1 = {0};
    float rest0 = 0, rest1 = 0;
    for (int32_t block = 0; block < w->blocks; block++) {
      i32x4 x0 = symmetric ? (i32x4)*(const i32x4_m *)a : (i32x4){0}, x1 = x0, high0 = {0}, high1 = {0};
      const int8_t *bytes = (const int8_t *)(a + 8);
      for (int32_t g = 0; g < f->groups; g++, b += 16) {
        u8x16 v0 = *(const u8x16_m *)b, v1 = *(const u8x16_m *)(b + row_bytes);
        if (bits == 8) { /* seven bits at most go into the dot product: the halves of a byte one after the other */
          i8x16 y = *(const i8x16_m *)bytes;
          x0 = i32x4_dot_bytes(y, v0 & 15, x0), x1 = i32x4_dot_bytes(y, v1 & 15, x1);
          high0 = i32x4_dot_bytes(y, v0 >> 4, high0), high1 = i32x4_dot_bytes(y, v1 >> 4, high1);
          bytes += 16;
        } else
          for (int j = 0; j < planes; j++, bytes += 16) {
            i8x16 y = *(const i8x16_m *)bytes;
            u8x16 q0 = v0 >> (bits * j), q1 = v1 >> (bits * j);
            if (j < planes - 1) q0 &= (uint8_t)((1 << bits) - 1), q1 &= (uint8_t)((1 << bits) - 1);
            x0 = i32x4_dot_bytes(y, q0, x0), x1 = i32x4_dot_bytes(y, q1, x1);
          }
      }
      if (bits == 8) x0 += high0 << 4, x1 += high1 << 4;
      int64_t at = (int64_t)row * w->blocks + block;
      float scale0 = scale_at(w, at), scale1 = scale_at(w, at + w->blocks);
      if (!symmetric) rest0 += scale0 * zero_at(w, row, block) * a[5], rest1 += scale1 * zero_at(w, row + 1, block) * a[5];
      sum0 = f32x4_fma(__builtin_convertvector(x0, f32x4), scale0 * a[4] - (f32x4){0}, sum0);
      sum1 = f32x4_fma(__builtin_convertvector(x1, f32x4), scale1 * a[4] - (f32x4){0}, sum1);
      a += 8 + f->groups * planes * 4;
    }
    out[i * 2] = f32x4_sum(sum0) + rest0, out[i * 2 + 1] = f32x4_sum(sum1) + rest1;
  }
}

#define ROWS(kind, bits)                                                                                                     \
  static __attribute__((noinline)) void kind##_##bits(const few_rows *f, int32_t row, float *out) {                          \
    if (f->symmetric) rows_##kind(f, row, out, bits, true);                                                                  \
    else rows_##kind(f, row, out, bits, false);                                                                              \
  }
ROWS(floats, 2)
ROWS(floats, 4)
ROWS(floats, 8)
ROWS(bytes, 2)
ROWS(bytes, 4)
ROWS(bytes, 8)
#undef ROWS

static void group_task(void *arg, int32_t index, int32_t thread) {
  const few_rows *f = arg;
  const ew_gemm_job *g = f->g;
  (void)thread;
  int32_t begin = index * f->cols, end = g->n - begin < f->cols ? g->n : begin + f->cols;
  for (int32_t j = begin; j < end; j += 2) {
    float out[FEW * 2];
    int32_t first = j + 2 <= end ? j : g->n >= 2 ? j - 1 : j; /* at the edge the row before once more */
    f->rows(f, first, out);
    for (int32_t i = 0; i < g->m; i++) ew_finish_row(&g->finish, g->y + (int64_t)i * g->y_row + j, out + i * 2 + (j - first), i, j, end - j < 2 ? 1 : 2, g->y_row);
  }
}

/* What fits no group: four rows of b become floats, a piece at a time. */
static void dequantize_task(void *arg, int32_t index, int32_t thread) {
  const few_rows *f = arg;
  const ew_gemm_job *g = f->g;
  (void)thread;
  int32_t begin = index * f->cols, end = g->n - begin < f->cols ? g->n : begin + f->cols;
  for (int32_t j = begin; j < end; j += 4) {
    float b[4][CHUNK], sum[FEW][4] = {{0}}, out[16];
    int32_t cols = end - j < 4 ? end - j : 4;
    for (int32_t k0 = 0; k0 < g->k; k0 += CHUNK) {
      int32_t n = g->k - k0 < CHUNK ? g->k - k0 : CHUNK;
      for (int32_t c = 0; c < 4; c++) dequantize_row(f->w, j + (c < cols ? c : 0), k0, n, b[c]);
      for (int32_t i = 0, rows; i < g->m; i += rows) {
        rows = ew_dots_rows(g->m - i);
        ew_dots(rows, n, g->a + (int64_t)i * g->a_row + k0, g->a_row, b, CHUNK, false, out);
        for (int32_t e = 0; e < rows * 4; e++) sum[i + e / 4][e % 4] += out[e];
      }
    }
    for (int32_t i = 0; i < g->m; i++) ew_finish_row(&g->finish, g->y + (int64_t)i * g->y_row + j, sum[i], i, j, cols, g->y_row);
  }
}

static void few_rows_run(ew_context *ctx, const nbits *w, const ew_gemm_job *g, real *scratch) {
  const ew_matmul_nbits_params *p = w->p;
  few_rows f = {.w = w, .g = g, .ready = scratch, .mask = (1 << p->bits) - 1, .symmetric = !w->zeros};
  ew_task task = dequantize_task;
  bool bytes = p->accuracy == 4;
  int64_t block_bits = (int64_t)p->block * p->bits, row;
  f.groups = (int32_t)(block_bits / 128);
  row = bytes ? w->blocks * (8 + (int64_t)p->block / 4) : w->blocks * (4 + (int64_t)p->block);
  if (!p->format && block_bits % 128 == 0 && p->n >= 2 && scratch && p->m * row <= 262144) {
    task = group_task, f.row = (int32_t)row;
    for (int32_t i = 0; i < p->m; i++) {
      const real *a = g->a + (int64_t)i * g->a_row;
      real *ready = scratch + i * row;
      switch (p->bits + bytes) {
#define FLOATS(bits) if (EW_USES(NBITS, bits)) f.rows = floats_##bits, prepare_floats(&f, a, ready, bits); break
#define BYTES(bits) if (EW_USES(NBITS, bits) && EW_USES(NBITS_ACCURACY, 4)) f.rows = bytes_##bits, prepare_bytes(&f, a, ready, bits); break
      case 2: FLOATS(2);
      case 3: BYTES(2);
      case 4: FLOATS(4);
      case 5: BYTES(4);
      case 8: FLOATS(8);
      default: BYTES(8);
#undef FLOATS
#undef BYTES
      }
    }
  }
  /* A task is worth some 30 microseconds, 2^18 multiply-adds. */
  int64_t least = (1 << 18) / ((int64_t)p->k * p->m + 1) + 1, share = (p->n - 1) / ew_parallel_width(ctx) + 1;
  int64_t cols = ((share > least ? share : least) + 3) / 4 * 4;
  f.cols = cols < p->n ? (int32_t)cols : p->n;
  ew_parallel(ctx, (p->n - 1) / f.cols + 1, task, &f);
}

int32_t ew_k_matmul_nbits(ew_context *ctx, const ew_matmul_nbits_params *p, void *const *operand) {
  nbits w = {p, operand[EW_MATMUL_NBITS_B], operand[EW_MATMUL_NBITS_ZEROS], operand[EW_MATMUL_NBITS_SCALES], p->k / p->block + (p->k % p->block != 0),
             (int32_t)(((int64_t)p->block * p->bits + 7) / 8)};
  real *scratch = operand[EW_MATMUL_NBITS_SCRATCH];
  ew_gemm_job g = {.m = p->m, .n = p->n, .k = p->k, .a_row = p->a_row, .a_col = 1, .y_row = p->y_row, .a = operand[EW_MATMUL_NBITS_A], .y = operand[EW_MATMUL_NBITS_Y],
                   .finish = {.bias = operand[EW_MATMUL_NBITS_BIAS], .residual = operand[EW_MATMUL_NBITS_RESIDUAL], .bias_col = 1, .activation = p->activation, .alpha = 1, .beta = 1},
                   .pack_b = pack_b, .b = &w};
  const bool transposed = p->transposed && EW_USES(NBITS_TRANSPOSED, 1);
  if (transposed) g.n = p->k, g.k = p->n, g.pack_b = pack_rows;
  if (p->m <= FEW && !transposed) few_rows_run(ctx, &w, &g, scratch);
  else ew_gemm_run(ctx, &g, scratch, EW_GEMM_B_FLOATS, scratch ? scratch + EW_GEMM_B_FLOATS : NULL, EW_GEMM_A_FLOATS, ew_parallel_width(ctx));
  return EW_OK;
}
