/* Scaled dot-product attention in one pass over k and v (FlashAttention):
 *
 *     y = softmax(softcap(scale q k^T) + mask) v
 *
 * The softmax is online (Milakov, Gimelshein 2018): each block of keys produces scores, updates the
 * running maximum and sum of each row, and rescales the partial y by the change of the maximum. The
 * rows of a block are queries of all heads that share a kv head, so that each block of k and v is
 * read once for all of them.
 *
 * A task is a block of rows of one kv head; with too few of them, the keys are divided among tasks
 * as well and the partial results combined. Products of many rows use packed panels (gemm.h), those
 * of few rows read k and v directly; both are vectorized. */
#include "kernels/attention/rows.h"
#include "kernels/product/gemm.h"
#include <math.h>

enum {
  ROWS = 96,       /* rows (queries of the heads that share a kv head) per block, at most */
  MIN_ROWS = 48,   /* as many with few rows, so that each thread has several blocks */
  KEYS = ROW_KEYS, /* keys per block */
  PARTIAL = 4096,  /* floats of scratch for the partial results of divided keys */
  MIN_PART = 64,   /* keys per part, at least, when keys are divided among threads */
  DIM = 256,       /* elements of the head dimension that fit one packed panel */
  FEW = 6,         /* up to this many rows, k and v are read without packing */
  SHARE = 3,       /* of these, rows that share what is loaded of k and v */
  TURN = 32,       /* keys or values that they read at a time */
  PART = 128       /* columns of these, where they are float16 */
};

typedef struct {
  const ew_attention_params *p;
  const real *q;
  const char *k, *v;
  const void *mask;
  const int_m *lengths;
  const real *sink;
  real *y;
  /* query heads per kv head; rows per kv head, per block of them, and number of these blocks */
  int32_t group, rows, block, row_blocks;
  /* number of parts of the keys, computed by different threads; 1 if there are several blocks of
   * rows */
  int32_t parts;
  /* if parts > 1, for each task and row: maximum score, sum of weights, partial y */
  real *partial;
} attention_work;

typedef struct {
  const real *q;
  const void *mask;
  real *y;
  int32_t from, to; /* range of keys that may be attended to */
  float max, sum;
} attention_row;

/* How k and v are stored: float16, or rows of 8 or 4 bits, else float32. */
EW_INLINE bool in_halves(const ew_attention_params *p) {
  return EW_USES(B_TYPE, EW_F16) && p->kv_type == EW_F16;
}
EW_INLINE bool in_rows(const ew_attention_params *p) {
  return (EW_USES(B_TYPE, EW_I8) && p->kv_type == EW_I8) ||
         (EW_USES(B_TYPE, EW_U8) && p->kv_type == EW_U8);
}

/* Number of keys of [0, n) that the mask excludes at the end (step -1) or the beginning (step 1),
 * in whole vectors: -infinity, or so low that no score makes up for it. */
static int32_t ruled_out(const real *mask, int32_t n, int32_t step) {
  int32_t out = 0;
  for (const real *at = step > 0 ? mask : mask + n - VF;
       out + VF <= n && vf_highest(vf_load(at)) < -1e30f; at += step * VF)
    out += VF;
  return out;
}

static real *y_of(const attention_work *w, int32_t b, int32_t kv_head, int32_t r) {
  const ew_attention_params *p = w->p;
  return w->y + (int64_t)b * p->y_b + (int64_t)(kv_head * w->group + r / p->q_len) * p->y_h +
         (int64_t)(r % p->q_len) * p->y_s;
}

