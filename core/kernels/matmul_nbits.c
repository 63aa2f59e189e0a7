/* y = a @ dequantized b, b of 2, 4 or 8 bits in blocks with a scale each. */
#include "each.h"
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

/* Asked once for a row: EW_USES is a call. */
EW_INLINE bool half_scales_of(const nbits *w) { return EW_USES(NBITS_SCALES, EW_F16) && w->p->scale_type == EW_F16; }
EW_INLINE float scale_at(const nbits *w, int64_t i, bool half) { return real_at(w->scales, i, half); }

EW_INLINE float zero_at(const nbits *w, int32_t row, int32_t block) {
  const ew_matmul_nbits_params *p = w->p;
  if (!w->zeros) return (float)(1 << (p->bits - 1));
  if (p->zero_type != EW_U8) return real_at(w->zeros, (int64_t)row * w->blocks + block, p->zero_type == EW_F16);
  int64_t row_bytes = ((int64_t)w->blocks * p->bits + 7) / 8, bit = (int64_t)block * p->bits;
  return (float)(w->zeros[row * row_bytes + bit / 8] >> bit % 8 & ((1 << p->bits) - 1));
}

/* The n fields of `bits` from the at-th of b, looked up. */
EW_INLINE void look_up(const uint8_t *b, int64_t at, int32_t n, int bits, bool high_first, const float *value, real *out) {
  const int per_byte = 8 / bits, mask = (1 << bits) - 1, flip = high_first ? 8 - bits : 0;
  int32_t i = 0;
  for (; i < n && (at + i) % per_byte; i++) out[i] = value[b[(at + i) / per_byte] >> (((at + i) % per_byte * bits) ^ flip) & mask];
  for (b += (at + i) / per_byte; i + per_byte <= n; i += per_byte, b++)
    for (int j = 0; j < per_byte; j++) out[i + j] = value[*b >> ((j * bits) ^ flip) & mask];
  for (int j = 0; i < n; i++, j++) out[i] = value[*b >> ((j * bits) ^ flip) & mask];
}

/* Weights [k0, k0 + count) of row `row`. */
static __attribute__((noinline)) void dequantize(const nbits *w, int32_t row, int32_t k0, int32_t count, real *out) {
  const ew_matmul_nbits_params *p = w->p;
  const bool half = half_scales_of(w);
  float value[16];
  for (int32_t i = 0, n; i < count; i += n, out += n) {
    /* The flattened array of MatMulBnb4 lets blocks run over the ends of rows. */
    int64_t at = p->format ? (int64_t)row * p->k + k0 + i : k0 + i;
    int64_t block = at / p->block + (p->format ? 0 : (int64_t)row * w->blocks), left = p->block - at % p->block;
    float scale = scale_at(w, block, half);
    n = left < count - i ? (int32_t)left : count - i;
    if (p->format && (EW_USES(NBITS_FORMAT, 1) || EW_USES(NBITS_FORMAT, 2))) {
      const float *code = p->format == 1 ? fp4 : nf4;
      for (int q = 0; q < 16; q++) value[q] = code[q] * scale;
      look_up(w->b, at, n, 4, true, value, out);
      continue;
    }
    float zero = zero_at(w, row, (int32_t)(at / p->block));
    const uint8_t *b = w->b + block * w->block_bytes;
    at %= p->block;
    if (p->bits == 8)
      for (int32_t j = 0; j < n; j++) out[j] = ((float)(int32_t)b[at + j] - zero) * scale;
    else {
      for (int q = 0; q < 16; q++) value[q] = ((float)q - zero) * scale;
      if (EW_USES(NBITS, 2) && p->bits == 2) look_up(b, at, n, 2, false, value, out);
      else look_up(b, at, n, 4, false, value, out);
    }
  }
}

