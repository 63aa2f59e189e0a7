/* MatMulNBits and MatMulBnb4: y = a @ dequantized b, where b has 2, 4 or 8 bits per weight in
 * blocks along k, with a scale (and optionally a zero point) per block.
 *
 * Three ways, by the number of rows of a:
 *
 * - few rows: activations are quantized to integer digits and multiplied with the packed weights by
 *   integer dot products (see "few rows" below);
 * - many rows at accuracy_level 4: rows of a and panels of b as bytes (see "many rows in bytes");
 * - otherwise b is dequantized into panels of the blocked product (gemm.h).
 *
 * A task is a range of columns of y. All inner loops are vectorized. */
#include "each.h"
#include "gemm.h"

/* Values of the 4-bit fields: the fields themselves, or the code books of bitsandbytes (fp4 and
 * nf4, as in onnxruntime's MatMulBnb4). */
static const real codes[3][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
    {0.0f, 5.208333333e-03f, 0.66666667f, 1.0f, 0.33333333f, 0.5f, 0.16666667f, 0.25f, -0.0f,
     -5.208333333e-03f, -0.66666667f, -1.0f, -0.33333333f, -0.5f, -0.16666667f, -0.25f},
    {-1.0f, -0.6961928009986877f, -0.5250730514526367f, -0.39491748809814453f,
     -0.28444138169288635f, -0.18477343022823334f, -0.09105003625154495f, 0.0f,
     0.07958029955625534f, 0.16093020141124725f, 0.24611230194568634f, 0.33791524171829224f,
     0.44070982933044434f, 0.5626170039176941f, 0.7229568362236023f, 1.0f}};

typedef struct {
  const ew_matmul_nbits_params *p;
  const uint8_t *b, *zeros;
  const void *scales;
  int32_t blocks, block_bytes; /* blocks and bytes per block of a row of b; format 0 */
} nbits;

/* Evaluate once per row: EW_USES is a function call. */
EW_INLINE bool half_scales_of(const nbits *w) {
  return EW_USES(NBITS_SCALES, EW_F16) && w->p->scale_type == EW_F16;
}
EW_INLINE float scale_at(const nbits *w, int64_t i, bool half) {
  return real_at(w->scales, i, half);
}

EW_INLINE float zero_at(const nbits *w, int32_t row, int32_t block) {
  const ew_matmul_nbits_params *p = w->p;
  if (!w->zeros) return (float)(1 << (p->bits - 1));
  if (p->zero_type != EW_U8)
    return real_at(w->zeros, (int64_t)row * w->blocks + block, p->zero_type == EW_F16);
  int64_t row_bytes = ((int64_t)w->blocks * p->bits + 7) / 8, bit = (int64_t)block * p->bits;
  return (float)(w->zeros[row * row_bytes + bit / 8] >> bit % 8 & ((1 << p->bits) - 1));
}

/* The next 16 fields of b in order, starting at a byte boundary. */
EW_INLINE u8x16 fields_of(const uint8_t *b, int bits, bool high_first) {
  if (bits == 2) {
    typedef uint8_t u8x4_m __attribute__((vector_size(4), aligned(1), may_alias));
    const u32x4 v = __builtin_convertvector(*(const u8x4_m *)b, u32x4);
    return (u8x16)((v | v << 6 | v << 12 | v << 18) & 0x03030303);
  }
  const u16x8 v = __builtin_convertvector(*(const u8x8_m *)b, u16x8);
  return (u8x16)((v >> (high_first ? 4 : 0) | v << (high_first ? 8 : 4)) & 0x0f0f);
}

/* Splits a table of 16 floats into four byte tables: plane[i] holds byte i of each float. A float
 * is looked up by its four bytes. */
EW_INLINE void planes_of(const real *table, f32x4 plane[4]) {
  for (int i = 0; i < 4; i++) {
    const u8x16 v = *(const u8x16_m *)(table + 4 * i);
    plane[i] =
        (f32x4)__builtin_shufflevector(v, v, 0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  }
  f32x4_transpose(&plane[0], &plane[1], &plane[2], &plane[3]);
}
EW_INLINE void look_up(const f32x4 plane[4], u8x16 at, f32x4 out[4]) {
  u16x8 low[2], high[2];
  for (int i = 0; i < 4; i += 2) {
    const u8x16 a = u8x16_look_up((u8x16)plane[i], at), b = u8x16_look_up((u8x16)plane[i + 1], at);
    low[i / 2] = (u16x8)__builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6,
                                                22, 7, 23),
            high[i / 2] = (u16x8)__builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28,
                                                         13, 29, 14, 30, 15, 31);
  }
  out[0] = (f32x4)__builtin_shufflevector(low[0], low[1], 0, 8, 1, 9, 2, 10, 3, 11),
  out[1] = (f32x4)__builtin_shufflevector(low[0], low[1], 4, 12, 5, 13, 6, 14, 7, 15);
  out[2] = (f32x4)__builtin_shufflevector(high[0], high[1], 0, 8, 1, 9, 2, 10, 3, 11),
  out[3] = (f32x4)__builtin_shufflevector(high[0], high[1], 4, 12, 5, 13, 6, 14, 7, 15);
}