static attention_row make_row(const attention_work *w, int32_t b, int32_t kv_head, int32_t r) {
  const ew_attention_params *p = w->p;
  int32_t h = kv_head * w->group + r / p->q_len, i = r % p->q_len;
  int64_t past = p->past, end = p->kv_len;
  if (w->lengths) {
    if (w->lengths[b] < end) end = w->lengths[b];
    past = (int64_t)w->lengths[b] - p->q_len;
  }
  int64_t position = past + i, from = p->window > 0 ? position - p->window + 1 : 0;
  if (p->causal && position + p->causal < end) end = position + p->causal;
  if (from < 0) from = 0;
  if (end < from) end = from; /* empty */
  attention_row row = {.q = w->q + (int64_t)b * p->q_b + (int64_t)h * p->q_h + (int64_t)i * p->q_s,
                       .y = y_of(w, b, kv_head, r),
                       .from = (int32_t)(end > from ? from : 0),
                       .to = (int32_t)(end > from ? end : 0),
                       .max = -INFINITY,
                       .sum = 0};
  /* an attention sink acts like a key already seen, with a value of zeros */
  if (w->sink) row.max = w->sink[h], row.sum = 1;
  if (w->mask)
    row.mask =
        (const char *)w->mask + ((int64_t)b * p->m_b + (int64_t)h * p->m_h + (int64_t)i * p->m_q) *
                                    (p->mask_type == EW_F32 ? 4 : 1);
  /* Keys that the mask excludes at either end are skipped, unless none would be left. */
  if (w->mask && p->mask_type == EW_F32 && p->m_k == 1) {
    const real *mask = (const real *)row.mask + row.from;
    const int32_t n = row.to - row.from, after = ruled_out(mask, n, -1),
                  before = ruled_out(mask, n - after, 1);
    bool left = before + after <= n - VF;
    for (int32_t j = before; !left && j < n - after; j++) left = mask[j] >= -1e30f;
    if (left) row.from += before, row.to -= after;
  }
  return row;
}

/* Turns the scores of keys j0 + lo to j0 + hi into weights, those of keys out of the row's range
 * into 0; returns the factor by which the partial y must be multiplied. */
static float weigh_row(const ew_attention_params *p, attention_row *row, real *s, int32_t j0,
                       int32_t lo, int32_t hi) {
  const int32_t first = lo / VF * VF, count = (hi + VF - 1) / VF * VF, from = row->from - j0,
                to = row->to - j0, n = to < hi ? to : hi;
  const real *mask =
      p->mask_type == EW_F32 && p->m_k == 1 && row->mask ? (const real *)row->mask + j0 : NULL;
  if (to <= lo || from >= hi) {
    for (int32_t j = first; j < count; j += VF) vf_store(s + j, vf_splat(0));
    return 1;
  }
  vf high = vf_splat(row->max), sum = vf_splat(0);
  for (int32_t j = first; j < count; j += VF) {
    vf x = vf_load(s + j) * p->scale;
    if (p->softcap > 0) x = p->softcap * vf_tanh(x / p->softcap);
    if (mask && j + VF <= n) x += vf_load(mask + j);
    vf_store(s + j, x), high = vf_max(high, x);
  }
  if (from > first || n < count || (row->mask && !mask)) { /* clear keys outside the range */
    int32_t j = mask && n / VF * VF > first ? n / VF * VF : first;
    for (; row->mask && j < n; j++) {
      int64_t at = (int64_t)(j0 + j) * p->m_k;
      if (p->mask_type == EW_F32)
        s[j] += ((const real *)row->mask)[at];
      else if (!((const uint8_t *)row->mask)[at])
        s[j] = -INFINITY;
    }
    EW_PLAIN_FOR (j = first; j < from && j < count; j++) s[j] = -INFINITY;
    EW_PLAIN_FOR (j = to > first ? to : first; j < count; j++) s[j] = -INFINITY;
    high = vf_splat(row->max);
    for (j = first; j < count; j += VF) high = vf_max(high, vf_load(s + j));
  }
  const float max = vf_highest(high);
  if (max == -INFINITY) { /* no key so far */
    for (int32_t j = first; j < count; j++) s[j] = 0;
    return 0;
  }
  for (int32_t j = first; j < count; j += VF) {
    vf e = vf_exp_low(vf_load(s + j) - max);
    vf_store(s + j, e), sum += e;
  }
  const bool same = row->max == max || row->max == -INFINITY; /* then y and sum are 0 */
  const float keep = same ? 1 : vf_exp_low(vf_splat(row->max - max))[0];
  row->sum = row->sum * keep + vf_sum(sum), row->max = max;
  return keep;
}