/* 16 bytes of each of four columns: the 4-bit fields at either end, each vector with four of k of every column. */
EW_INLINE void turn_fields(const u8x16 column[4], f32x4 low[4], f32x4 high[4]) {
  for (int i = 0; i < 4; i++) {
    const u8x16 even = column[i] & 15, odd = (u8x16)((u16x8)column[i] >> 4) & 15;
    low[i] = (f32x4)__builtin_shufflevector(even, odd, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    high[i] = (f32x4)__builtin_shufflevector(even, odd, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
  }
  f32x4_transpose(&low[0], &low[1], &low[2], &low[3]), f32x4_transpose(&high[0], &high[1], &high[2], &high[3]);
}

/* 4 rows of four columns as floats, NR apart. */
EW_INLINE void put_fields(f32x4 fields, f32x4 zero, f32x4 scale, real *panel) {
  typedef uint8_t u8x4 __attribute__((vector_size(4)));
  const u8x16 v = (u8x16)fields, t = __builtin_shufflevector(v, v, 0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  const u8x4 row[4] = {__builtin_shufflevector(t, t, 0, 1, 2, 3), __builtin_shufflevector(t, t, 4, 5, 6, 7), __builtin_shufflevector(t, t, 8, 9, 10, 11), __builtin_shufflevector(t, t, 12, 13, 14, 15)};
  for (int i = 0; i < 4; i++) *(f32x4_m *)(panel + i * NR) = (__builtin_convertvector(__builtin_convertvector(row[i], i32x4), f32x4) - zero) * scale;
}

/* Columns of 4 or 8 bits as a panel, where k0, kc and the block are whole runs of 16 bytes. */
static void pack_fields(const nbits *w, real *panel, int32_t k0, int32_t kc, int32_t j0, int32_t cols) {
  const ew_matmul_nbits_params *p = w->p;
  const int bits = p->bits, run = 128 / bits;
  const bool half = half_scales_of(w);
  for (int32_t k = k0; k < k0 + kc; k += run, panel += run * NR) {
    const int32_t block = k / p->block;
    const int64_t at = (int64_t)block * w->block_bytes + k % p->block * bits / 8;
    for (int32_t c = 0; c < NR; c += 4) {
      u8x16 column[4];
      f32x4 fields[8], zero = {0}, scale = {0};
      EW_PLAIN for (int i = 0; i < 4; i++) {
        const bool there = c + i < cols;
        const int32_t j = there ? j0 + c + i : j0;
        column[i] = *(const u8x16_m *)(w->b + (int64_t)j * w->blocks * w->block_bytes + at);
        if (there) zero[i] = zero_at(w, j, block), scale[i] = scale_at(w, (int64_t)j * w->blocks + block, half);
      }
      if (bits == 4) turn_fields(column, fields, fields + 4);
      else {
        EW_PLAIN for (int i = 0; i < 4; i++) fields[i] = (f32x4)column[i];
        f32x4_transpose(&fields[0], &fields[1], &fields[2], &fields[3]);
      }
      EW_PLAIN for (int i = 0; i < run / 4; i++) put_fields(fields[i], zero, scale, panel + 4 * i * NR + c);
    }
  }
}

enum { PIECE = 256 };

static void pack_b(const ew_gemm_job *g, real *panels, int32_t k0, int32_t kc, int32_t j0, int32_t nc) {
  const nbits *w = g->b;
  const int32_t bits = w->p->bits, run = 128 / bits;
  const bool whole = bits != 2 && !w->p->format && !(k0 % run | kc % run | w->p->block % run);
  for (int32_t j = 0; j < nc; j += NR, panels += (int64_t)kc * NR) {
    if (whole) pack_fields(w, panels, k0, kc, j0 + j, nc - j);
    else
      for (int32_t c = 0; c < NR; c++)
        for (int32_t i = 0, n; i < kc; i += n) {
          float piece[PIECE];
          n = kc - i < PIECE ? kc - i : PIECE;
          if (j + c < nc) dequantize(w, j0 + j + c, k0 + i, n, piece);
          EW_PLAIN for (int32_t e = 0; e < n; e++) panels[(int64_t)(i + e) * NR + c] = j + c < nc ? piece[e] : 0;
        }
  }
}

/* The same of b transposed: its rows are what is summed over, and lie in panels as they are stored. */
static void pack_rows(const ew_gemm_job *g, real *panels, int32_t k0, int32_t kc, int32_t j0, int32_t nc) {
  for (int32_t p = 0; p < kc; p++)
    for (int32_t j = 0; j < nc; j += PIECE) {
      float piece[PIECE];
      int32_t n = nc - j < PIECE ? nc - j : PIECE;
      dequantize(g->b, k0 + p, j0 + j, n, piece);
      for (; n % NR; n++) piece[n] = 0;
      for (int32_t i = 0; i < n; i += NR)
        for (int32_t c = 0; c < NR; c += VF) vf_store(panels + (int64_t)(j + i) * kc + p * NR + c, vf_load(piece + i + c));
    }
}

/* ---- few rows ----
 *
 * Weights are read 16 bytes at a time, a group; a is put into the order in which a group's weights come out of their bytes, once
 * for all rows of b. With q - zero the zero point is a sum over a: each block's accumulator starts from -zero * sum(a). */

enum { FEW = 8, CHUNK = 512, COLS = 4 };

typedef struct few_rows {
  const nbits *w;
  const ew_gemm_job *g;
  void (*rows)(const struct few_rows *, int32_t row, float *out); /* out[m][COLS] = a times rows `row` and the next ones of b */
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
EW_INLINE void two_rows_floats(const few_rows *f, int32_t row, float *out, int bits) {
  const nbits *w = f->w;
  const bool half = half_scales_of(w);
  /* From memory rather than a constant: a compiler that knows the sign converts as unsigned, which is slow on x86. */
  i32x4 mask = f->mask - (i32x4){0};
  int64_t row_bytes = (int64_t)w->blocks * w->block_bytes;
  for (int32_t i = 0; i < w->p->m; i++) {
    const real *a = f->ready + (int64_t)i * f->row;
    const uint8_t *b = w->b + row * row_bytes;
    f32x4 sum0 = {0}, sum1 = {0};
    for (int32_t block = 0; block < w->blocks; block++) {
      f32x4 x0 = *(const f32x4_m *)a, x1 = x0;
      if (!f->symmetric) x0 *= zero_at(w, row, block), x1 *= zero_at(w, row + 1, block);
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
      sum0 = f32x4_fma(x0, scale_at(w, at, half) - (f32x4){0}, sum0), sum1 = f32x4_fma(x1, scale_at(w, at + w->blocks, half) - (f32x4){0}, sum1);
    }
    out[i * COLS] = f32x4_sum(sum0), out[i * COLS + 1] = f32x4_sum(sum1);
  }
}
EW_INLINE void rows_floats(const few_rows *f, int32_t row, float *out, int bits) {
  EW_PLAIN for (int r = 0; r < COLS; r += 2) two_rows_floats(f, row + r, out + r, bits);
}

/* The same in integers: part of a block of a becomes integers times a scale of its own, which are written in digits of 8 bits, each of which meets the
 * weights in dot products of bytes. One digit is what accuracy_level 4 allows. Three are as good as float32: a part's largest number is then
 * 2^22, so that rounding takes less from any of them than a float's rounding takes from the largest; sums are exact. Parts have one group, so that
 * they stay below 2^31.
 * A prepared part: -(2^(bits-1)) times a's sums as they come out of the lanes, its scale, -sum, then bytes in the order of a group's
 * planes (all lowest fields of its 16 bytes, then all next ones, ...), the highest digit first. */
EW_INLINE void prepare_digits(const few_rows *f, const real *a, real *ready, int bits, int digits) {
  const ew_matmul_nbits_params *p = f->w->p;
  const int planes = 8 / bits, groups = digits > 1 ? 1 : f->groups, width = planes * 16, length = groups * width;
  const f32x4 largest = (digits > 1 ? 0x1p22f : 127) - (f32x4){0}, rounder = 0x1.8p23f - (f32x4){0};
  for (int32_t from = 0; from < f->w->blocks * p->block; from += length, ready += 8 + digits * length / 4) {
    int32_t left = p->k - from < length ? p->k - from : length;
    f32x4 high = {0}, sum = {0};
    float most = 0, rest = 0;
    int32_t i = 0;
    for (; i + 4 <= left; i += 4) {
      const f32x4 x = *(const f32x4_m *)(a + from + i), y = (f32x4)((i32x4)x & 0x7fffffff);
      high = f32x4_max(high, y), sum += x;
    }
    for (; i < left; i++) rest += a[from + i], most = a[from + i] < -most ? -a[from + i] : a[from + i] > most ? a[from + i] : most;
    for (i = 0; i < 4; i++) most = most < high[i] ? high[i] : most;
    rest += f32x4_sum(sum);
    const float scale = most / largest[0] + 0 * rest, inverse = most > 0 ? largest[0] / most : 0; /* infinities and NaNs make the scale NaN, and so y */
    int8_t *bytes = (int8_t *)(ready + 8);
    i32x4 sums = {0};
    for (int32_t g = 0; g < groups; g++, bytes += digits * width) {
      const real *x = a + from + g * width;
      float end[64];
      if (left - g * width < width) { /* zeros behind the last of a */
        for (i = 0; i < width; i++) end[i] = g * width + i < left ? x[i] : 0;
        x = end;
      }
      i32x4 t[4][4]; /* of a plane */
      EW_PLAIN for (int v = 0; v < 4; v++, x += 4 * planes) {
        f32x4 y[4] = {0};
        for (int j = 0; j < planes; j++) y[j] = *(const f32x4_m *)(x + 4 * j);
        if (planes == 4) f32x4_transpose(&y[0], &y[1], &y[2], &y[3]);
        if (planes == 2) {
          const f32x4 even = __builtin_shufflevector(y[0], y[1], 0, 2, 4, 6);
          y[1] = __builtin_shufflevector(y[0], y[1], 1, 3, 5, 7), y[0] = even;
        }
        for (int j = 0; j < planes; j++) t[j][v] = (i32x4)(y[j] * inverse + rounder) - (i32x4)rounder, sums += t[j][v]; /* adding 1.5 * 2^23 leaves the rounded number in the lowest bits */
      }
      EW_PLAIN for (int j = 0; j < planes; j++)
        EW_PLAIN for (int d = digits; d-- > 0;) {
          i32x4 low[4];
          for (int v = 0; v < 4; v++) low[v] = (i32x4)((u32x4)t[j][v] << 24) >> 24, t[j][v] = (t[j][v] - low[v]) >> 8;
          *(i8x16_m *)(bytes + (d * planes + j) * 16) = i8x16_of(low[0], low[1], low[2], low[3]);
        }
    }
    *(i32x4_m *)ready = f->symmetric ? -(sums << (bits - 1)) : (i32x4){0};
    ready[4] = scale, ready[5] = digits > 1 ? -rest : -(float)i32x4_sum(sums) * scale;
  }
}

/* What the zero points of a row of b add. */
static __attribute__((noinline)) float of_zeros(const few_rows *f, const real *a, int32_t row, int32_t parts, int32_t part) {
  const bool half = half_scales_of(f->w);
  float sum = 0;
  EW_PLAIN for (int32_t i = 0; i < f->w->blocks * parts; i++, a += part) sum += scale_at(f->w, (int64_t)row * f->w->blocks + i / parts, half) * zero_at(f->w, row, i / parts) * a[5];
  return sum;
}

EW_INLINE void rows_digits(const few_rows *f, int32_t row, float *out, int bits, int digits) {
  const nbits *w = f->w;
  const int planes = 8 / bits, bytes = planes * 16;
  const int32_t parts = digits > 1 ? f->groups : 1, groups = digits > 1 ? 1 : f->groups, blocks = w->blocks;
  const bool half_scales = half_scales_of(w);
  const intptr_t row_bytes = (intptr_t)blocks * w->block_bytes;
  for (int32_t i = 0; i < w->p->m; i++) {
    const real *a = f->ready + (int64_t)i * f->row;
    const uint8_t *b = w->b + row * (int64_t)row_bytes;
    int64_t at = (int64_t)row * blocks;
    f32x4 sum[COLS];
    for (int r = 0; r < COLS; r++) sum[r] = (f32x4){0};
    for (int32_t block = 0; block < blocks; block++, at++) {
      f32x4 scale[COLS];
      for (int r = 0; r < COLS; r++) scale[r] = half_scales ? real_at(w->scales, at + r * blocks, true) - (f32x4){0} : f32x4_load_splat((const real *)w->scales + at + r * blocks);
      for (int32_t part = 0; part < parts; part++) {
        const i32x4 start = *(const i32x4_m *)a;
        const f32x4 a_scale = f32x4_load_splat(a + 4);
        i32x4 x[COLS], high[COLS];
        for (int r = 0; r < COLS; r++) x[r] = digits > 1 ? (i32x4){0} : start, high[r] = (i32x4){0};
        a += 8;
        for (int32_t g = 0; g < groups; g++, b += 16, a += digits * bytes / 4)
          for (int r = 0; r < COLS; r++) {
            const u8x16 v = *(const u8x16_m *)(b + r * row_bytes);
            for (int d = 0; d < digits; d++) {
              if (d) x[r] <<= 8;
              for (int j = 0; j < planes; j++) {
                const i8x16 y = *(const i8x16_m *)((const int8_t *)a + d * bytes + j * 16);
                const u8x16 u = (u8x16)((u16x8)v >> (bits * j)); /* there is no shift of bytes on x86: what comes in from the byte above is masked out */
                const u8x16 q = u & (uint8_t)(bits == 8 ? 15 : (1 << bits) - 1);
                if (bits == 8) high[r] = i32x4_dot_bytes(y, (u8x16)((u16x8)v >> 4) & 15, high[r]); /* seven bits at most go into the dot product: the halves of a byte one after the other */
                x[r] = i32x4_dot_bytes(y, q, x[r]);
              }
            }
          }
        for (int r = 0; r < COLS; r++) {
          if (bits == 8) x[r] += high[r] << 4;
          if (digits > 1) x[r] += start;
          sum[r] = f32x4_fma(__builtin_convertvector(x[r], f32x4), scale[r] * a_scale, sum[r]);
        }
      }
    }
    for (int r = 0; r < COLS; r++) out[i * COLS + r] = f32x4_sum(sum[r]) + (f->symmetric ? 0 : of_zeros(f, f->ready + (int64_t)i * f->row, row + r, parts, 8 + digits * groups * bytes / 4));
  }
}

#define DIGITS(bits) static __attribute__((noinline)) void digits_##bits(const few_rows *f, const real *a, real *ready, int digits) { prepare_digits(f, a, ready, bits, digits); }
DIGITS(2)
DIGITS(4)
DIGITS(8)
#undef DIGITS

#define ROWS(name, ...) static __attribute__((noinline)) void name(const few_rows *f, int32_t row, float *out) { __VA_ARGS__; }
#if EW_BYTE_DOTS
ROWS(floats_2, rows_digits(f, row, out, 2, 3))
ROWS(floats_4, rows_digits(f, row, out, 4, 3))
#else
ROWS(floats_2, rows_floats(f, row, out, 2))
ROWS(floats_4, rows_floats(f, row, out, 4))
#endif
ROWS(floats_8, rows_floats(f, row, out, 8))
ROWS(bytes_2, rows_digits(f, row, out, 2, 1))
ROWS(bytes_4, rows_digits(f, row, out, 4, 1))
ROWS(bytes_8, rows_digits(f, row, out, 8, 1))
#undef ROWS

static void group_task(void *arg, int32_t index, int32_t thread) {
  const few_rows *f = arg;
  const ew_gemm_job *g = f->g;
  (void)thread;
  int32_t begin = index * f->cols, end = g->n - begin < f->cols ? g->n : begin + f->cols;
  for (int32_t j = begin; j < end; j += COLS) {
    float out[FEW * COLS];
    int32_t first = j + COLS <= g->n ? j : g->n - COLS, cols = end - j < COLS ? end - j : COLS; /* at the edge rows before once more */
    f->rows(f, first, out);
    for (int32_t i = 0; i < g->m; i++) ew_finish_row(&g->finish, g->y + (int64_t)i * g->y_row + j, out + i * COLS + (j - first), i, j, cols, g->y_row);
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
      for (int32_t c = 0; c < 4; c++) dequantize(f->w, j + (c < cols ? c : 0), k0, n, b[c]);
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
  const bool digits = EW_BYTE_DOTS && p->bits < 8;
  if (bytes) row = w->blocks * (8 + (int64_t)p->block / 4);
  else row = w->blocks * (digits ? f.groups * 8 + 3 * (int64_t)p->block / 4 : 4 + (int64_t)p->block);
  if (!p->format && block_bits % 128 == 0 && p->n >= COLS && scratch && p->m * row <= 262144) {
    task = group_task, f.row = (int32_t)row;
    for (int32_t i = 0; i < p->m; i++) {
      const real *a = g->a + (int64_t)i * g->a_row;
      real *ready = scratch + i * row;
      switch (p->bits + bytes) {
#define DIGITS(bits) if (EW_USES(NBITS, bits)) f.rows = floats_##bits, (digits ? digits_##bits(&f, a, ready, 3) : prepare_floats(&f, a, ready, bits)); break
#define BYTES(bits) if (EW_USES(NBITS, bits) && EW_USES(NBITS_ACCURACY, 4)) f.rows = bytes_##bits, digits_##bits(&f, a, ready, 1); break
      case 2: DIGITS(2);
      case 3: BYTES(2);
      case 4: DIGITS(4);
      case 5: BYTES(4);
      case 8: if (EW_USES(NBITS, 8)) f.rows = floats_8, prepare_floats(&f, a, ready, 8); break;
      default: BYTES(8);
#undef DIGITS
#undef BYTES
      }
    }
  }
  /* A task is worth some 5 microseconds. */
  const int64_t worth = (int64_t)p->k * p->m * p->n >> (task == dequantize_task ? 14 : bytes ? 16 : 15);
  const int32_t threads = ew_parallel_width(ctx), tasks = worth < threads ? (int32_t)worth + 1 : threads;
  f.cols = ((p->n - 1) / tasks / COLS + 1) * COLS;
  ew_parallel(ctx, (p->n - 1) / f.cols + 1, task, &f);
}

/* ---- many rows in bytes: accuracy_level 4, 4 bits ----
 *
 * Blocks of a are rounded to bytes with a scale each, weights unpacked to bytes, NR columns in a panel, four of k beside each other; the sum over a block is an integer:
 * y = sum over blocks of a's scale * b's scale * (sum of a b - zero * sum of a). */

enum { BYTE_ROWS = 4 };

typedef struct {
  const nbits *w;
  const ew_gemm_job *g;
  real *ready;                   /* rows of a: of each block its scale, -8 sum, -sum (times scale), nothing, then bytes */
  real *panels;                  /* of each thread a panel: of each block NR scales, NR zero points times scales, then bytes */
  int32_t row, panel, cols;      /* floats of these; columns of a task */
  int32_t from, rows;            /* rows of a that are ready */
} many_rows;

static void ready_task(void *arg, int32_t index, int32_t thread) {
  const many_rows *f = arg;
  const int32_t block = f->w->p->block;
  const real *a = f->g->a + (int64_t)(f->from + index) * f->g->a_row;
  real *ready = f->ready + (int64_t)index * f->row;
  const vf rounder = vf_splat(0x1.8p23f);
  (void)thread;
  for (int32_t b = 0; b < f->w->blocks; b++, a += block, ready += 4 + block / 4) {
    vf most = vf_splat(0), sum = vf_splat(0);
    vi sums = vi_splat(0);
    for (int32_t i = 0; i < block; i += VF) {
      vf x = vf_load(a + i);
      most = vf_max(most, vf_max(x, -x)), sum += x;
    }
    const float largest = vf_highest(most), inverse = largest > 0 ? 127 / largest : 0;
    for (int32_t i = 0; i < block; i += 2 * VF) { /* adding 1.5 * 2^23 leaves the rounded number in the lowest bits */
      vi x = (vi)(vf_load(a + i) * inverse + rounder) - (vi)rounder, y = (vi)(vf_load(a + i + VF) * inverse + rounder) - (vi)rounder;
      sums += x + y;
      vi_store_bytes((uint8_t *)(ready + 4) + i, x, y);
    }
    const float whole = vf_sum(__builtin_convertvector(sums, vf));
    ready[0] = largest / 127 + 0 * vf_sum(sum); /* infinities and NaNs come out as NaN */
    *(int_m *)(ready + 1) = -8 * (int32_t)whole;
    ready[2] = -whole * ready[0];
  }
}

/* Columns j .. j + NR - 1. */
static void unpack_panel(const many_rows *f, int32_t j, real *panel) {
  const nbits *w = f->w;
  const bool half = half_scales_of(w);
  const int32_t block = w->p->block;
  for (int32_t b = 0; b < w->blocks; b++) {
    for (int32_t c = 0; c < NR; c++) {
      const bool there = j + c < w->p->n;
      panel[c] = there ? scale_at(w, (int64_t)(j + c) * w->blocks + b, half) : 0;
      panel[NR + c] = there && w->zeros ? panel[c] * zero_at(w, j + c, b) : 0;
    }
    panel += 2 * NR;
    for (int32_t g = 0; g < block / 32; g++, panel += 8 * NR)
      for (int32_t c = 0; c < NR; c += 4) {
        u8x16 column[4];
        f32x4 low[4], high[4];
        for (int i = 0; i < 4; i++) column[i] = *(const u8x16_m *)(w->b + ((int64_t)(j + c + i < w->p->n ? j + c + i : j) * w->blocks + b) * w->block_bytes + g * 16);
        turn_fields(column, low, high);
        for (int i = 0; i < 4; i++) *(f32x4_m *)(panel + i * NR + c) = low[i], *(f32x4_m *)(panel + (i + 4) * NR + c) = high[i];
      }
  }
}

/* out[BYTE_ROWS][NR] */
static __attribute__((noinline)) void byte_tile(int32_t blocks, int32_t block, const real *a, intptr_t a_row, const real *b, bool zeros, real *out) {
  for (int32_t i = 0; i < BYTE_ROWS * NR; i += VF) vf_store(out + i, vf_splat(0));
  for (; blocks > 0; blocks--, a += 4 + block / 4, b += 2 * NR + block / 4 * NR) {
    const real *p = a, *q = b + 2 * NR, *end = a + 4 + block / 4;
    vi x[BYTE_ROWS][2];
    for (int r = 0; r < BYTE_ROWS; r++, p += a_row)
      for (int c = 0; c < 2; c++) x[r][c] = zeros ? vi_splat(0) : vi_load_splat((const int_m *)(p + 1));
    for (const real *from = a + 4; from < end; from++, q += NR) {
      const vi w0 = (vi)vf_load(q), w1 = (vi)vf_load(q + VF);
      p = from;
      for (int r = 0; r < BYTE_ROWS; r++, p += a_row) {
        const vi y = (vi)vf_load_splat(p);
        x[r][0] = vi_dot_bytes(y, w0, x[r][0]), x[r][1] = vi_dot_bytes(y, w1, x[r][1]);
      }
    }
    p = a;
    for (int r = 0; r < BYTE_ROWS; r++, p += a_row)
      for (int c = 0; c < 2; c++) {
        real *sum = out + r * NR + c * VF;
        vf y = vf_fma(__builtin_convertvector(x[r][c], vf), vf_load(b + c * VF) * vf_load_splat(p), vf_load(sum));
        if (zeros) y = vf_fma(vf_load_splat(p + 2), vf_load(b + NR + c * VF), y);
        vf_store(sum, y);
      }
  }
}

static void many_task(void *arg, int32_t index, int32_t thread) {
  const many_rows *f = arg;
  const ew_gemm_job *g = f->g;
  real *panel = f->panels + (int64_t)thread * f->panel;
  const int32_t end = g->n - index * f->cols < f->cols ? g->n : (index + 1) * f->cols;
  for (int32_t j = index * f->cols; j < end; j += NR) {
    unpack_panel(f, j, panel);
    for (int32_t i = 0; i < f->rows; i += BYTE_ROWS) {
      float t[BYTE_ROWS * NR];
      const int32_t first = i + BYTE_ROWS <= f->rows ? i : f->rows - BYTE_ROWS; /* at the edge rows before once more */
      byte_tile(f->w->blocks, f->w->p->block, f->ready + (int64_t)first * f->row, f->row, panel, f->w->zeros != NULL, t);
      for (int32_t r = i; r < f->rows && r < i + BYTE_ROWS; r++)
        ew_finish_row(&g->finish, g->y + (int64_t)(f->from + r) * g->y_row + j, t + (r - first) * NR, f->from + r, j, end - j < NR ? end - j : NR, g->y_row);
    }
  }
}

/* False where this is not the way. */
static bool many_rows_run(ew_context *ctx, const nbits *w, const ew_gemm_job *g, real *scratch) {
  const ew_matmul_nbits_params *p = w->p;
  const int32_t threads = ew_parallel_width(ctx);
  if (p->accuracy != 4 || p->bits != 4 || p->format || p->block % 32 || p->k % p->block || !scratch || !(EW_RELAXED_DOTS || vi_dots())) return false;
  const int64_t row = (int64_t)w->blocks * (4 + p->block / 4), panel = (int64_t)w->blocks * NR * (2 + p->block / 4), rows = ((1 << 18) - panel * threads) / row;
  if (rows < 4 * FEW) return false;
  const int32_t parts = 4 * threads, share = (p->n / NR + parts) / parts * NR;
  many_rows f = {.w = w, .g = g, .panels = scratch, .ready = scratch + panel * threads, .row = (int32_t)row, .panel = (int32_t)panel, .cols = threads > 1 ? share : p->n};
  for (f.from = 0; f.from < p->m; f.from += f.rows) {
    const int64_t left = p->m - f.from;
    f.rows = (int32_t)(left <= rows ? left : left < rows + FEW ? rows - FEW : rows); /* never fewer than a tile */
    ew_parallel(ctx, f.rows, ready_task, &f);
    ew_parallel(ctx, (p->n - 1) / f.cols + 1, many_task, &f);
  }
  return true;
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
  else if (transposed || !(EW_USES(NBITS, 4) && EW_USES(NBITS_ACCURACY, 4)) || !many_rows_run(ctx, &w, &g, scratch))
    ew_gemm_run(ctx, &g, scratch, EW_GEMM_B_FLOATS, scratch ? scratch + EW_GEMM_B_FLOATS : NULL, EW_GEMM_A_FLOATS, ew_parallel_width(ctx));
  return EW_OK;
}
