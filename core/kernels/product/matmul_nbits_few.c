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
#include <string.h>

/* CHUNK: weights dequantized at a time; COLS: rows of b per call; LONGEST: maximum block size;
 * ABREAST: rows of a in a vector, four lanes each; TILES: such vectors per pass over b; ROOM:
 * floats of scratch; TOGETHER: columns of y that are finished at once */
enum {
  CHUNK = 512,
  COLS = EW_NBITS_COLS,
  LONGEST = 65536,
  ABREAST = VF / 4,
  TILES = 2,
  ROOM = 262144,
  TOGETHER = 32
};

typedef struct {
  const ew_nbits *w;
  const ew_gemm_job *g;
  /* out[m][COLS] = a times COLS rows of b from `row` on, `step` rows from each other */
  ew_nbits_columns rows;
  real *ready;                 /* a, prepared */
  real *abreast;               /* the same without the sums of blocks, ABREAST rows at a time,
                                * by turns four floats of each; NULL: not used */
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

/* Adds the contribution of the zero points of row `row` of b, minus `base`, to results for `count`
 * rows of a, COLS apart. of_a: sums of the blocks of the first of these rows. */
EW_INLINE void add_zeros(const nbits_few_rows *f, const real *of_a, int32_t count, int32_t row,
                         float base, real *out) {
  const ew_nbits *w = f->w;
  const bool half_scales = ew_nbits_half_scales(w);
  const ew_matmul_nbits_params *p = w->p;
  const int32_t bits = p->bits, blocks = w->blocks;
  const uint32_t field = (1u << bits) - 1;
  const int64_t first = (int64_t)row * blocks;
  const u32x4 mask = {field, field << bits, field << 2 * bits, field << 3 * bits};
  const f32x4 unit = (float)field / __builtin_convertvector(mask, f32x4);
  const uint8_t *z = w->zeros + row * (((int64_t)blocks * bits + 7) / 8);
  f32x4 sum[EW_NBITS_ABREAST];
  float rest[EW_NBITS_ABREAST];
  int32_t i = 0;
  EW_PLAIN_FOR (int32_t k = 0; k < count; k++) sum[k] = (f32x4){0}, rest[k] = 0;
  /* four consecutive zero points, one per lane */
  EW_PLAIN_FOR (; p->zero_type == EW_U8 && !half_scales && i + 4 <= blocks; i += 4, z += bits / 2) {
    const uint32_t four = bits == 2   ? *z
                          : bits == 4 ? *(const half *)z
                                      : (uint32_t)*(const int_m *)z;
    const f32x4 scaled = (__builtin_convertvector(four & mask, f32x4) * unit - base) *
                         *(const f32x4_m *)((const real *)w->scales + first + i);
    const real *a = of_a + i;
    EW_PLAIN_FOR (int32_t k = 0; k < count; k++, a += f->row)
      sum[k] += scaled * *(const f32x4_m *)a;
  }
  EW_PLAIN_FOR (; i < blocks; i++) {
    const float scaled =
        ew_nbits_scale(w, first + i, half_scales) * (ew_nbits_zero(w, row, i) - base);
    EW_PLAIN_FOR (int32_t k = 0; k < count; k++) rest[k] += scaled * of_a[(int64_t)k * f->row + i];
  }
  EW_PLAIN_FOR (int32_t k = 0; k < count; k++) out[k * COLS] += -f32x4_sum(sum[k]) - rest[k];
}
static __attribute__((noinline)) void add_zeros_1(const nbits_few_rows *f, const real *of_a,
                                                  int32_t row, float base, real *out) {
  add_zeros(f, of_a, 1, row, base, out);
}
#if VF > 4
static __attribute__((noinline)) void add_zeros_of_rows(const nbits_few_rows *f, int32_t row,
                                                        float base, real *out) {
  add_zeros(f, f->ready + f->sums, f->w->p->m, row, base, out);
}
#endif

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

EW_INLINE void rows_digits(const nbits_few_rows *f, int32_t row, int32_t step, real *out, int bits,
                           int digits, bool shorts) {
  const ew_nbits *w = f->w;
  const int unit = shorts ? 16 : 8, planes = unit / bits,
            bytes = (part_of(1, bits, digits, shorts) - 8) * 4;
  const bool apart = signs_apart(bits, shorts), half = ew_nbits_half_scales(w);
  const int32_t parts = digits > 1 ? f->groups : 1, groups = digits > 1 ? 1 : f->groups,
                each = bits == 2 ? f->each : 1;
  const int64_t row_bytes = (int64_t)w->blocks * w->block_bytes, scales = (int64_t)w->blocks * step;
  const intptr_t column = (intptr_t)(row_bytes * step);
  for (int32_t i = 0; i < w->p->m; i++) {
    const real *a = f->ready + (int64_t)i * f->row;
    const uint8_t *b = w->b + row * row_bytes;
    int64_t at = (int64_t)row * w->blocks;
    f32x4 sum[COLS];
    for (int r = 0; r < COLS; r++) sum[r] = (f32x4){0};
    for (int32_t span = 0; span < f->spans; span++, at += each) {
      f32x4 scale[COLS];
      for (int r = 0; r < COLS && digits > 1; r++)
        scale[r] = scales_of(w, at + r * scales, each, half);
      for (int32_t part = 0; part < parts; part++) {
        const i32x4 start = *(const i32x4_m *)a;
        const f32x4 a_scale = *(const f32x4_m *)(a + 4);
        i32x4 x[COLS], below[COLS];
        for (int r = 0; r < COLS; r++)
          x[r] = digits > 1 || apart ? (i32x4){0} : start, below[r] = (i32x4){0};
        a += 8;
        for (int32_t g = 0; g < groups; g++, b += 16, a += bytes / 4)
          for (int r = 0; r < COLS; r++) {
            const u8x16 v = *(const u8x16_m *)(b + r * column);
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
          if (digits == 1) scale[r] = scales_of(w, at + r * scales, each, half);
          sum[r] = f32x4_fma(__builtin_convertvector(x[r], f32x4), scale[r] * a_scale, sum[r]);
        }
      }
    }
    for (int r = 0; r < COLS; r++) {
      out[i * COLS + r] = f32x4_sum(sum[r]);
      if (!f->symmetric)
        add_zeros_1(f, f->ready + (int64_t)i * f->row + f->sums, row + r * step, apart ? 128 : 0,
                    out + i * COLS + r);
    }
  }
}

#if VF > 4
typedef uint16_t wide_shorts __attribute__((vector_size(4 * VF)));
typedef uint8_t wide_bytes __attribute__((vector_size(4 * VF)));
/* i32x4_dot_bytes over whole vectors. vnni: as one instruction */
EW_INLINE vi wide_dot_bytes(vi a, vi b, vi acc, bool vnni) {
#  if VF == 16
  if (vnni) return vi_dot_bytes(a, b, acc);
  return (vi)((vu)acc + (vu)_mm512_madd_epi16(_mm512_maddubs_epi16((__m512i)b, (__m512i)a),
                                              _mm512_set1_epi16(1)));
#  else
  (void)vnni;
  return (vi)((vu)acc + (vu)_mm256_madd_epi16(_mm256_maddubs_epi16((__m256i)b, (__m256i)a),
                                              _mm256_set1_epi16(1)));
#  endif
}

/* The rows of a beside each other. */
static void put_abreast(const nbits_few_rows *f) {
  EW_PLAIN_FOR (int32_t i = 0; i < f->w->p->m; i++) {
    const real *from = f->ready + (int64_t)i * f->row;
    real *to = f->abreast + (int64_t)(i / ABREAST * ABREAST) * f->sums + i % ABREAST * 4;
    EW_PLAIN_FOR (int32_t c = 0; c < f->sums; c += 4, to += VF)
      *(f32x4_m *)to = *(const f32x4_m *)(from + c);
  }
}

#  ifdef __clang__
#    define UNROLLED _Pragma("clang loop unroll(full)")
#  else
#    define UNROLLED _Pragma("GCC unroll 8")
#  endif
/* rows_digits for several rows of a: the weights are unpacked once for TILES vectors of them. The
 * lanes of a row do what they do there. */
EW_INLINE void rows_abreast(const nbits_few_rows *f, int32_t row, int32_t step, real *out, int bits,
                            int digits, bool shorts, bool vnni) {
  const ew_nbits *w = f->w;
  const int unit = shorts ? 16 : 8, planes = unit / bits,
            bytes = (part_of(1, bits, digits, shorts) - 8) * 4;
  const bool apart = signs_apart(bits, shorts), half = ew_nbits_half_scales(w);
  const int32_t parts = digits > 1 ? f->groups : 1, groups = digits > 1 ? 1 : f->groups,
                each = bits == 2 ? f->each : 1;
  const int64_t row_bytes = (int64_t)w->blocks * w->block_bytes, scales = (int64_t)w->blocks * step;
  const intptr_t column = (intptr_t)(row_bytes * step), next = (intptr_t)ABREAST * f->sums;
  for (int32_t i = 0; i < w->p->m; i += TILES * ABREAST) {
    const real *a = f->abreast + (int64_t)i * f->sums;
    const uint8_t *b = w->b + row * row_bytes;
    int64_t at = (int64_t)row * w->blocks;
    vf sum[TILES][COLS];
    UNROLLED for (int t = 0; t < TILES; t++) UNROLLED for (int r = 0; r < COLS; r++) sum[t][r] =
        vf_splat(0);
    for (int32_t span = 0; span < f->spans; span++, at += each)
      for (int32_t part = 0; part < parts; part++) {
        vi x[TILES][COLS], below[TILES][COLS], start[TILES];
        vf a_scale[TILES];
        UNROLLED for (int t = 0; t < TILES; t++) {
          start[t] = (vi)vf_load(a + t * next), a_scale[t] = vf_load(a + t * next + VF);
          UNROLLED for (int r = 0; r < COLS; r++) x[t][r] =
              digits > 1 || apart ? vi_splat(0) : start[t],
                                                  below[t][r] = vi_splat(0);
        }
        a += 2 * VF;
        for (int32_t g = 0; g < groups; g++, b += 16, a += bytes / 4 * ABREAST)
          UNROLLED for (int r = 0; r < COLS; r++) {
            const u8x16 v = *(const u8x16_m *)(b + r * column);
            if (apart) {
              const vi q = vi_repeat(v ^ 128);
              UNROLLED for (int t = 0; t < TILES; t++)
                  x[t][r] = wide_dot_bytes(q, (vi)vf_load(a + t * next), x[t][r], vnni),
                  below[t][r] =
                      wide_dot_bytes(q, (vi)vf_load(a + t * next + VF), below[t][r], vnni);
            } else {
              const wide_shorts fields = (wide_shorts)vi_repeat(v);
              UNROLLED for (int d = 0; d < digits; d++) {
                UNROLLED for (int t = 0; t < TILES && d; t++) x[t][r] = (vi)((vu)x[t][r] << unit);
                UNROLLED for (int j = 0; j < planes; j++) {
                  const wide_shorts u = fields >> (bits * j);
                  const vi n = shorts ? (vi)(j + 1 < planes ? u & (uint16_t)((1 << bits) - 1) : u)
                                      : (vi)((wide_bytes)u & (uint8_t)((1 << bits) - 1));
                  UNROLLED for (int t = 0; t < TILES; t++) {
                    const vi y = (vi)vf_load(a + t * next + (d * planes + j) * VF);
                    x[t][r] =
                        shorts ? vi_dot_shorts(y, n, x[t][r]) : wide_dot_bytes(y, n, x[t][r], vnni);
                  }
                }
              }
            }
          }
        UNROLLED for (int r = 0; r < COLS; r++) {
          const vf scale = (vf)vi_repeat((u8x16)scales_of(w, at + r * scales, each, half));
          UNROLLED for (int t = 0; t < TILES; t++) {
            if (apart) x[t][r] = (vi)((vu)x[t][r] - (vu)below[t][r]);
            if (digits > 1) x[t][r] = (vi)((vu)x[t][r] + (vu)start[t]);
            sum[t][r] += __builtin_convertvector(x[t][r], vf) * (scale * a_scale[t]);
          }
        }
      }
    float lanes[TILES][COLS][VF];
    UNROLLED for (int t = 0; t < TILES; t++) UNROLLED for (int r = 0; r < COLS; r++)
        vf_store(lanes[t][r], sum[t][r]);
    for (int32_t k = i; k < w->p->m && k < i + TILES * ABREAST; k++)
      for (int r = 0; r < COLS; r++) {
        const real *of_row = lanes[(k - i) / ABREAST][r] + (k - i) % ABREAST * 4;
        out[k * COLS + r] = f32x4_sum(*(const f32x4_m *)of_row);
      }
  }
  for (int r = 0; r < COLS && !f->symmetric; r++)
    add_zeros_of_rows(f, row + r * step, apart ? 128 : 0, out + r);
}
#endif

/* 8-bit weights use all eight bits, so at accuracy_level 0 only 16-bit dot products are possible.
 */
EW_INLINE bool in_shorts(int bits, bool rounded) {
  return !EW_BYTE_DOTS || (bits == 8 && !rounded);
}
EW_INLINE int digits_of(int bits, bool rounded) {
  return rounded ? 1 : in_shorts(bits, rounded) ? 2 : 3;
}

#if VF > 4
#  define ROWS(f, row, step, out, bits, rounded)                                                \
    if (f->abreast && vi_dots())                                                                \
      rows_abreast(f, row, step, out, bits, digits_of(bits, rounded), in_shorts(bits, rounded), \
                   true);                                                                       \
    else if (f->abreast)                                                                        \
      rows_abreast(f, row, step, out, bits, digits_of(bits, rounded), in_shorts(bits, rounded), \
                   false);                                                                      \
    else                                                                                        \
      rows_digits(f, row, step, out, bits, digits_of(bits, rounded), in_shorts(bits, rounded))
#else
#  define ROWS(f, row, step, out, bits, rounded) \
    rows_digits(f, row, step, out, bits, digits_of(bits, rounded), in_shorts(bits, rounded))
#endif
#define FEW_ROWS(bits)                                                                            \
  static __attribute__((noinline)) bool prepare_##bits(const nbits_few_rows *f, const real *a,    \
                                                       real *ready, bool rounded) {               \
    return prepare_digits(f, a, ready, bits, digits_of(bits, rounded), in_shorts(bits, rounded)); \
  }                                                                                               \
  static __attribute__((noinline)) void floats_##bits(const void *arg, int32_t row, int32_t step, \
                                                      real *out) {                                \
    const nbits_few_rows *f = arg;                                                                \
    ROWS(f, row, step, out, bits, false);                                                         \
  }                                                                                               \
  static __attribute__((noinline)) void bytes_##bits(const void *arg, int32_t row, int32_t step,  \
                                                     real *out) {                                 \
    const nbits_few_rows *f = arg;                                                                \
    ROWS(f, row, step, out, bits, true);                                                          \
  }