/* The same for `rows` rows, each of which multiplies its partial y. */
static void weigh(const ew_attention_params *p, attention_row *row, int32_t rows, float (*s)[KEYS],
                  int32_t j0, int32_t lo, int32_t hi) {
  for (; rows > 0; rows--, row++, s++) {
    const float keep = weigh_row(p, row, *s, j0, lo, hi);
    int32_t c = keep == 1 ? p->v_dim : 0;
    for (; c + VF <= p->v_dim; c += VF) vf_store(row->y + c, vf_load(row->y + c) * keep);
    EW_PLAIN_FOR (; c < p->v_dim; c++) row->y[c] *= keep;
  }
}

/* Rows whose products are computed together: `tiles` times MR of them whose queries are evenly
 * spaced, and so are their y, or one tile of other rows, perhaps of fewer. */
typedef struct {
  int32_t first, tiles;
  int32_t from, to; /* range of the keys that any of the rows attends to */
  bool even;
} attention_strip;

/* Divides rows into strips, once for all blocks of keys; returns their number. */
static int32_t divide_rows(const attention_row *row, int32_t rows, attention_strip *strip) {
  int32_t strips = 0;
  for (int32_t r = 0, count; r < rows; r += count, strip++, strips++) {
    const intptr_t step = r + 1 < rows ? (intptr_t)row[r + 1].q - (intptr_t)row[r].q : 0,
                   out = r + 1 < rows ? (intptr_t)row[r + 1].y - (intptr_t)row[r].y : 0;
    int32_t even = 1;
    while (even < MAX_TILES * MR && r + even < rows &&
           (intptr_t)row[r + even].q - (intptr_t)row[r + even - 1].q == step &&
           (intptr_t)row[r + even].y - (intptr_t)row[r + even - 1].y == out)
      even++;
    strip->first = r, strip->even = even >= MR && (step | out) % (intptr_t)sizeof(real) == 0;
    strip->tiles = strip->even ? even / MR : 1;
    count = strip->tiles * MR, strip->from = INT32_MAX, strip->to = 0;
    for (int32_t i = r; i < r + count && i < rows; i++) {
      if (row[i].from < strip->from) strip->from = row[i].from;
      if (row[i].to > strip->to) strip->to = row[i].to;
    }
  }
  return strips;
}

/* Columns of float16 rows as float32 rows, `row` apart. */
static __attribute__((noinline)) void widen(const half *from, int64_t stride, int32_t rows,
                                            int32_t cols, real *to, int32_t row) {
  for (; rows > 0; rows--, from += stride, to += row) {
    int32_t c = 0;
    for (; c + 2 * VF <= cols; c += 2 * VF) vf_copy_at(to + c, from, c, true);
    for (; c + VF <= cols; c += VF) vf_store(to + c, vf_load_half(from + c));
    EW_PLAIN_FOR (; c < cols; c++) to[c] = half_to_float(from[c]);
  }
}

/* Columns d0 to d0 + n of keys as a panel. */
static __attribute__((noinline)) void pack_keys(const ew_attention_params *p, const char *k,
                                                int32_t j, int32_t keys, int32_t d0, int32_t n,
                                                real *panel) {
  const bool rows = in_rows(p), is_half = in_halves(p), loads = rows || is_half;
  const int64_t at = (int64_t)j * p->k_s;
  float loaded[NR * DIM];
  for (int32_t i = 0; rows && i < keys; i++)
    ew_row_load((const uint8_t *)k + at + i * (int64_t)p->k_s, d0, n, loaded + i * DIM,
                p->kv_type == EW_I8);
  if (is_half) widen((const half *)k + at + d0, p->k_s, keys, n, loaded, DIM);
  ew_pack_columns(loads ? loaded : (const real *)k, loads ? 0 : at + d0, loads ? DIM : p->k_s, n,
                  keys, panel, false);
}

