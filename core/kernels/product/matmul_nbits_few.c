/* MatMulNBits with few rows of a: integer dot products on the packed weights.
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
#include "kernels/product/matmul_nbits.h"

/* CHUNK: weights dequantized at a time; COLS: rows of b per call; LONGEST: maximum block size */
enum { CHUNK = 512, COLS = 4, LONGEST = 65536 };

typedef struct nbits_few_rows {
  const ew_nbits *w;
  const ew_gemm_job *g;
  /* out[m][COLS] = a times COLS rows of b from `row` on */
  void (*rows)(const struct nbits_few_rows *, int32_t row, float *out);
  real *ready;                 /* a, prepared */
  int32_t cols;                /* columns of y per task */
  int32_t spans, groups, each; /* spans per row; groups and blocks per span */
  int32_t row, sums;           /* floats per prepared row; offset of its block sums */
  bool symmetric;              /* all zero points are 2^(bits-1) */
} nbits_few_rows;

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

/* Splits the lowest digit off the integers t of plane j and stores it as digit d. */
EW_INLINE void put_digit(i32x4 t[4], int bits, bool shorts, int planes, int d, int j, int8_t *to) {
  if (shorts) {
    i16x8 even[2], odd[2];
    for (int v = 0; v < 4; v += 2) {
      const i16x8 p = (i16x8)t[v], q = (i16x8)t[v + 1];
      even[v / 2] = __builtin_shufflevector(p, q, 0, 4, 8, 12, 0, 4, 8, 12);
      odd[v / 2] = __builtin_shufflevector(p, q, 2, 6, 10, 14, 2, 6, 10, 14);
      t[v] = (i32x4)((u32x4)t[v] + 0x8000) >> 16;
      t[v + 1] = (i32x4)((u32x4)t[v + 1] + 0x8000) >> 16;
    }
    i16x8_m *plane = (i16x8_m *)to + (2 * d * planes + j);
    plane[0] = __builtin_shufflevector(even[0], even[1], 0, 1, 2, 3, 8, 9, 10, 11);
    plane[planes] = __builtin_shufflevector(odd[0], odd[1], 0, 1, 2, 3, 8, 9, 10, 11);
  } else {
    i32x4 low[4];
    for (int v = 0; v < 4; v++) {
      low[v] = (i32x4)((u32x4)t[v] << 24) >> 24;
      t[v] = (i32x4)((u32x4)t[v] - (u32x4)low[v]) >> 8;
    }
    const i8x16 digit = i8x16_of(low[0], low[1], low[2], low[3]);
    i8x16_m *plane = (i8x16_m *)to + (d * planes + j);
    if (signs_apart(bits, shorts))
      plane[0] = digit & (digit > 0), plane[1] = -digit & (digit < 0);
    else
      plane[0] = digit;
  }
}

/* Returns false if a block is too small. Infinities and NaNs give arbitrary digits with wrapping
 * sums; their scale is NaN, and so is the result. */
EW_INLINE bool prepare_digits(const nbits_few_rows *f, const real *a, real *ready, int bits,
                              int digits, bool shorts) {
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
    too_small |= (most > 0) & (most < EW_NBITS_TINY);
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
        EW_PLAIN_FOR (int j = 0; j < planes; j++) put_digit(t[j], bits, shorts, planes, d, j, to);
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
static __attribute__((noinline)) float of_zeros(const ew_nbits *w, const real *of_a, int32_t row,
                                                float base) {
  const bool half_scales = ew_nbits_half_scales(w);
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
    rest += ew_nbits_scale(w, first + i, half_scales) * (ew_nbits_zero(w, row, i) - base) * of_a[i];
  return -f32x4_sum(sum) - rest;
}

EW_INLINE f32x4 scale_in_lanes(const ew_nbits *w, int64_t at, bool half) {
  return half ? ew_nbits_scale(w, at, true) - (f32x4){0}
              : f32x4_load_splat((const real *)w->scales + at);
}
/* The scale of each lane's block; at: index of the first scale of the span. */
EW_INLINE f32x4 scales_of(const ew_nbits *w, int64_t at, int32_t each, bool half) {
  const f32x4 first = scale_in_lanes(w, at, half);
  return each == 1
             ? first
             : __builtin_shufflevector(first, scale_in_lanes(w, at + each - 1, half), 0, 1, 6, 7);
}

EW_INLINE void rows_digits(const nbits_few_rows *f, int32_t row, float *out, int bits, int digits,
                           bool shorts) {
  const ew_nbits *w = f->w;
  const int unit = shorts ? 16 : 8, planes = unit / bits,
            bytes = (part_of(1, bits, digits, shorts) - 8) * 4;
  const bool apart = signs_apart(bits, shorts), half = ew_nbits_half_scales(w);
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

#define FEW_ROWS(bits)                                                                            \
  static __attribute__((noinline)) bool prepare_##bits(const nbits_few_rows *f, const real *a,    \
                                                       real *ready, bool rounded) {               \
    return prepare_digits(f, a, ready, bits, digits_of(bits, rounded), in_shorts(bits, rounded)); \
  }                                                                                               \
  static __attribute__((noinline)) void floats_##bits(const nbits_few_rows *f, int32_t row,       \
                                                      float *out) {                               \
    rows_digits(f, row, out, bits, digits_of(bits, false), in_shorts(bits, false));               \
  }                                                                                               \
  static __attribute__((noinline)) void bytes_##bits(const nbits_few_rows *f, int32_t row,        \
                                                     float *out) {                                \
    rows_digits(f, row, out, bits, 1, in_shorts(bits, true));                                     \
  }