/* Dequantizes weights [k0, k0 + count) of row `row`. */
static __attribute__((noinline)) void dequantize(const nbits *w, int32_t row, int32_t k0,
                                                 int32_t count, real *out) {
  const ew_matmul_nbits_params *p = w->p;
  const bool half = half_scales_of(w),
             books = p->format && (EW_USES(NBITS_FORMAT, 1) || EW_USES(NBITS_FORMAT, 2));
  const int32_t bits = p->bits;
  const real *code = codes[books ? p->format : 0];
  f32x4 plane[4];
  planes_of(code, plane);
  /* MatMulBnb4 stores a flat array, in which blocks may cross the ends of rows, and the high field
   * of a byte comes first. */
  int64_t at = books ? (int64_t)row * p->k + k0 : k0, block = at / p->block;
  int32_t left = p->block - (int32_t)(at % p->block);
  if (!books) at = p->block - left;
  for (int32_t n; count > 0; count -= n, block++, left = p->block) {
    const int64_t of_all = books ? block : (int64_t)row * w->blocks + block;
    const float scale = scale_at(w, of_all, half),
                zero = books ? 0 : zero_at(w, row, (int32_t)block);
    const uint8_t *b = w->b + (books ? 0 : of_all * w->block_bytes);
    n = left < count ? left : count;
    for (int32_t j = 0; bits == 8 && j < n; j++) *out++ = ((float)(int32_t)b[at++] - zero) * scale;
    EW_PLAIN_FOR (int32_t j = 0; bits < 8 && j < n;) {
      const uint8_t *from = b + (at * bits >> 3);
      const int32_t shift = (int32_t)(at * bits & 7);
      if (!shift)
        EW_PLAIN_FOR (; n - j >= 16; j += 16, at += 16, out += 16, from += 2 * bits) {
          f32x4 value[4];
          look_up(plane,
                  EW_USES(NBITS, 2) && bits == 2 ? fields_of(from, 2, false)
                                                 : fields_of(from, 4, books),
                  value);
          for (int e = 0; e < 4; e++) *(f32x4_m *)(out + 4 * e) = (value[e] - zero) * scale;
        }
      if (j < n)
        *out++ = (code[*from >> (books ? shift ^ 4 : shift) & ((1 << bits) - 1)] - zero) * scale,
        j++, at++;
    }
    if (!books) at = 0;
  }
}

/* Transposes 16 bytes of each of four columns and splits them into 4-bit fields: each result vector
 * holds four consecutive k of all four columns. */
EW_INLINE void turn_fields(const u8x16 column[4], f32x4 low[4], f32x4 high[4]) {
  for (int i = 0; i < 4; i++) {
    const u8x16 even = column[i] & 15, odd = (u8x16)((u16x8)column[i] >> 4) & 15;
    low[i] = (f32x4)__builtin_shufflevector(even, odd, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6,
                                            22, 7, 23);
    high[i] = (f32x4)__builtin_shufflevector(even, odd, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13,
                                             29, 14, 30, 15, 31);
  }
  f32x4_transpose(&low[0], &low[1], &low[2], &low[3]),
      f32x4_transpose(&high[0], &high[1], &high[2], &high[3]);
}

/* Writes 4 rows of four columns as floats, NR apart. */
EW_INLINE void put_fields(f32x4 fields, f32x4 zero, f32x4 scale, real *panel) {
  typedef uint8_t u8x4 __attribute__((vector_size(4)));
  const u8x16 v = (u8x16)fields, t = __builtin_shufflevector(v, v, 0, 4, 8, 12, 1, 5, 9, 13, 2, 6,
                                                             10, 14, 3, 7, 11, 15);
  const u8x4 row[4] = {
      __builtin_shufflevector(t, t, 0, 1, 2, 3), __builtin_shufflevector(t, t, 4, 5, 6, 7),
      __builtin_shufflevector(t, t, 8, 9, 10, 11), __builtin_shufflevector(t, t, 12, 13, 14, 15)};
  for (int i = 0; i < 4; i++)
    *(f32x4_m *)(panel + i * NR) =
        (__builtin_convertvector(__builtin_convertvector(row[i], i32x4), f32x4) - zero) * scale;
}

/* Packs columns of 4 or 8 bits into a panel; k0, kc and the block size are multiples of 16 bytes of
 * fields. */
static void pack_fields(const nbits *w, real *panel, int32_t k0, int32_t kc, int32_t j0,
                        int32_t cols) {
  const ew_matmul_nbits_params *p = w->p;
  const int bits = p->bits, run = 128 / bits;
  const bool half = half_scales_of(w);
  for (int32_t k = k0; k < k0 + kc; k += run, panel += run * NR) {
    const int32_t block = k / p->block;
    const int64_t at = (int64_t)block * w->block_bytes + k % p->block * bits / 8;
    for (int32_t c = 0; c < NR; c += 4) {
      u8x16 column[4];
      f32x4 fields[8], zero = {0}, scale = {0};
      EW_PLAIN_FOR (int i = 0; i < 4; i++) {
        const bool there = c + i < cols;
        const int32_t j = there ? j0 + c + i : j0;
        column[i] = *(const u8x16_m *)(w->b + (int64_t)j * w->blocks * w->block_bytes + at);
        if (there)
          zero[i] = zero_at(w, j, block),
          scale[i] = scale_at(w, (int64_t)j * w->blocks + block, half);
      }
      if (bits == 4)
        turn_fields(column, fields, fields + 4);
      else {
        EW_PLAIN_FOR (int i = 0; i < 4; i++) fields[i] = (f32x4)column[i];
        f32x4_transpose(&fields[0], &fields[1], &fields[2], &fields[3]);
      }
      EW_PLAIN_FOR (int i = 0; i < run / 4; i++)
        put_fields(fields[i], zero, scale, panel + 4 * i * NR + c);
    }
  }
}

enum { PIECE = 256 };