/* Columns c0 to c0 + cols <= NR of values as a panel. */
static __attribute__((noinline)) void pack_values(const ew_attention_params *p, const char *v,
                                                  int32_t j, int32_t keys, int32_t c0, int32_t cols,
                                                  real *panel) {
  const bool rows = in_rows(p), is_half = in_halves(p);
  int64_t at = (int64_t)j * p->v_s + c0;
  for (; keys > 0; keys--, at += p->v_s, panel += NR)
    if (rows)
      ew_row_load((const uint8_t *)v + at - c0, c0, NR, panel, p->kv_type == EW_I8);
    else if (cols < NR)
      EW_PLAIN_FOR (int32_t c = 0; c < NR; c++)
        panel[c] = c < cols ? real_at(v, at + c, is_half) : 0;
    else if (is_half)
      vf_copy_at(panel, v, at, true);
    else
      vf_copy_at(panel, v, at, false);
}

/* Scores of all rows for keys [j0, j0 + keys), one panel of NR keys at a time. */
static void score(const ew_attention_params *p, const attention_row *row,
                  const attention_strip *strip, int32_t strips, int32_t rows, const char *k,
                  int32_t j0, int32_t keys, float s[ROWS][KEYS]) {
  float panel[DIM * NR];
  for (int32_t j = 0; j < keys; j += NR)
    for (int32_t d0 = 0; d0 < p->head_dim; d0 += DIM) {
      const int32_t n = p->head_dim - d0 < DIM ? p->head_dim - d0 : DIM;
      pack_keys(p, k, j0 + j, keys - j < NR ? keys - j : NR, d0, n, panel);
      for (const attention_strip *at = strip; at < strip + strips; at++) {
        const attention_row *of = row + at->first;
        float *out = s[at->first] + j, *start = d0 ? out : NULL;
        if (j0 + j >= at->to || j0 + j + NR <= at->from) continue;
        if (at->even) {
          ew_tiles(at->tiles, n, of->q + d0, of[1].q - of->q, panel, out, KEYS, start);
          continue;
        }
        const real *q[MR];
        for (int32_t i = 0; i < MR; i++)
          q[i] = row[at->first + i < rows ? at->first + i : rows - 1].q + d0;
        ew_tile_of(n, q, panel, out, KEYS, start);
      }
    }
}

/* y += weights times v for all rows, one panel of NR columns of v at a time. */
static void gather(const ew_attention_params *p, const attention_row *row,
                   const attention_strip *strip, int32_t strips, int32_t rows, const char *v,
                   int32_t j0, int32_t keys, float s[ROWS][KEYS]) {
  float panel[KEYS * NR], t[MAX_TILES * MR * NR];
  for (int32_t c0 = 0; c0 < p->v_dim; c0 += NR) {
    const int32_t cols = p->v_dim - c0 < NR ? p->v_dim - c0 : NR;
    pack_values(p, v, j0, keys, c0, cols, panel);
    for (const attention_strip *at = strip; at < strip + strips; at++) {
      const int32_t from = at->from > j0 ? at->from - j0 : 0,
                    to = at->to - j0 < keys ? at->to - j0 : keys;
      const bool direct = at->even && cols == NR;
      const attention_row *of = row + at->first;
      if (from >= to) continue;
      ew_tiles(at->tiles, to - from, s[at->first] + from, KEYS, panel + from * NR,
               direct ? of->y + c0 : t, direct ? of[1].y - of->y : NR, direct ? of->y + c0 : NULL);
      for (int32_t i = 0; !direct && i < at->tiles * MR && at->first + i < rows; i++)
        EW_PLAIN_FOR (int32_t c = 0; c < cols; c++) of[i].y[c0 + c] += t[i * NR + c];
    }
  }
}

/* s[r][j] = query r times key j, or their sum with `add`. A group of keys is as large as its sums
 * fit the registers. */
