/* Attention of few queries to rows of 8 and 4 bits (rows.h), in integers.
 *
 * Scores: queries are rounded to integers once. The 16 bytes that hold codes of VF keys are
 * transposed, so that each 32-bit lane has codes of one key, and multiplied with the integers of
 * the query for the same columns: sums of a block are exact, and no sum over lanes is needed.
 *
 * Sums of values: the weights of some keys, times the scales of a block of their rows, are rounded
 * to integers with one scale for all. The bytes of two keys are interleaved, so that each pair of
 * codes of a column is multiplied with the same pair of weights. Rounded weights multiply the
 * codes' distance from the middle of their range, and exact ones the rest: what a rounded weight
 * lacks has no value in common with others.
 *
 * Codes of 4 bits are multiplied as bytes where there are products of pairs of bytes: eight sums of
 * two products, at most 8 * 2 * 15 * 127, fit 16 bits. Otherwise they are multiplied as 16-bit
 * integers, as are those of 8 bits: the sum of a block is at most 32 * 255 * 32767, and that of
 * ROW_KEYS keys half as much as 2^31. */
#include "kernels/attention/rows.h"

#define TINY 1e-30f /* of less, the inverse might not be finite: it counts as 0 */

enum {
  LANES = VF / 4,  /* of 16 bytes in a vector */
  STEP = 2 * LANES /* keys whose values are multiplied at once */
};

/* Whether codes are multiplied as bytes. */
EW_INLINE bool in_bytes(bool eight) { return EW_PAIR_DOTS && !eight; }
/* Parts of a 32-bit word of codes that are multiplied alone, and the bits that each has. */
EW_INLINE int planes_of(bool eight) { return eight || in_bytes(eight) ? 2 : 4; }
EW_INLINE vi plane_of(vi word, int plane, bool eight) {
  if (eight) return word >> 8 * plane & 0x00ff00ff;
  return word >> 4 * plane & (in_bytes(eight) ? 0x0f0f0f0f : 0x000f000f);
}
EW_INLINE int64_t bytes_of(bool eight) { return eight ? ROW8 : ROW4; }

/* Rounds to an integer of at most 22 bits; any bits for other numbers. */
EW_INLINE vi rounded(vf x) { return (vi)((vu)(x + 0x1.8p23f) - 0x4b400000u); }

/* The column of a block that part `i` of a plane of a word has. */
EW_INLINE int column_of(int word, int plane, int i, bool eight) {
  if (eight) return 4 * word + plane + 2 * i;
  if (in_bytes(eight)) return 4 * word + 16 * plane + i;
  return 4 * word + 16 * (plane % 2) + plane / 2 + 2 * i;
}

void ew_row_queries(const real *const *q, int32_t n, int32_t dim, bool eight, ew_row_query *to) {
  const bool bytes = in_bytes(eight);
  const int32_t blocks = (dim + GROUP - 1) / GROUP;
  const int planes = planes_of(eight), parts = bytes ? 4 : 2;
  for (; n > 0; n--, q++, to++) {
    real x[MAX_ROW];
    float most = 0, nothing = 0;
    EW_PLAIN_FOR (int32_t c = 0; c < blocks * GROUP; c++) {
      const float y = c < dim ? (*q)[c] : 0, size = y < 0 ? -y : y;
      most = size > most ? size : most, nothing += 0 * y; /* NaN if one is not finite */
      x[c] = y;
    }
    const float largest = bytes ? 127 : 32767, inverse = most < TINY ? 0 : largest / most;
    to->scale = (most < TINY ? 0 : most / largest) + nothing;
    int32_t *digits = to->digits;
    for (int32_t b = 0; b < blocks; b++) {
      int32_t whole[GROUP];
      uint32_t sum = 0;
      for (int c = 0; c < GROUP; c += VF) {
        const vi t = rounded(vf_load(x + b * GROUP + c) * inverse);
        *(vi_m *)(whole + c) = t;
      }
      EW_PLAIN_FOR (int c = 0; c < GROUP; c++) sum += (uint32_t)whole[c];
      to->sums[b] = (float)(int32_t)sum;
      EW_PLAIN_FOR (int word = 0; word < (eight ? 8 : 4); word++)
        EW_PLAIN_FOR (int plane = 0; plane < planes; plane++) {
          uint32_t all = 0;
          EW_PLAIN_FOR (int i = parts; i-- > 0;) {
            const uint32_t one = (uint32_t)whole[column_of(word, plane, i, eight)];
            all = bytes ? all << 8 | (one & 0xff) : all << 16 | (one & 0xffff);
          }
          *digits++ = (int32_t)all;
        }
    }
  }
}