FEW_ROWS(2)
FEW_ROWS(4)
FEW_ROWS(8)
#undef FEW_ROWS
#undef ROWS

/* Code books: the looked-up weights are multiplied with a as floats. The lookup is most of the work
 * and is shared by several rows of a. */
static __attribute__((noinline)) void rows_codes(const void *arg, int32_t row, int32_t step,
                                                 real *out) {
  const nbits_few_rows *f = arg;
  const ew_nbits *w = f->w;
  const ew_matmul_nbits_params *p = w->p;
  const bool half = ew_nbits_half_scales(w);
  f32x4 plane[4];
  ew_nbits_planes(ew_nbits_codes[p->format], plane);
  EW_PLAIN_FOR (int r = 0; r < COLS; r++, row += step) {
    int64_t block = (int64_t)row * w->blocks;
    const uint8_t *b = w->b + (int64_t)row * p->k / 2;
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

typedef struct {
  const ew_gemm_job *g;
  ew_nbits_columns columns;
  const void *f;
  int32_t cols; /* columns of y per task */
} column_job;

static void columns_task(void *arg, int32_t index, int32_t thread) {
  const column_job *job = arg;
  const ew_gemm_job *g = job->g;
  const int32_t begin = index * job->cols, left = g->n - begin,
                count = left < job->cols ? left : job->cols, step = count / COLS,
                rest = count % COLS;
  real out[EW_NBITS_ABREAST * COLS];
  (void)thread;
  for (int32_t j = begin, n; j < begin + step; j += n) {
    real sums[COLS][EW_NBITS_ABREAST][TOGETHER];
    n = begin + step - j < TOGETHER ? begin + step - j : TOGETHER;
    EW_PLAIN_FOR (int32_t c = 0; c < n; c++) {
      job->columns(job->f, j + c, step, out);
      EW_PLAIN_FOR (int32_t i = 0; i < g->m; i++)
        for (int r = 0; r < COLS; r++) sums[r][i][c] = out[i * COLS + r];
    }
    for (int32_t r = 0, col = j; r < COLS; r++, col += step)
      for (int32_t i = 0; i < g->m; i++)
        ew_finish_row(&g->finish, g->y + (int64_t)i * g->y_row + col, sums[r][i], i, col, n,
                      g->y_row);
  }
  if (rest) { /* some columns are computed again */
    const int32_t col = begin + count - rest;
    job->columns(job->f, begin + count - COLS, 1, out);
    for (int32_t i = 0; i < g->m; i++)
      ew_finish_row(&g->finish, g->y + (int64_t)i * g->y_row + col, out + (i + 1) * COLS - rest, i,
                    col, rest, g->y_row);
  }
}

/* Columns per task: one task per thread, or four where they are long, of which idle threads can
 * take some. */
static int32_t share(const ew_context *ctx, int32_t n, int64_t worth) {
  const int32_t threads = ew_parallel_width(ctx),
                most = worth < 64 * (int64_t)threads ? threads : 4 * threads,
                tasks = worth < most ? (int32_t)worth + 1 : most;
  return ((n - 1) / tasks / COLS + 1) * COLS;
}

void ew_nbits_by_columns(ew_context *ctx, const ew_gemm_job *g, int64_t worth,
                         ew_nbits_columns columns, const void *f) {
  column_job job = {g, columns, f, share(ctx, g->n, worth)};
  ew_parallel(ctx, (g->n - 1) / job.cols + 1, columns_task, &job);
}

/* For shapes that do not fill groups: four rows of b are dequantized to floats, a piece at a time.
 */
static void dequantize_task(void *arg, int32_t index, int32_t thread) {
  const nbits_few_rows *f = arg;
  const ew_gemm_job *g = f->g;
  (void)thread;
  int32_t begin = index * f->cols, end = g->n - begin < f->cols ? g->n : begin + f->cols;
  for (int32_t j = begin; j < end; j += 4) {
    float b[4][CHUNK], sum[EW_NBITS_ABREAST][4] = {{0}}, out[16];
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

/* The layout of prepared rows; false if products of this shape are not of digits. */
static bool lay_out(nbits_few_rows *f) {
  const ew_nbits *w = f->w;
  const ew_matmul_nbits_params *p = w->p;
  const int64_t block_bits = (int64_t)p->block * p->bits;
  const bool rounded = p->accuracy == 4;
  f->each = block_bits == 64 && p->bits == 2 ? 2 : 1;
  f->spans = w->blocks / f->each, f->groups = (int32_t)(f->each * block_bits / 128);
  f->symmetric = !w->zeros;
  if (p->format || f->each * block_bits % 128 || w->blocks % f->each || p->block > LONGEST ||
      p->n < COLS || !f->ready)
    return false;
  const int digits = digits_of(p->bits, rounded);
  const int64_t sums =
                    (int64_t)f->spans * (rounded ? 1 : f->groups) *
                    part_of(rounded ? f->groups : 1, p->bits, digits, in_shorts(p->bits, rounded)),
                row = sums + (w->zeros ? w->blocks : 0);
  f->row = (int32_t)row, f->sums = (int32_t)sums;
  return row <= ROOM;
}

/* Floats of m prepared rows: one by one, and with more than two of them abreast. */
static int64_t floats_of(const nbits_few_rows *f, int32_t m) {
  const int32_t pass = TILES * ABREAST;
  return (int64_t)m * f->row + (VF > 4 && m > 2 ? (m + pass - 1) / pass * pass * f->sums : 0);
}

/* Prepares rows of a; false if one of them has a block that is too small. */
static bool prepare(nbits_few_rows *f) {
  const ew_matmul_nbits_params *p = f->w->p;
  const bool rounded = p->accuracy == 4;
  bool ok = true;
  EW_PLAIN_FOR (int32_t i = 0; i < p->m && ok; i++) {
    const real *a = f->g->a + (int64_t)i * f->g->a_row;
    real *ready = f->ready + (int64_t)i * f->row;
#define BITS(B)                                                 \
  if (p->bits == B && rounded) {                                \
    if (EW_USES(NBITS, B) && EW_USES(NBITS_ACCURACY, 4))        \
      f->rows = bytes_##B, ok = prepare_##B(f, a, ready, true); \
  } else if (p->bits == B && EW_USES(NBITS, B))                 \
  f->rows = floats_##B, ok = prepare_##B(f, a, ready, false)
    BITS(2);
    BITS(4);
    BITS(8);
#undef BITS
  }
#if VF > 4
  if (ok && p->m > 2) {
    f->abreast = f->ready + (int64_t)p->m * f->row;
    memset(f->abreast, 0, (size_t)(floats_of(f, p->m) - (int64_t)p->m * f->row) * sizeof(float));
    put_abreast(f);
  }
#endif
  return ok;
}

/* Rows [from, from + count) of a. */
static void some_rows(ew_context *ctx, const ew_nbits *all, const ew_gemm_job *of_all,
                      real *scratch, int32_t from, int32_t count) {
  ew_matmul_nbits_params params = *all->p;
  ew_nbits w = *all;
  ew_gemm_job g = *of_all;
  const ew_matmul_nbits_params *p = w.p = &params;
  params.m = g.m = count, g.a += (int64_t)from * g.a_row, g.y += (int64_t)from * g.y_row;
  if (g.finish.residual) g.finish.residual += (int64_t)from * g.y_row;
  nbits_few_rows f = {.w = &w, .g = &g, .ready = scratch};
  bool by_columns = false;
  if (lay_out(&f)) {
    by_columns = prepare(&f);
    if (!by_columns && count > 1) { /* the others are products of digits nonetheless */
      for (int32_t i = 0; i < count; i++) some_rows(ctx, all, of_all, scratch, from + i, 1);
      return;
    }
  }
  if (EW_USES(NBITS_FORMAT, 1) || EW_USES(NBITS_FORMAT, 2)) {
    if (p->format && p->m == 1 && p->n >= COLS && p->block % 16 == 0 && p->k % p->block == 0)
      by_columns = true, f.rows = rows_codes;
  }
  /* A task takes about 5 microseconds. */
  const int64_t work = (int64_t)p->k * p->m * p->n;
  if (by_columns)
    ew_nbits_by_columns(ctx, &g, work >> (p->accuracy == 4 ? 16 : 15), f.rows, &f);
  else {
    f.cols = share(ctx, p->n, work >> 14);
    ew_parallel(ctx, (p->n - 1) / f.cols + 1, dequantize_task, &f);
  }
}

void ew_nbits_few_rows(ew_context *ctx, const ew_nbits *w, const ew_gemm_job *g, real *scratch) {
  nbits_few_rows f = {.w = w, .g = g, .ready = scratch};
  int32_t most = w->p->m;
  if (lay_out(&f))
    while (most > 1 && floats_of(&f, most) > ROOM) most = (most + 1) / 2;
  for (int32_t i = 0; i < w->p->m; i += most)
    some_rows(ctx, w, g, scratch, i, w->p->m - i < most ? w->p->m - i : most);
}