EW_INLINE void score_rows(int rows, int32_t keys, int32_t dim, const real *q, const real *k,
                          int64_t stride, real *s, bool add) {
  /* V8 has 15 vector registers on x86; with 512-bit vectors a single query is as fast as memory,
   * which is read faster as a single stream */
  const int once = rows == 1 && VF == 16 ? 1 : rows == 3 && VF < 16 ? 2 : 4;
  for (int32_t j = 0; j < keys; k += stride * (keys - j < 4 ? 1 : 4), j += keys - j < 4 ? 1 : 4) {
    const int64_t next = keys - j < 4 ? 0 : stride; /* at the end a single key, used four times */
    f32x4 sum[SHARE][4];
    for (int c0 = 0; c0 < 4; c0 += once) {
      const real *key = k + c0 * next, *x = q;
      vf t[SHARE][4], y[4];
      for (int r = 0; r < rows; r++)
        for (int c = 0; c < once; c++) t[r][c] = vf_splat(0);
      for (const real *end = key + dim; key < end; key += VF) {
        for (int c = 0; c < once; c++) y[c] = vf_load(key + c * next);
        for (int r = 0; r < rows; r++, x += VF)
          for (int c = 0; c < once; c++) t[r][c] = vf_fma(vf_load(x), y[c], t[r][c]);
      }
      for (int r = 0; r < rows; r++)
        for (int c = 0; c < once; c++) sum[r][c0 + c] = vf_fold(t[r][c]);
    }
    for (int r = 0; r < rows; r++) {
      f32x4 *x = sum[r];
      f32x4_transpose(&x[0], &x[1], &x[2], &x[3]);
      x[0] = (x[0] + x[2]) + (x[1] + x[3]);
      real *out = s + r * KEYS + j;
      if (!next)
        *out = x[0][0] + (add ? *out : 0);
      else
        *(f32x4_m *)out = add ? x[0] + *(f32x4_m *)out : x[0];
    }
  }
}

/* y[r] += the sum of weights s[r][j] times values j, for `vectors` of columns of `turns` sums. */
EW_INLINE void add_columns(int rows, int vectors, int turns, int32_t keys, const real *s,
                           const real *v, int64_t stride, real *const *y, int32_t c0) {
  vf t[SHARE][8][2];
  for (int r = 0; r < rows; r++)
    for (int c = 0; c < vectors; c++)
      t[r][c][0] = vf_load(y[r] + c0 + c * VF), t[r][c][1] = vf_splat(0);
  for (; keys > 0; keys -= turns)
    for (int u = 0; u < turns && (u == 0 || keys > u); u++, s++, v += stride) {
      vf x[8];
      for (int c = 0; c < vectors; c++) x[c] = vf_load(v + c * VF);
      for (int r = 0; r < rows; r++) {
        const vf weight = vf_load_splat(s + r * KEYS);
        for (int c = 0; c < vectors; c++) t[r][c][u] = vf_fma(weight, x[c], t[r][c][u]);
      }
    }
  for (int r = 0; r < rows; r++)
    for (int c = 0; c < vectors; c++)
      vf_store(y[r] + c0 + c * VF, turns == 2 ? t[r][c][0] + t[r][c][1] : t[r][c][0]);
}
/* The same for all columns. */
EW_INLINE void add_rows(int rows, int32_t keys, int32_t cols, const real *s, const real *v,
                        int64_t stride, real *const *y, int32_t c0) {
  const int vectors = VF == 16 || rows == 2 ? 4 : rows == 1 ? 8 : 3;
  int32_t c = 0;
  for (; c + vectors * VF <= cols; c += vectors * VF)
    add_columns(rows, vectors, 1, keys, s, v + c, stride, y, c0 + c);
  for (; c + VF <= cols; c += VF) add_columns(rows, 1, 2, keys, s, v + c, stride, y, c0 + c);
}

/* One function for each number of rows, which compilers give its own registers. */
#define FEW_ROWS(n)                                                                            \
  static __attribute__((noinline)) void score_##n(int32_t keys, int32_t dim, const real *q,    \
                                                  const real *k, int64_t stride, real *s,      \
                                                  bool add) {                                  \
    score_rows(n, keys, dim, q, k, stride, s, add);                                            \
  }                                                                                            \
  static __attribute__((noinline)) void add_##n(int32_t keys, int32_t cols, const real *s,     \
                                                const real *v, int64_t stride, real *const *y, \
                                                int32_t c0) {                                  \
    add_rows(n, keys, cols, s, v, stride, y, c0);                                              \
  }