/* Heads of the same block of some rows, and 0 for a vector more. */
typedef struct {
  uint16_t of[ROW_KEYS + VF];
} row_heads;

static void load_heads(const uint8_t *block, int64_t stride, int32_t keys, row_heads *to) {
  EW_PLAIN_FOR (int32_t j = 0; j < keys; j++, block += stride) to->of[j] = *(const m_u16 *)block;
  EW_PLAIN_FOR (int32_t j = keys; j < keys + VF; j++) to->of[j] = 0;
}
EW_INLINE void heads_at(const row_heads *h, int32_t j, vf *scale, vf *zero, bool eight) {
  typedef uint16_t shorts_m __attribute__((vector_size(2 * VF), aligned(1), may_alias));
  ew_row_head(__builtin_convertvector(*(const shorts_m *)(h->of + j), vi), scale, zero, eight);
}

/* Scores of VF keys from j on. */
EW_INLINE void score_keys(int n, const ew_row_query *q, int32_t blocks, const uint8_t *k,
                          int64_t stride, const row_heads *heads, int32_t j, vf sum[ABREAST],
                          bool eight) {
  const int words = eight ? 8 : 4, planes = planes_of(eight);
  for (int r = 0; r < n; r++) sum[r] = vf_splat(0);
  for (int32_t b = 0; b < blocks; b++, k += bytes_of(eight)) {
    vi word[8], x[ABREAST];
    for (int w = 0; w < words; w += 4) {
      for (int i = 0; i < 4; i++)
        word[w + i] = vi_load_lanes(k + 2 + 4 * w + i * stride, 4 * stride);
      vi_transpose_lanes(&word[w], &word[w + 1], &word[w + 2], &word[w + 3]);
    }
    for (int r = 0; r < n; r++) x[r] = vi_splat(0);
    for (int w = 0; w < words; w++)
      for (int p = 0; p < planes; p++) {
        const vi code = plane_of(word[w], p, eight);
        for (int r = 0; r < n; r++) {
          const vi y = vi_load_splat(q[r].digits + (b * words + w) * planes + p);
#if EW_PAIR_DOTS
          if (in_bytes(eight)) {
            x[r] = vi_add_shorts(x[r], vi_dot_pairs(y, code));
            continue;
          }
#endif
          x[r] = vi_dot_shorts(code, y, x[r]);
        }
      }
    vf scale, zero;
    heads_at(heads + b, j, &scale, &zero, eight);
    for (int r = 0; r < n; r++) {
      const vi all = in_bytes(eight) ? vi_sum_shorts(x[r]) : x[r];
      const vf dot = __builtin_convertvector(all, vf) - zero * q[r].sums[b];
      sum[r] = vf_fma(dot, scale, sum[r]);
    }
  }
  for (int r = 0; r < n; r++) sum[r] *= q[r].scale;
}

/* The last keys are computed along with some of those before; of fewer than a vector, each fills
 * one. */
EW_INLINE void scores(int n, const ew_row_query *q, int32_t blocks, const uint8_t *k,
                      int64_t stride, const row_heads *heads, int32_t keys, float (*s)[ROW_KEYS],
                      bool eight) {
  const bool few = keys < VF;
  for (int32_t j = 0; j < keys; j += few ? 1 : VF) {
    vf sum[ABREAST];
    if (!few && j > keys - VF) j = keys - VF;
    score_keys(n, q, blocks, k + j * stride, few ? 0 : stride, heads, j, sum, eight);
    for (int r = 0; r < n; r++) vf_store(s[r] + j, sum[r]);
  }
}

/* Calls f(n, ...) for the next queries, and returns their number; two of rows of 8 bits one by one,
 * since the engine for pages has to be small. */
#define EW_NEXT(f, left, eight, ...)                      \
  (left) >= 3             ? (f(3, __VA_ARGS__, eight), 3) \
  : (left) == 2 && !eight ? (f(2, __VA_ARGS__, eight), 2) \
                          : (f(1, __VA_ARGS__, eight), 1)

void ew_row_scores(const ew_row_query *q, int32_t n, int32_t blocks, const uint8_t *k,
                   int64_t stride, int32_t keys, float (*s)[ROW_KEYS], bool eight) {
  row_heads heads[MAX_BLOCKS];
  for (int32_t b = 0; b < blocks; b++) load_heads(k + b * bytes_of(eight), stride, keys, heads + b);
  for (int32_t r = 0; r < n;)
    r += eight ? EW_NEXT(scores, n - r, true, q + r, blocks, k, stride, heads, keys, s + r)
               : EW_NEXT(scores, n - r, false, q + r, blocks, k, stride, heads, keys, s + r);
}