static void pack_b(const ew_gemm_job *g, real *panels, int32_t k0, int32_t kc, int32_t j0,
                   int32_t nc) {
  const nbits *w = g->b;
  const int32_t bits = w->p->bits, run = 128 / bits;
  const bool whole = bits != 2 && !w->p->format && !(k0 % run | kc % run | w->p->block % run);
  for (int32_t j = 0; j < nc; j += NR, panels += (int64_t)kc * NR) {
    if (whole)
      pack_fields(w, panels, k0, kc, j0 + j, nc - j);
    else
      for (int32_t c = 0; c < NR; c++)
        for (int32_t i = 0, n; i < kc; i += n) {
          float piece[PIECE];
          n = kc - i < PIECE ? kc - i : PIECE;
          if (j + c < nc) dequantize(w, j0 + j + c, k0 + i, n, piece);
          EW_PLAIN_FOR (int32_t e = 0; e < n; e++)
            panels[(int64_t)(i + e) * NR + c] = j + c < nc ? piece[e] : 0;
        }
  }
}

/* Packs panels of the transposed b: its rows run along the summation, so fields are stored in panel
 * order. */
static void pack_rows(const ew_gemm_job *g, real *panels, int32_t k0, int32_t kc, int32_t j0,
                      int32_t nc) {
  for (int32_t p = 0; p < kc; p++)
    for (int32_t j = 0; j < nc; j += PIECE) {
      float piece[PIECE];
      int32_t n = nc - j < PIECE ? nc - j : PIECE;
      dequantize(g->b, k0 + p, j0 + j, n, piece);
      for (; n % NR; n++) piece[n] = 0;
      for (int32_t i = 0; i < n; i += NR)
        for (int32_t c = 0; c < NR; c += VF)
          vf_store(panels + (int64_t)(j + i) * kc + p * NR + c, vf_load(piece + i + c));
    }
}

/* ---- few rows ----
 *
 * Weights are read in groups of 16 bytes, as four lanes of 32 bits. A span is one block or, with 2
 * bits, the two blocks that a group may contain, each of which has lanes of its own. Within a span,
 * a is processed in parts of one or more groups.
 *
 * Activations are quantized per block and part, and split into 8- or 16-bit digits (the operand
 * size of the dot-product instruction); the product is a sum of integer dot products of digits and
 * weights. accuracy_level 4 permits one digit, of 8 bits in either case. Otherwise three 8-bit or
 * two 16-bit digits are as precise as float32: the largest element of a part is scaled to 2^22, so
 * rounding loses no more of any element than rounding to float32 loses of the largest, and the sums
 * are exact. Such parts have one group, which keeps sums below 2^31 (8-bit weights are limited to
 * 2^21 for the same reason).
 *
 * A unit is one byte or 16 bits of a group, the size of a digit. The fields of a unit are
 * multiplied with separate planes of a: plane 0 belongs to the lowest fields of a group, plane 1 to
 * the next ones, and so on. The zero points, from sum(a (q - zero)) = sum(a q) - zero sum(a), need
 * only the sums of a. Byte dot products allow at most seven bits on one side: an 8-bit weight is
 * used as q - 128, and the positive and negative digits of a are kept apart.
 *
 * Layout of a prepared part: -(2^(bits-1)) times the sums of a, one per lane, if that is the zero
 * point; the scale of each lane's block; then the digits, highest first. After the last part, if b
 * has zero points, come the sums of a's blocks. */

enum { FEW = 8, CHUNK = 512, COLS = 4, LONGEST = 65536 };

typedef struct few_rows {
  const nbits *w;
  const ew_gemm_job *g;
  /* out[m][COLS] = a times COLS rows of b from `row` on */
  void (*rows)(const struct few_rows *, int32_t row, float *out);
  real *ready;                 /* a, prepared */
  int32_t cols;                /* columns of y per task */
  int32_t spans, groups, each; /* spans per row; groups and blocks per span */
  int32_t row, sums;           /* floats per prepared row; offset of its block sums */
  bool symmetric;              /* all zero points are 2^(bits-1) */
} few_rows;

EW_INLINE bool signs_apart(int bits, bool shorts) { return bits == 8 && !shorts; }
/* Size of a part in floats. */
EW_INLINE int32_t part_of(int32_t groups, int bits, int digits, bool shorts) {
  return 8 + groups * digits * (32 / bits) * (shorts ? 2 : 1) * (signs_apart(bits, shorts) ? 2 : 1);
}

EW_INLINE f32x4 f32x4_fma(f32x4 a, f32x4 b, f32x4 acc) {
#if VF == 4
  return vf_fma(a, b, acc);
#else
  return acc + a * b;
#endif
}

/* Sum, or maximum, over the lanes of each block, in all lanes of the block. */
EW_INLINE f32x4 sum_of_block(f32x4 v, int32_t each) {
  v += __builtin_shufflevector(v, v, 1, 0, 3, 2);
  return each == 1 ? v + __builtin_shufflevector(v, v, 2, 3, 0, 1) : v;
}
EW_INLINE f32x4 most_of_block(f32x4 v, int32_t each) {
  v = f32x4_max(v, __builtin_shufflevector(v, v, 1, 0, 3, 2));
  return each == 1 ? f32x4_max(v, __builtin_shufflevector(v, v, 2, 3, 0, 1)) : v;
}

/* A group of a of `width` elements; if only `left` exist, a copy padded with zeros. */
EW_INLINE const real *group_of(const real *a, int32_t left, int width, real *end) {
  if (left >= width) return a;
  EW_PLAIN_FOR (int i = 0; i < width; i++) end[i] = i < left ? a[i] : 0;
  return end;
}

/* Blocks whose largest magnitude is below this but not 0 are too small for digits: 2^22 / largest,
 * or the product of the two scales, might not be a normal float. Their products are computed in
 * floats. */
static const float TINY = 0x1p-80f;

/* Returns false if a block is too small. Infinities and NaNs give arbitrary digits with wrapping
 * sums; their scale is NaN, and so is the result. */