FEW_ROWS(2)
FEW_ROWS(4)
FEW_ROWS(8)
#undef FEW_ROWS

/* Code books: the looked-up weights are multiplied with a as floats. The lookup is most of the work
 * and is shared by several rows of a. */
static __attribute__((noinline)) void rows_codes(const nbits_few_rows *f, int32_t row, float *out) {
  const ew_nbits *w = f->w;
  const ew_matmul_nbits_params *p = w->p;
  const bool half = ew_nbits_half_scales(w);
  f32x4 plane[4];
  ew_nbits_planes(ew_nbits_codes[p->format], plane);
  int64_t block = (int64_t)row * w->blocks;
  const uint8_t *b = w->b + (int64_t)row * p->k / 2;
  EW_PLAIN_FOR (int r = 0; r < COLS; r++) {
    const real *a = f->g->a;
    f32x4 sum = {0};
    EW_PLAIN_FOR (int32_t i = 0; i < w->blocks; i++) {
      f32x4 x[4] = {0};
      EW_PLAIN_FOR (int32_t k = 0; k < p->block; k += 16, a += 16, b += 8) {
        f32x4 value[4];
        ew_nbits_look_up(plane, ew_nbits_fields(b, 4, true), value);
        for (int j = 0; j < 4; j++) x[j] = f32x4_fma(value[j], *(const f32x4_m *)(a + 4 * j), x[j]);
      }
      sum = f32x4_fma((x[0] + x[1]) + (x[2] + x[3]), scale_in_lanes(w, block++, half), sum);
    }
    out[r] = f32x4_sum(sum);
  }
}

static void group_task(void *arg, int32_t index, int32_t thread) {
  const nbits_few_rows *f = arg;
  const ew_gemm_job *g = f->g;
  (void)thread;
  int32_t begin = index * f->cols, end = g->n - begin < f->cols ? g->n : begin + f->cols;
  for (int32_t j = begin; j < end; j += COLS) {
    float out[EW_NBITS_FEW * COLS];
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
  const nbits_few_rows *f = arg;
  const ew_gemm_job *g = f->g;
  (void)thread;
  int32_t begin = index * f->cols, end = g->n - begin < f->cols ? g->n : begin + f->cols;
  for (int32_t j = begin; j < end; j += 4) {
    float b[4][CHUNK], sum[EW_NBITS_FEW][4] = {{0}}, out[16];
    int32_t cols = end - j < 4 ? end - j : 4;
    for (int32_t k0 = 0; k0 < g->k; k0 += CHUNK) {
      int32_t n = g->k - k0 < CHUNK ? g->k - k0 : CHUNK;
      for (int32_t c = 0; c < 4; c++)
        ew_nbits_dequantize(f->w, j + (c < cols ? c : 0), k0, n, b[c]);
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

void ew_nbits_few_rows(ew_context *ctx, const ew_nbits *w, const ew_gemm_job *g, real *scratch) {
  const ew_matmul_nbits_params *p = w->p;
  const int64_t block_bits = (int64_t)p->block * p->bits;
  const int32_t each = block_bits == 64 && p->bits == 2 ? 2 : 1;
  const bool rounded = p->accuracy == 4;
  nbits_few_rows f = {.w = w,
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