/* The weights of a query for the values of a block of columns. */
typedef struct {
  uint8_t whole[2 * ROW_KEYS];  /* rounded, as 16-bit integers, or bytes if codes are */
  float scale[ROW_KEYS / STEP]; /* of each group of them */
  float rest;                   /* what is added to every column */
} row_weights;

/* Keys whose weights have one scale. */
EW_INLINE int group_of(bool eight) { return in_bytes(eight) ? 8 * STEP : ROW_KEYS; }

EW_INLINE void weights_of(const real *s, const row_heads *heads, int32_t keys, row_weights *to,
                          bool eight) {
  const float largest = in_bytes(eight) ? 127 : 32767, middle = eight ? 127.5f : 7.5f;
  vf rest = vf_splat(0);
  for (int32_t j0 = 0, group = 0; j0 < keys; j0 += group_of(eight), group++) {
    const int32_t end = keys - j0 < group_of(eight) ? keys : j0 + group_of(eight);
    vf x[ROW_KEYS / VF], high = vf_splat(0);
    for (int32_t j = j0; j < end; j += VF) {
      vf scale, zero;
      heads_at(heads, j, &scale, &zero, eight);
      scale *= vf_load(s + j), high = vf_max(high, scale);
      rest = vf_fma(scale, middle - zero, rest), x[(j - j0) / VF] = scale;
    }
    const float most = vf_highest(high), inverse = most < TINY ? 0 : largest / most,
                less = most < TINY ? 0 : most / largest;
    to->scale[group] = less;
    for (int32_t j = j0; j < end; j += 2 * VF) {
      const vi a = rounded(x[(j - j0) / VF] * inverse),
               b = j + VF < end ? rounded(x[(j - j0) / VF + 1] * inverse) : vi_splat(0);
      rest -= __builtin_convertvector((vi)((vu)a + (vu)b), vf) * (middle * less);
      if (in_bytes(eight))
        vi_store_bytes(to->whole + j, a, b);
      else {
        typedef int16_t shorts __attribute__((vector_size(2 * VF)));
        typedef int16_t shorts_m __attribute__((vector_size(2 * VF), aligned(1), may_alias));
        *(shorts_m *)(to->whole + 2 * j) = (shorts_m) __builtin_convertvector(a, shorts);
        *(shorts_m *)(to->whole + 2 * (j + VF)) = (shorts_m) __builtin_convertvector(b, shorts);
      }
    }
  }
  to->rest = vf_sum(rest);
}

static __attribute__((noinline)) void round_weights(int n, float (*s)[ROW_KEYS],
                                                    const row_heads *heads, int32_t keys,
                                                    row_weights *to, bool eight) {
  for (; n > 0; n--, s++, to++)
    if (eight)
      weights_of(*s, heads, keys, to, true);
    else
      weights_of(*s, heads, keys, to, false);
}

/* The weights of STEP keys from j on, a pair in each lane of 16 bytes; or that of a single one. */
EW_INLINE vi pairs_at(const row_weights *w, int32_t j, bool single, bool eight) {
  const uint8_t *at = w->whole + (in_bytes(eight) ? j : 2 * j);
  if (single) {
    vi y = vi_splat(0);
    const int32_t one = in_bytes(eight) ? at[0] * 0x10001 : *(const m_u16 *)at;
    y[0] = y[1] = y[2] = y[3] = one;
    return y;
  }
  return in_bytes(eight) ? vi_spread_shorts(at) : vi_spread_words(at);
}

/* out[c] += scale * the sum over lanes, of four numbers of 32 bits or eight of 16. */
EW_INLINE void add_words(vi x, float scale, real *out) {
  i32x4 sum = {0};
  for (int l = 0; l < LANES; l++) sum += ((const i32x4_m *)&x)[l];
  *(f32x4_m *)out += scale * __builtin_convertvector(sum, f32x4);
}
EW_INLINE void add_shorts(vi x, float scale, real *out) {
  typedef int16_t four_m __attribute__((vector_size(8), aligned(1), may_alias));
  i32x4 low = {0}, high = {0};
  for (int l = 0; l < LANES; l++) {
    low += __builtin_convertvector(((const four_m *)&x)[2 * l], i32x4);
    high += __builtin_convertvector(((const four_m *)&x)[2 * l + 1], i32x4);
  }
  *(f32x4_m *)out += scale * __builtin_convertvector(low, f32x4);
  *(f32x4_m *)(out + 4) += scale * __builtin_convertvector(high, f32x4);
}