FEW_ROWS(1)
FEW_ROWS(2)
FEW_ROWS(3)
#undef FEW_ROWS
EW_INLINE int32_t share_of(int32_t left) { return left == 4 ? 2 : left < SHARE ? left : SHARE; }

/* The queries of few rows, as integers for keys in rows of fewer bits. Of those that share what is
 * loaded of k, a vector of each, then the next ones. */
static void pack_queries(const ew_attention_params *p, const attention_row *row, int32_t rows,
                         real *to, ew_row_query *whole) {
  const real *q[FEW];
  for (int32_t r = 0; r < rows; r++) q[r] = row[r].q;
  if (in_rows(p)) {
    ew_row_queries(q, rows, p->head_dim, p->kv_type == EW_I8, whole);
    return;
  }
  for (int32_t r = 0, count; r < rows; r += count) {
    count = share_of(rows - r);
    for (int32_t d = 0; d + VF <= p->head_dim; d += VF)
      for (int32_t i = r; i < r + count; i++, to += VF) vf_store(to, vf_load(q[i] + d));
  }
}

/* As score and gather, for few rows: k and v are read without packing. */
static __attribute__((noinline)) void score_few(const ew_attention_params *p,
                                                const attention_row *row, const real *q,
                                                int32_t rows, const char *k, int32_t j0,
                                                int32_t keys, float (*s)[KEYS], bool is_half) {
  const int32_t whole = p->head_dim / VF * VF, most = is_half ? PART : whole;
  real wide[TURN * PART];
  for (int32_t j = 0; j < keys; j += TURN)
    for (int32_t d = 0; d < whole; d += most) {
      const int64_t at = (int64_t)(j0 + j) * p->k_s + d, stride = is_half ? PART : p->k_s;
      const int32_t n = keys - j < TURN ? keys - j : TURN,
                    dim = whole - d < most ? whole - d : most;
      const real *from = is_half ? wide : (const real *)k + at;
      if (is_half) widen((const half *)k + at, p->k_s, n, dim, wide, PART);
      for (int32_t r = 0, count; r < rows; r += count) {
        count = share_of(rows - r);
        (count == 3   ? score_3
         : count == 2 ? score_2
                      : score_1)(n, dim, q + r * whole + d * count, from, stride, s[r] + j, d > 0);
      }
    }
  for (int32_t r = 0; r < rows && whole < p->head_dim; r++)
    EW_PLAIN_FOR (int32_t j = 0; j < keys; j++) {
      float sum = whole ? s[r][j] : 0;
      EW_PLAIN_FOR (int32_t d = whole; d < p->head_dim; d++)
        sum += row[r].q[d] * real_at(k, (int64_t)(j0 + j) * p->k_s + d, is_half);
      s[r][j] = sum;
    }
}
static __attribute__((noinline)) void gather_few(const ew_attention_params *p,
                                                 const attention_row *row, int32_t rows,
                                                 const char *v, int32_t j0, int32_t keys,
                                                 float (*s)[KEYS], bool is_half) {
  const int32_t whole = p->v_dim / VF * VF, most = is_half ? PART : whole;
  real wide[TURN * PART], *y[FEW];
  for (int32_t r = 0; r < rows; r++) y[r] = row[r].y;
  for (int32_t j = 0; j < keys; j += TURN)
    for (int32_t c = 0; c < whole; c += most) {
      const int64_t at = (int64_t)(j0 + j) * p->v_s + c, stride = is_half ? PART : p->v_s;
      const int32_t n = keys - j < TURN ? keys - j : TURN,
                    cols = whole - c < most ? whole - c : most;
      const real *from = is_half ? wide : (const real *)v + at;
      if (is_half) widen((const half *)v + at, p->v_s, n, cols, wide, PART);
      for (int32_t r = 0, count; r < rows; r += count) {
        count = share_of(rows - r);
        (count == 3   ? add_3
         : count == 2 ? add_2
                      : add_1)(n, cols, s[r] + j, from, stride, y + r, c);
      }
    }
  for (int32_t r = 0; r < rows; r++)
    EW_PLAIN_FOR (int32_t c = whole; c < p->v_dim; c++)
      EW_PLAIN_FOR (int32_t j = 0; j < keys; j++)
        y[r][c] += s[r][j] * real_at(v, (int64_t)(j0 + j) * p->v_s + c, is_half);
}