EW_INLINE bool prepare_digits(const few_rows *f, const real *a, real *ready, int bits, int digits,
                              bool shorts) {
  const int planes = 8 / bits, width = planes * 16;
  const int32_t each = bits == 2 ? f->each : 1, groups = digits > 1 ? 1 : f->groups,
                parts = f->groups / groups, k = f->w->p->k;
  real *sums_of_blocks = ready + f->sums;
  const f32x4 largest = (digits == 1 ? 127
                         : bits == 8 ? 0x1p21f
                                     : 0x1p22f) -
                        (f32x4){0},
              rounder = 0x1.8p23f - (f32x4){0};
  real end[64];
  i32x4 too_small = {0};
  for (int32_t part = 0, from = 0; part < f->spans * parts; part++) {
    real lane_most[4], lane_sum[4];
    uint32_t lane_total[4] = {0};
    EW_PLAIN_FOR (int v = 0; v < 4; v++) {
      f32x4 high = {0}, sum = {0};
      EW_PLAIN_FOR (int32_t g = 0; g < groups; g++) {
        const real *x =
            group_of(a + from + g * width, k - from - g * width, width, end) + v * 4 * planes;
        for (int j = 0; j < planes; j++, x += 4) {
          const f32x4 y = *(const f32x4_m *)x;
          high = f32x4_max(high, (f32x4)((i32x4)y & 0x7fffffff)), sum += y;
        }
      }
      lane_most[v] = most_of_block(high, 1)[0], lane_sum[v] = f32x4_sum(sum);
    }
    const f32x4 most = most_of_block(*(const f32x4_m *)lane_most, each),
                rest = sum_of_block(*(const f32x4_m *)lane_sum, each);
    /* infinities and NaNs make the scale NaN, and so y */
    const f32x4 scale = most / largest + 0 * rest,
                inverse = (f32x4)((i32x4)(largest / most) & (most > 0));
    too_small |= (most > 0) & (most < TINY);
    int8_t *to = (int8_t *)(ready + 8);
    *(f32x4_m *)(ready + 4) = scale;
    for (int32_t g = 0; g < groups; g++, from += width) {
      const real *x = group_of(a + from, k - from, width, end);
      i32x4 t[4][4]; /* [plane of bytes][lane] */
      EW_PLAIN_FOR (int v = 0; v < 4; v++, x += 4 * planes) {
        f32x4 y[4] = {0};
        for (int j = 0; j < planes; j++) y[j] = *(const f32x4_m *)(x + 4 * j);
        if (planes == 4) f32x4_transpose(&y[0], &y[1], &y[2], &y[3]);
        if (planes == 2) {
          const f32x4 even = __builtin_shufflevector(y[0], y[1], 0, 2, 4, 6);
          y[1] = __builtin_shufflevector(y[0], y[1], 1, 3, 5, 7), y[0] = even;
        }
        u32x4 total = {0};
        /* adding 1.5 * 2^23 leaves the rounded number in the low bits */
        for (int j = 0; j < planes; j++)
          t[j][v] = (i32x4)((u32x4)(y[j] * inverse[v] + rounder) - (u32x4)rounder),
          total += (u32x4)t[j][v];
        lane_total[v] += (uint32_t)i32x4_sum((i32x4)total);
      }
      EW_PLAIN_FOR (int d = digits; d-- > 0;)
        EW_PLAIN_FOR (int j = 0; j < planes; j++)
          if (shorts) {
            i16x8 even[2], odd[2];
            for (int v = 0; v < 4; v += 2) {
              const i16x8 p = (i16x8)t[j][v], q = (i16x8)t[j][v + 1];
              even[v / 2] = __builtin_shufflevector(p, q, 0, 4, 8, 12, 0, 4, 8, 12),
                       odd[v / 2] = __builtin_shufflevector(p, q, 2, 6, 10, 14, 2, 6, 10, 14);
              t[j][v] = (i32x4)((u32x4)t[j][v] + 0x8000) >> 16,
              t[j][v + 1] = (i32x4)((u32x4)t[j][v + 1] + 0x8000) >> 16;
            }
            i16x8_m *plane = (i16x8_m *)to + (2 * d * planes + j);
            plane[0] = __builtin_shufflevector(even[0], even[1], 0, 1, 2, 3, 8, 9, 10, 11),
            plane[planes] = __builtin_shufflevector(odd[0], odd[1], 0, 1, 2, 3, 8, 9, 10, 11);
          } else {
            i32x4 low[4];
            for (int v = 0; v < 4; v++)
              low[v] = (i32x4)((u32x4)t[j][v] << 24) >> 24,
              t[j][v] = (i32x4)((u32x4)t[j][v] - (u32x4)low[v]) >> 8;
            const i8x16 digit = i8x16_of(low[0], low[1], low[2], low[3]);
            i8x16_m *plane = (i8x16_m *)to + (d * planes + j);
            if (signs_apart(bits, shorts))
              plane[0] = digit & (digit > 0), plane[1] = -digit & (digit < 0);
            else
              plane[0] = digit;
          }
      to += (part_of(1, bits, digits, shorts) - 8) * 4;
    }
    const i32x4 of_lane = *(const i32x4_m *)lane_total;
    *(i32x4_m *)ready = f->symmetric && !signs_apart(bits, shorts)
                            ? (i32x4)(0u - ((u32x4)of_lane << (bits - 1)))
                            : of_lane & 0;
    const f32x4 of_block =
        digits > 1 ? rest : sum_of_block(__builtin_convertvector(of_lane, f32x4), each) * scale;
    EW_PLAIN_FOR (int e = 0; e < each && !f->symmetric; e++) {
      real *s = sums_of_blocks + part / parts * each + e;
      *s = (part % parts ? *s : 0) + of_block[2 * e];
    }
    ready = (real *)to;
  }
  return !(too_small[0] | too_small[1] | too_small[2] | too_small[3]);
}