#if EW_PAIR_DOTS
/* out += weights times codes, as bytes. */
EW_INLINE void sum_bytes(int n, const row_weights *w, const uint8_t *code, int64_t stride,
                         int32_t keys, real (*out)[GROUP]) {
  for (int32_t j = 0, group = 0; j < keys; group++) {
    const int32_t end = keys - j < 8 * STEP ? keys : j + 8 * STEP;
    vi sum[ABREAST][4];
    for (int r = 0; r < n; r++)
      for (int i = 0; i < 4; i++) sum[r][i] = vi_splat(0);
    while (j < end) {
      const bool single = end - j < STEP;
      const int64_t step = single ? 0 : stride;
      const uint8_t *at = code + j * stride;
      const vi even = vi_load_lanes(at, 2 * step), odd = vi_load_lanes(at + step, 2 * step),
               low = vi_zip_low(even, odd), high = vi_zip_high(even, odd),
               part[4] = {low & 0x0f0f0f0f, high & 0x0f0f0f0f, low >> 4 & 0x0f0f0f0f,
                          high >> 4 & 0x0f0f0f0f};
      for (int r = 0; r < n; r++) {
        const vi weights = pairs_at(w + r, j, single, false);
        for (int i = 0; i < 4; i++)
          sum[r][i] = vi_add_shorts(sum[r][i], vi_dot_pairs(part[i], weights));
      }
      j += single ? 1 : STEP;
    }
    for (int r = 0; r < n; r++)
      for (int i = 0; i < 4; i++) add_shorts(sum[r][i], w[r].scale[group], out[r] + 8 * i);
  }
}
#endif

/* The same in 16 bits, for columns 16 * part and after. */
EW_INLINE void sum_shorts(int n, const row_weights *w, const uint8_t *code, int64_t stride,
                          int32_t keys, int part, real (*out)[GROUP], bool eight) {
  vi sum[ABREAST][4];
  for (int r = 0; r < n; r++)
    for (int i = 0; i < 4; i++) sum[r][i] = vi_splat(0);
  code += eight ? 16 * part : 0;
  for (int32_t j = 0; j < keys;) {
    const bool single = keys - j < STEP;
    const int64_t step = single ? 0 : stride;
    const uint8_t *at = code + j * stride;
    vi even = vi_load_lanes(at, 2 * step), odd = vi_load_lanes(at + step, 2 * step);
    if (!eight) even = even >> 4 * part & 0x0f0f0f0f, odd = odd >> 4 * part & 0x0f0f0f0f;
    const vi low = vi_zip_low(even, odd), high = vi_zip_high(even, odd), none = vi_splat(0),
             wide[4] = {vi_zip_low(low, none), vi_zip_high(low, none), vi_zip_low(high, none),
                        vi_zip_high(high, none)};
    for (int r = 0; r < n; r++) {
      const vi weights = pairs_at(w + r, j, single, eight);
      for (int i = 0; i < 4; i++) sum[r][i] = vi_dot_shorts(wide[i], weights, sum[r][i]);
    }
    j += single ? 1 : STEP;
  }
  for (int r = 0; r < n; r++)
    for (int i = 0; i < 4; i++) add_words(sum[r][i], w[r].scale[0], out[r] + 16 * part + 4 * i);
}

/* out = the same for a block of columns, whose codes are given. */
EW_INLINE void sums(int n, const row_weights *w, const uint8_t *code, int64_t stride, int32_t keys,
                    real (*out)[GROUP], bool eight) {
#if EW_PAIR_DOTS
  if (!eight) {
    sum_bytes(n, w, code, stride, keys, out);
    return;
  }
#endif
  EW_PLAIN_FOR (int part = 0; part < 2; part++)
    sum_shorts(n, w, code, stride, keys, part, out, eight);
}

void ew_row_sums(float (*s)[ROW_KEYS], int32_t n, const uint8_t *v, int64_t stride, int32_t keys,
                 int32_t cols, real *const *y, bool eight) {
  for (int32_t c0 = 0; c0 < cols; c0 += GROUP, v += bytes_of(eight)) {
    const int32_t end = cols - c0 < GROUP ? cols : c0 + GROUP;
    row_heads heads;
    load_heads(v, stride, keys, &heads);
    for (int32_t r = 0, next; r < n; r = next) {
      row_weights w[ABREAST];
      real out[ABREAST][GROUP] = {{0}};
      round_weights(n - r < ABREAST ? n - r : ABREAST, s + r, &heads, keys, w, eight);
      next = r + (eight ? EW_NEXT(sums, n - r, true, w, v + 2, stride, keys, out)
                        : EW_NEXT(sums, n - r, false, w, v + 2, stride, keys, out));
      for (int i = 0; r + i < next; i++)
        EW_PLAIN_FOR (int32_t c = c0; c < end; c++) y[r + i][c] += out[i][c - c0] + w[i].rest;
    }
  }
}