/* The next keys of few rows. whole: the queries as integers, for keys in rows of fewer bits. */
static void attend_few(const ew_attention_params *p, attention_row *row, const real *q,
                       const ew_row_query *whole, int32_t rows, const char *k, const char *v,
                       int32_t j0, int32_t keys, float (*s)[KEYS]) {
  if (!in_rows(p)) {
    score_few(p, row, q, rows, k, j0, keys, s, in_halves(p));
    weigh(p, row, rows, s, j0, 0, keys);
    gather_few(p, row, rows, v, j0, keys, s, in_halves(p));
    return;
  }
  real *y[FEW];
  for (int32_t r = 0; r < rows; r++) y[r] = row[r].y;
  ew_row_scores(whole, rows, (p->head_dim + GROUP - 1) / GROUP,
                (const uint8_t *)k + (int64_t)j0 * p->k_s, p->k_s, keys, s, p->kv_type == EW_I8);
  weigh(p, row, rows, s, j0, 0, keys);
  ew_row_sums(s, rows, (const uint8_t *)v + (int64_t)j0 * p->v_s, p->v_s, keys, p->v_dim, y,
              p->kv_type == EW_I8);
}

static void divide(const ew_attention_params *p, real *y, float max, float sum) {
  const bool nothing = max == -INFINITY;
  const float scale = nothing ? (p->nan_to_zero ? 0 : NAN) : 1.0f / sum;
  for (int32_t i = 0; i < p->v_dim; i++) y[i] = nothing ? scale : y[i] * scale;
}

/* Combines the partial results of a row from all parts of its keys, as if the softmax had continued
 * from one part to the next. */
static void join(const attention_work *w, int32_t item, int32_t r) {
  const ew_attention_params *p = w->p;
  const int32_t size = p->v_dim + 2;
  const real *first = w->partial + (int64_t)(item * w->parts * w->rows + r) * size;
  real *y = y_of(w, item / p->kv_heads, item % p->kv_heads, r), max = -INFINITY, sum = 0;
  for (int32_t i = 0; i < w->parts; i++)
    max = max > first[(int64_t)i * w->rows * size] ? max : first[(int64_t)i * w->rows * size];
  for (int32_t c = 0; c < p->v_dim; c++) y[c] = 0;
  for (int32_t i = 0; i < w->parts; i++, first += (int64_t)w->rows * size) {
    const float keep = first[0] == -INFINITY ? 0 : vf_exp_low(vf_splat(first[0] - max))[0];
    sum += keep * first[1];
    for (int32_t c = 0; c < p->v_dim; c++) y[c] += keep * first[2 + c];
  }
  divide(p, y, max, sum);
}