/* Contribution of the zero points of a row of b, minus `base`; of_a: block sums of a. */
static __attribute__((noinline)) float of_zeros(const nbits *w, const real *of_a, int32_t row,
                                                float base) {
  const bool half_scales = half_scales_of(w);
  const ew_matmul_nbits_params *p = w->p;
  const int32_t bits = p->bits, blocks = w->blocks;
  const uint32_t field = (1u << bits) - 1;
  const int64_t first = (int64_t)row * blocks;
  const u32x4 mask = {field, field << bits, field << 2 * bits, field << 3 * bits};
  const f32x4 unit = (float)field / __builtin_convertvector(mask, f32x4);
  const uint8_t *z = w->zeros + row * (((int64_t)blocks * bits + 7) / 8);
  f32x4 sum = {0};
  float rest = 0;
  int32_t i = 0;
  /* four consecutive zero points, one per lane */
  EW_PLAIN_FOR (; p->zero_type == EW_U8 && !half_scales && i + 4 <= blocks; i += 4, z += bits / 2) {
    const uint32_t four = bits == 2   ? *z
                          : bits == 4 ? *(const half *)z
                                      : (uint32_t)*(const int_m *)z;
    sum += (__builtin_convertvector(four & mask, f32x4) * unit - base) *
           *(const f32x4_m *)((const real *)w->scales + first + i) * *(const f32x4_m *)(of_a + i);
  }
  EW_PLAIN_FOR (; i < blocks; i++)
    rest += scale_at(w, first + i, half_scales) * (zero_at(w, row, i) - base) * of_a[i];
  return -f32x4_sum(sum) - rest;
}

EW_INLINE f32x4 scale_in_lanes(const nbits *w, int64_t at, bool half) {
  return half ? scale_at(w, at, true) - (f32x4){0} : f32x4_load_splat((const real *)w->scales + at);
}
/* The scale of each lane's block; at: index of the first scale of the span. */
EW_INLINE f32x4 scales_of(const nbits *w, int64_t at, int32_t each, bool half) {
  const f32x4 first = scale_in_lanes(w, at, half);
  return each == 1
             ? first
             : __builtin_shufflevector(first, scale_in_lanes(w, at + each - 1, half), 0, 1, 6, 7);
}

EW_INLINE void rows_digits(const few_rows *f, int32_t row, float *out, int bits, int digits,
                           bool shorts) {
  const nbits *w = f->w;
  const int unit = shorts ? 16 : 8, planes = unit / bits,
            bytes = (part_of(1, bits, digits, shorts) - 8) * 4;
  const bool apart = signs_apart(bits, shorts), half = half_scales_of(w);
  const int32_t parts = digits > 1 ? f->groups : 1, groups = digits > 1 ? 1 : f->groups,
                each = bits == 2 ? f->each : 1;
  const intptr_t row_bytes = (intptr_t)w->blocks * w->block_bytes;
  for (int32_t i = 0; i < w->p->m; i++) {
    const real *a = f->ready + (int64_t)i * f->row;
    const uint8_t *b = w->b + row * (int64_t)row_bytes;
    int64_t at = (int64_t)row * w->blocks;
    f32x4 sum[COLS];
    for (int r = 0; r < COLS; r++) sum[r] = (f32x4){0};
    for (int32_t span = 0; span < f->spans; span++, at += each) {
      f32x4 scale[COLS];
      for (int r = 0; r < COLS && digits > 1; r++)
        scale[r] = scales_of(w, at + r * w->blocks, each, half);
      for (int32_t part = 0; part < parts; part++) {
        const i32x4 start = *(const i32x4_m *)a;
        const f32x4 a_scale = *(const f32x4_m *)(a + 4);
        i32x4 x[COLS], below[COLS];
        for (int r = 0; r < COLS; r++)
          x[r] = digits > 1 || apart ? (i32x4){0} : start, below[r] = (i32x4){0};
        a += 8;
        for (int32_t g = 0; g < groups; g++, b += 16, a += bytes / 4)
          for (int r = 0; r < COLS; r++) {
            const u8x16 v = *(const u8x16_m *)(b + r * row_bytes);
            if (apart) {
              const i8x16 q = (i8x16)(v ^ 128);
              x[r] = i32x4_dot_bytes(q, *(const u8x16_m *)a, x[r]),
              below[r] = i32x4_dot_bytes(q, *(const u8x16_m *)(a + 4), below[r]);
            } else
              for (int d = 0; d < digits; d++) {
                /* the sums wrap for infinities and NaNs, whose digits are arbitrary */
                if (d) x[r] = (i32x4)((u32x4)x[r] << unit);
                for (int j = 0; j < planes; j++) {
                  const real *y = a + (d * planes + j) * 4;
                  /* x86 cannot shift bytes: shift 16-bit units and mask out the bits of the upper
                   * byte */
                  const u16x8 u = (u16x8)v >> (bits * j);
                  if (shorts)
                    x[r] = i32x4_dot_shorts(
                        *(const i16x8_m *)y,
                        (i16x8)(j + 1 < planes ? u & (uint16_t)((1 << bits) - 1) : u), x[r]);
                  else
                    x[r] = i32x4_dot_bytes(*(const i8x16_m *)y,
                                           (u8x16)u & (uint8_t)((1 << bits) - 1), x[r]);
                }
              }
          }
        for (int r = 0; r < COLS; r++) {
          if (apart) x[r] = (i32x4)((u32x4)x[r] - (u32x4)below[r]);
          if (digits > 1) x[r] = (i32x4)((u32x4)x[r] + (u32x4)start);
          /* loaded as late as possible, because registers are scarce */
          if (digits == 1) scale[r] = scales_of(w, at + r * w->blocks, each, half);
          sum[r] = f32x4_fma(__builtin_convertvector(x[r], f32x4), scale[r] * a_scale, sum[r]);
        }
      }
    }
    for (int r = 0; r < COLS; r++)
      out[i * COLS + r] =
          f32x4_sum(sum[r]) + (f->symmetric ? 0
                                            : of_zeros(w, f->ready + (int64_t)i * f->row + f->sums,
                                                       row + r, apart ? 128 : 0));
  }
}

/* 8-bit weights use all eight bits, so at accuracy_level 0 only 16-bit dot products are possible.
 */
EW_INLINE bool in_shorts(int bits, bool rounded) {
  return !EW_BYTE_DOTS || (bits == 8 && !rounded);
}
EW_INLINE int digits_of(int bits, bool rounded) {
  return rounded ? 1 : in_shorts(bits, rounded) ? 2 : 3;
}

#define FEW_ROWS(bits)                                                                             \
  static __attribute__((noinline)) bool prepare_##bits(const few_rows *f, const real *a,           \
                                                       real *ready, bool rounded) {                \
    return prepare_digits(f, a, ready, bits, digits_of(bits, rounded), in_shorts(bits, rounded));  \
  }                                                                                                \
  static __attribute__((noinline)) void floats_##bits(const few_rows *f, int32_t row,              \
                                                      float *out) {                                \
    rows_digits(f, row, out, bits, digits_of(bits, false), in_shorts(bits, false));                \
  }                                                                                                \
  static __attribute__((noinline)) void bytes_##bits(const few_rows *f, int32_t row, float *out) { \
    rows_digits(f, row, out, bits, 1, in_shorts(bits, true));                                      \
  }
FEW_ROWS(2)
FEW_ROWS(4)
FEW_ROWS(8)
#undef FEW_ROWS

/* Code books: the looked-up weights are multiplied with a as floats. The lookup is most of the work
 * and is shared by several rows of a. */
static __attribute__((noinline)) void rows_codes(const few_rows *f, int32_t row, float *out) {
  const nbits *w = f->w;
  const ew_matmul_nbits_params *p = w->p;
  const bool half = half_scales_of(w);
  f32x4 plane[4];
  planes_of(codes[p->format], plane);
  int64_t block = (int64_t)row * w->blocks;
  const uint8_t *b = w->b + (int64_t)row * p->k / 2;
  EW_PLAIN_FOR (int r = 0; r < COLS; r++) {
    const real *a = f->g->a;
    f32x4 sum = {0};
    EW_PLAIN_FOR (int32_t i = 0; i < w->blocks; i++) {
      f32x4 x[4] = {0};
      EW_PLAIN_FOR (int32_t k = 0; k < p->block; k += 16, a += 16, b += 8) {
        f32x4 value[4];
        look_up(plane, fields_of(b, 4, true), value);
        for (int j = 0; j < 4; j++) x[j] = f32x4_fma(value[j], *(const f32x4_m *)(a + 4 * j), x[j]);
      }
      sum = f32x4_fma((x[0] + x[1]) + (x[2] + x[3]), scale_in_lanes(w, block++, half), sum);
    }
    out[r] = f32x4_sum(sum);
  }
}

static void group_task(void *arg, int32_t index, int32_t thread) {
  const few_rows *f = arg;
  const ew_gemm_job *g = f->g;
  (void)thread;
  int32_t begin = index * f->cols, end = g->n - begin < f->cols ? g->n : begin + f->cols;
  for (int32_t j = begin; j < end; j += COLS) {
    float out[FEW * COLS];
    /* at the end, some rows are computed again */
    int32_t first = j + COLS <= g->n ? j : g->n - COLS, cols = end - j < COLS ? end - j : COLS;
    f->rows(f, first, out);
    for (int32_t i = 0; i < g->m; i++)
      ew_finish_row(&g->finish, g->y + (int64_t)i * g->y_row + j, out + i * COLS + (j - first), i,
                    j, cols, g->y_row);
  }
}

/* For shapes that do not fill groups: four rows of b are dequantized to floats, a piece at a time.
 */
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
    for (int32_t i = 0; i < g->m; i++)
      ew_finish_row(&g->finish, g->y + (int64_t)i * g->y_row + j, sum[i], i, j, cols, g->y_row);
  }
}