static void attention_task(void *arg, int32_t index, int32_t thread) {
  const attention_work *w = arg;
  (void)thread;
  const ew_attention_params *p = w->p;
  const int32_t part = index % w->parts, task = index / w->parts;
  int32_t item = task / w->row_blocks, r0 = task % w->row_blocks * w->block,
          rows = w->rows - r0 < w->block ? w->rows - r0 : w->block;
  int32_t b = item / p->kv_heads, kv_head = item % p->kv_heads,
          size = in_rows(p)     ? 1
                 : in_halves(p) ? 2
                                : 4;
  const char *k = w->k + ((int64_t)b * p->k_b + (int64_t)kv_head * p->k_h) * size,
             *v = w->v + ((int64_t)b * p->v_b + (int64_t)kv_head * p->v_h) * size;
  attention_row row[ROWS];
  float s[ROWS][KEYS];
  int32_t from = p->kv_len, to = 0;
  for (int32_t r = 0; r < rows; r++) {
    row[r] = make_row(w, b, kv_head, r0 + r);
    if (row[r].from < row[r].to && row[r].from < from) from = row[r].from;
    if (row[r].to > to) to = row[r].to;
    if (w->partial) row[r].y = w->partial + (int64_t)(index * rows + r) * (p->v_dim + 2) + 2;
    if (part) row[r].max = -INFINITY, row[r].sum = 0; /* the sink counts once */
    for (int32_t i = 0; i < p->v_dim; i++) row[r].y[i] = 0;
  }
  const int64_t length = to > from ? to - from : 0;
  to = from + (int32_t)(length * (part + 1) / w->parts),
  from += (int32_t)(length * part / w->parts);
  for (int32_t r = 0; r < rows; r++) row[r].to = row[r].to < to ? row[r].to : to;
  attention_strip strip[ROWS / MR];
  const bool few = rows <= FEW && p->head_dim <= MAX_ROW;
  const int32_t strips = few ? 0 : divide_rows(row, rows, strip);
  ew_row_query whole[FEW];
  real packed[FEW * MAX_ROW];
  if (few) pack_queries(p, row, rows, packed, whole);
  for (int32_t j0 = from; j0 < to; j0 += KEYS) {
    int32_t keys = to - j0 < KEYS ? to - j0 : KEYS;
    if (few) {
      attend_few(p, row, packed, whole, rows, k, v, j0, keys, s);
      continue;
    }
    score(p, row, strip, strips, rows, k, j0, keys, s);
    for (const attention_strip *at = strip; at < strip + strips; at++) {
      const int32_t r = at->first, lo = at->from > j0 ? at->from - j0 : 0,
                    hi = at->to - j0 < keys ? at->to - j0 : keys,
                    count = rows - r < at->tiles * MR ? rows - r : at->tiles * MR;
      if (lo < hi) weigh(p, row + r, count, s + r, j0, lo, hi);
    }
    gather(p, row, strip, strips, rows, v, j0, keys, s);
  }
  for (int32_t r = 0; r < rows; r++)
    if (w->partial)
      row[r].y[-2] = row[r].max, row[r].y[-1] = row[r].sum;
    else
      divide(p, row[r].y, row[r].max, row[r].sum);
}

int32_t ew_k_attention(ew_context *ctx, const ew_attention_params *p, void *const *operand) {
  attention_work w = {p,
                      operand[EW_ATTENTION_Q],
                      operand[EW_ATTENTION_K],
                      operand[EW_ATTENTION_V],
                      operand[EW_ATTENTION_MASK],
                      operand[EW_ATTENTION_LENGTHS],
                      operand[EW_ATTENTION_SINK],
                      operand[EW_ATTENTION_Y],
                      p->heads / p->kv_heads,
                      0,
                      0,
                      0,
                      1,
                      NULL};
  w.rows = w.group * p->q_len;
  real partial[PARTIAL];
  const int32_t threads = ew_parallel_width(ctx), items = p->batch * p->kv_heads;
  const bool enough = (int64_t)items * w.rows >= 4 * (int64_t)threads * ROWS;
  w.block = enough ? ROWS : MIN_ROWS, w.row_blocks = (w.rows - 1) / w.block + 1;
  /* too few heads to occupy all threads evenly: divide the keys as well */
  if (w.rows && w.row_blocks == 1 && items < 4 * threads && items % threads) {
    /* as many as the keys that are seen suffice for, whatever a cache holds before them */
    const attention_row first = make_row(&w, 0, 0, 0);
    const int64_t room = PARTIAL / ((int64_t)items * w.rows * (p->v_dim + 2)),
                  most = (first.to - first.from + p->q_len - 1) / MIN_PART;
    w.parts = (int32_t)(room < most ? room : most);
    w.parts = w.parts < 1 ? 1 : w.parts < threads ? w.parts : threads;
    if (w.parts > 1) w.partial = partial;
  }
  ew_parallel(ctx, items * w.row_blocks * w.parts, attention_task, &w);
  for (int32_t i = 0; w.partial && i < items * w.rows; i++) join(&w, i / w.rows, i % w.rows);
  return EW_OK;
}