static void few_rows_run(ew_context *ctx, const nbits *w, const ew_gemm_job *g, real *scratch) {
  const ew_matmul_nbits_params *p = w->p;
  const int64_t block_bits = (int64_t)p->block * p->bits;
  const int32_t each = block_bits == 64 && p->bits == 2 ? 2 : 1;
  const bool rounded = p->accuracy == 4;
  few_rows f = {.w = w,
                .g = g,
                .ready = scratch,
                .each = each,
                .spans = w->blocks / each,
                .groups = (int32_t)(each * block_bits / 128),
                .symmetric = !w->zeros};
  ew_task task = dequantize_task;
  if (!p->format && each * block_bits % 128 == 0 && w->blocks % each == 0 && p->block <= LONGEST &&
      p->n >= COLS && scratch) {
    const int digits = digits_of(p->bits, rounded);
    const int64_t sums =
                      (int64_t)f.spans * (rounded ? 1 : f.groups) *
                      part_of(rounded ? f.groups : 1, p->bits, digits, in_shorts(p->bits, rounded)),
                  row = sums + (w->zeros ? w->blocks : 0);
    if (p->m * row <= 262144) {
      f.row = (int32_t)row, f.sums = (int32_t)sums;
      bool ok = true;
      EW_PLAIN_FOR (int32_t i = 0; i < p->m && ok; i++) {
        const real *a = g->a + (int64_t)i * g->a_row;
        real *ready = scratch + i * row;
#define BITS(B)                                                 \
  if (p->bits == B && rounded) {                                \
    if (EW_USES(NBITS, B) && EW_USES(NBITS_ACCURACY, 4))        \
      f.rows = bytes_##B, ok = prepare_##B(&f, a, ready, true); \
  } else if (p->bits == B && EW_USES(NBITS, B))                 \
  f.rows = floats_##B, ok = prepare_##B(&f, a, ready, false)
        BITS(2);
        BITS(4);
        BITS(8);
#undef BITS
      }
      if (ok) task = group_task;
    }
  }
  if (EW_USES(NBITS_FORMAT, 1) || EW_USES(NBITS_FORMAT, 2)) {
    if (p->format && p->m == 1 && p->n >= COLS && p->block % 16 == 0 && p->k % p->block == 0)
      task = group_task, f.rows = rows_codes;
  }
  /* A task takes about 5 microseconds. */
  const int64_t worth = (int64_t)p->k * p->m * p->n >> (task == dequantize_task ? 14
                                                        : rounded               ? 16
                                                                                : 15);
  const int32_t threads = ew_parallel_width(ctx),
                tasks = worth < threads ? (int32_t)worth + 1 : threads;
  f.cols = ((p->n - 1) / tasks / COLS + 1) * COLS;
  ew_parallel(ctx, (p->n - 1) / f.cols + 1, task, &f);
}

/* ---- many rows in bytes: accuracy_level 4, 4 bits ----
 *
 * Blocks of a are rounded to bytes with a scale each; weights are unpacked to bytes, NR columns per
 * panel, four consecutive k together. The sum over a block is an integer:
 *
 *     y = sum over blocks of a_scale * b_scale * (sum(a b) - zero * sum(a))
 */

enum { BYTE_ROWS = 4 };

typedef struct {
  ew_context *context;
  const nbits *w;
  const ew_gemm_job *g;
  /* rows of a, per block: scale, -8 sum, -sum (both times the scale), unused, then the bytes */
  real *ready;
  /* one panel per thread, per block: NR scales, NR zero points times scales, then the bytes */
  real *panels;
  int32_t row, panel, cols; /* floats per row and per panel of these; columns of y per task */
  int32_t from, rows;       /* range of the rows of a that are prepared */
  bool too_small;           /* a row has a block below TINY */
} many_rows;

static void ready_task(void *arg, int32_t index, int32_t thread) {
  many_rows *f = arg;
  const int32_t block = f->w->p->block;
  const real *a = f->g->a + (int64_t)(f->from + index) * f->g->a_row;
  real *ready = f->ready + (int64_t)index * f->row;
  const vf rounder = vf_splat(0x1.8p23f);
  (void)thread;
  for (int32_t b = 0; b < f->w->blocks; b++, a += block, ready += 4 + block / 4) {
    vf most = vf_splat(0), sum = vf_splat(0);
    vu sums = (vu)vi_splat(0);
    for (int32_t i = 0; i < block; i += VF) {
      vf x = vf_load(a + i);
      most = vf_max(most, vf_max(x, -x)), sum += x;
    }
    const float largest = vf_highest(most), inverse = largest > 0 ? 127 / largest : 0;
    /* adding 1.5 * 2^23 leaves the rounded number in the low bits */
    for (int32_t i = 0; i < block; i += 2 * VF) {
      vi x = (vi)((vu)(vf_load(a + i) * inverse + rounder) - (vu)rounder),
         y = (vi)((vu)(vf_load(a + i + VF) * inverse + rounder) - (vu)rounder);
      sums += (vu)x + (vu)y;
      vi_store_bytes((uint8_t *)(ready + 4) + i, x, y);
    }
    uint32_t whole = 0; /* wraps for infinities and NaNs, whose scale is NaN */
    for (int i = 0; i < VF; i++) whole += sums[i];
    if (largest > 0 && largest < TINY) __atomic_store_n(&f->too_small, true, __ATOMIC_RELAXED);
    ready[0] = largest / 127 + 0 * vf_sum(sum); /* NaN for infinities and NaNs */
    *(int_m *)(ready + 1) = (int32_t)(0u - 8u * whole);
    ready[2] = -(float)(int32_t)whole * ready[0];
  }
}

/* Unpacks columns j .. j + NR - 1. */
static void unpack_panel(const many_rows *f, int32_t j, real *panel) {
  const nbits *w = f->w;
  const bool half = half_scales_of(w);
  const int32_t block = w->p->block;
  for (int32_t b = 0; b < w->blocks; b++) {
    EW_PLAIN_FOR (int32_t c = 0; c < NR; c++) {
      const bool there = j + c < w->p->n;
      panel[c] = there ? scale_at(w, (int64_t)(j + c) * w->blocks + b, half) : 0;
      panel[NR + c] = there && w->zeros ? panel[c] * zero_at(w, j + c, b) : 0;
    }
    panel += 2 * NR;
    for (int32_t g = 0; g < block / 32; g++, panel += 8 * NR)
      for (int32_t c = 0; c < NR; c += 4) {
        u8x16 column[4];
        f32x4 low[4], high[4];
        for (int i = 0; i < 4; i++)
          column[i] =
              *(const u8x16_m *)(w->b +
                                 ((int64_t)(j + c + i < w->p->n ? j + c + i : j) * w->blocks + b) *
                                     w->block_bytes +
                                 g * 16);
        turn_fields(column, low, high);
        for (int i = 0; i < 4; i++)
          *(f32x4_m *)(panel + i * NR + c) = low[i],
                                        *(f32x4_m *)(panel + (i + 4) * NR + c) = high[i];
      }
  }
}

/* out[BYTE_ROWS][NR] */
static __attribute__((noinline)) void byte_tile(int32_t blocks, int32_t block, const real *a,
                                                intptr_t a_row, const real *b, bool zeros,
                                                real *out) {
  for (int32_t i = 0; i < BYTE_ROWS * NR; i += VF) vf_store(out + i, vf_splat(0));
  for (; blocks > 0; blocks--, a += 4 + block / 4, b += 2 * NR + block / 4 * NR) {
    const real *p = a, *q = b + 2 * NR, *end = a + 4 + block / 4;
    vi x[BYTE_ROWS][2];
    for (int r = 0; r < BYTE_ROWS; r++, p += a_row)
      for (int c = 0; c < 2; c++)
        x[r][c] = zeros ? vi_splat(0) : vi_load_splat((const int_m *)(p + 1));
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
        vf y = vf_fma(__builtin_convertvector(x[r][c], vf), vf_load(b + c * VF) * vf_load_splat(p),
                      vf_load(sum));
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
  for (int32_t j = index * f->cols; j < end && !ew_stopping(f->context); j += NR) {
    unpack_panel(f, j, panel);
    for (int32_t i = 0; i < f->rows; i += BYTE_ROWS) {
      float t[BYTE_ROWS * NR];
      /* at the end, some rows are computed again */
      const int32_t first = i + BYTE_ROWS <= f->rows ? i : f->rows - BYTE_ROWS;
      byte_tile(f->w->blocks, f->w->p->block, f->ready + (int64_t)first * f->row, f->row, panel,
                f->w->zeros != NULL, t);
      for (int32_t r = i; r < f->rows && r < i + BYTE_ROWS; r++)
        ew_finish_row(&g->finish, g->y + (int64_t)(f->from + r) * g->y_row + j,
                      t + (r - first) * NR, f->from + r, j, end - j < NR ? end - j : NR, g->y_row);
    }
  }
}

/* Returns the number of leading rows computed; fewer than all where this method does not apply. */
static int32_t many_rows_run(ew_context *ctx, const nbits *w, const ew_gemm_job *g, real *scratch) {
  const ew_matmul_nbits_params *p = w->p;
  const int32_t threads = ew_parallel_width(ctx);
  if (p->accuracy != 4 || p->bits != 4 || p->format || p->block % 32 || p->k % p->block ||
      !scratch || !(EW_RELAXED_DOTS || vi_dots()))
    return 0;
  const int64_t row = (int64_t)w->blocks * (4 + p->block / 4),
                panel = (int64_t)w->blocks * NR * (2 + p->block / 4),
                rows = ((1 << 18) - panel * threads) / row;
  if (rows < 4 * FEW) return 0;
  const int32_t parts = 4 * threads, share = (p->n / NR + parts) / parts * NR;
  many_rows f = {.context = ctx,
                 .w = w,
                 .g = g,
                 .panels = scratch,
                 .ready = scratch + panel * threads,
                 .row = (int32_t)row,
                 .panel = (int32_t)panel,
                 .cols = threads > 1 ? share : p->n};
  for (f.from = 0; f.from < p->m; f.from += f.rows) {
    const int64_t left = p->m - f.from;
    /* at least one tile */
    f.rows = (int32_t)(left <= rows ? left : left < rows + FEW ? rows - FEW : rows);
    ew_parallel(ctx, f.rows, ready_task, &f);
    if (f.too_small) break;
    ew_parallel(ctx, (p->n - 1) / f.cols + 1, many_task, &f);
  }
  return f.from;
}

int32_t ew_k_matmul_nbits(ew_context *ctx, const ew_matmul_nbits_params *p, void *const *operand) {
  nbits w = {p,
             operand[EW_MATMUL_NBITS_B],
             operand[EW_MATMUL_NBITS_ZEROS],
             operand[EW_MATMUL_NBITS_SCALES],
             p->k / p->block + (p->k % p->block != 0),
             (int32_t)(((int64_t)p->block * p->bits + 7) / 8)};
  real *scratch = operand[EW_MATMUL_NBITS_SCRATCH];
  ew_gemm_job g = {.m = p->m,
                   .n = p->n,
                   .k = p->k,
                   .a_row = p->a_row,
                   .a_col = 1,
                   .y_row = p->y_row,
                   .a = operand[EW_MATMUL_NBITS_A],
                   .y = operand[EW_MATMUL_NBITS_Y],
                   .finish = {.bias = operand[EW_MATMUL_NBITS_BIAS],
                              .residual = operand[EW_MATMUL_NBITS_RESIDUAL],
                              .bias_col = 1,
                              .activation = p->activation,
                              .alpha = 1,
                              .beta = 1},
                   .pack_b = pack_b,
                   .b = &w};
  const bool transposed = p->transposed && EW_USES(NBITS_TRANSPOSED, 1);
  if (transposed) g.n = p->k, g.k = p->n, g.pack_b = pack_rows;
  if (p->m <= FEW && !transposed) {
    few_rows_run(ctx, &w, &g, scratch);
    return EW_OK;
  }
  const int32_t done = !transposed && EW_USES(NBITS, 4) && EW_USES(NBITS_ACCURACY, 4)
                           ? many_rows_run(ctx, &w, &g, scratch)
                           : 0;
  g.m -= done, g.a += (int64_t)done * p->a_row, g.y += (int64_t)done * p->y_row;
  if (g.finish.residual) g.finish.residual += (int64_t)done * p->y_row;
  if (g.m > 0)
    ew_gemm_run(ctx, &g, scratch, EW_GEMM_B_FLOATS, scratch ? scratch + EW_GEMM_B_FLOATS : NULL,
                EW_GEMM_A_FLOATS, ew_parallel_width(ctx));
  return EW_OK;
}
