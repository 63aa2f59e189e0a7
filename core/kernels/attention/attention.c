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
  ROWS = 96,             /* rows (queries of the heads that share a kv head) per block, at most */
  MIN_ROWS = 48,         /* as many with few rows, so that each thread has several blocks */
  KEYS = ROW_KEYS,       /* keys per block */
  PARTIAL = 4096,        /* floats of scratch for the partial results of divided keys */
  MIN_PART = 64,         /* keys per part, at least, when keys are divided among threads */
  DIM = 256,             /* elements of the head dimension that fit one packed panel */
  FEW = 6,               /* up to this many rows, k and v are read without packing */
  SUMS = VF > 8 ? 4 : 8, /* vector accumulators for few rows */
  TURN = 16,             /* keys whose values are added before the next columns of v are */
  WIDE = SUMS * VF       /* columns of v per pass for few rows; with 512-bit vectors this is the
                          * common head size of 64 */
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

/* How k and v are stored: EW_F32, EW_F16, or EW_I8: rows of 8 or 4 bits. */
EW_INLINE bool in_rows(int type) { return type == EW_I8; }
EW_INLINE int32_t size_of(int type) { return type == EW_F32 ? 4 : type == EW_F16 ? 2 : 1; }

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

/* Turns the scores of `keys` keys from j0 on into weights; returns the factor by which the partial
 * y must be multiplied. */
static float weigh(const ew_attention_params *p, attention_row *row, real *s, int32_t j0,
                   int32_t keys) {
  const int32_t count = (keys + VF - 1) / VF * VF, from = row->from - j0, to = row->to - j0,
                n = to < keys ? to : keys;
  const real *mask =
      p->mask_type == EW_F32 && p->m_k == 1 && row->mask ? (const real *)row->mask + j0 : NULL;
  if (to <= 0 || from >= keys) {
    for (int32_t j = 0; j < count; j += VF) vf_store(s + j, vf_splat(0));
    return 1;
  }
  vf high = vf_splat(row->max), sum = vf_splat(0);
  for (int32_t j = 0; j < count; j += VF) {
    vf x = vf_load(s + j) * p->scale;
    if (p->softcap > 0) x = p->softcap * vf_tanh(x / p->softcap);
    if (mask && j + VF <= n) x += vf_load(mask + j);
    vf_store(s + j, x), high = vf_max(high, x);
  }
  if (from > 0 || n < count || (row->mask && !mask)) { /* clear keys outside the range */
    int32_t j = mask ? n / VF * VF : 0;
    for (; row->mask && j < n; j++) {
      int64_t at = (int64_t)(j0 + j) * p->m_k;
      if (p->mask_type == EW_F32)
        s[j] += ((const real *)row->mask)[at];
      else if (!((const uint8_t *)row->mask)[at])
        s[j] = -INFINITY;
    }
    EW_PLAIN_FOR (j = 0; j < from && j < count; j++) s[j] = -INFINITY;
    EW_PLAIN_FOR (j = to > 0 ? to : 0; j < count; j++) s[j] = -INFINITY;
    high = vf_splat(row->max);
    for (j = 0; j < count; j += VF) high = vf_max(high, vf_load(s + j));
  }
  const float max = vf_highest(high);
  if (max == -INFINITY) { /* no key so far */
    for (int32_t j = 0; j < count; j++) s[j] = 0;
    return 0;
  }
  for (int32_t j = 0; j < count; j += VF) {
    vf e = vf_exp_low(vf_load(s + j) - max);
    vf_store(s + j, e), sum += e;
  }
  float keep = row->max == max ? 1 : vf_exp_low(vf_splat(row->max - max))[0];
  row->sum = row->sum * keep + vf_sum(sum), row->max = max;
  return keep;
}

/* Rows whose products are computed together: `tiles` times MR of them, of evenly spaced queries, or
 * one tile of other queries, perhaps of fewer rows. */
typedef struct {
  int32_t first, tiles;
  int32_t from, to; /* range of the keys that any of the rows attends to */
  bool even;
} attention_strip;

/* Divides rows into strips, once for all blocks of keys; returns their number. */
static int32_t divide_rows(const attention_row *row, int32_t rows, attention_strip *strip) {
  int32_t strips = 0;
  for (int32_t r = 0, count; r < rows; r += count, strip++, strips++) {
    const intptr_t step = r + 1 < rows ? (intptr_t)row[r + 1].q - (intptr_t)row[r].q : 0;
    int32_t even = 1;
    while (even < MAX_TILES * MR && r + even < rows &&
           (intptr_t)row[r + even].q - (intptr_t)row[r + even - 1].q == step)
      even++;
    strip->first = r, strip->even = even >= MR && step % (intptr_t)sizeof(real) == 0;
    strip->tiles = strip->even ? even / MR : 1;
    count = strip->tiles * MR, strip->from = INT32_MAX, strip->to = 0;
    for (int32_t i = r; i < r + count && i < rows; i++) {
      if (row[i].from < strip->from) strip->from = row[i].from;
      if (row[i].to > strip->to) strip->to = row[i].to;
    }
  }
  return strips;
}

/* Scores of all rows for keys [j0, j0 + keys), one panel of NR keys at a time. */
EW_INLINE void score(const attention_work *w, const attention_row *row,
                     const attention_strip *strip, int32_t strips, int32_t rows, const void *k,
                     int32_t j0, int32_t keys, float s[ROWS][KEYS], int type) {
  const ew_attention_params *p = w->p;
  float panel[DIM * NR], loaded[in_rows(type) ? NR * DIM : 1];
  for (int32_t j = 0; j < keys; j += NR)
    for (int32_t d0 = 0; d0 < p->head_dim; d0 += DIM) {
      int32_t n = p->head_dim - d0 < DIM ? p->head_dim - d0 : DIM,
              count = keys - j < NR ? keys - j : NR;
      for (int32_t i = 0; in_rows(type) && i < count; i++)
        ew_row_load((const uint8_t *)k + (int64_t)(j0 + j + i) * p->k_s, d0, n, loaded + i * DIM,
                    p->kv_type == EW_I8);
      if (in_rows(type))
        ew_pack_columns(loaded, 0, DIM, n, count, panel, false);
      else
        ew_pack_columns(k, (int64_t)(j0 + j) * p->k_s + d0, p->k_s, n, count, panel,
                        type == EW_F16);
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

/* y = keep * y + weights times v for all rows, one panel of NR columns of v at a time. */
EW_INLINE void gather(const attention_work *w, const attention_row *row,
                      const attention_strip *strip, int32_t strips, int32_t rows, const void *v,
                      int32_t j0, int32_t keys, float s[ROWS][KEYS], const float *keep, int type) {
  const ew_attention_params *p = w->p;
  float panel[KEYS * NR], t[MAX_TILES * MR * NR];
  for (int32_t c0 = 0; c0 < p->v_dim; c0 += NR) {
    int32_t cols = p->v_dim - c0 < NR ? p->v_dim - c0 : NR;
    for (int32_t j = 0; j < keys; j++) {
      int64_t at = (int64_t)(j0 + j) * p->v_s + c0;
      if (in_rows(type))
        ew_row_load((const uint8_t *)v + at - c0, c0, NR, panel + j * NR, p->kv_type == EW_I8);
      else if (cols == NR)
        vf_copy_at(panel + j * NR, v, at, type == EW_F16);
      else
        for (int32_t c = 0; c < NR; c++)
          panel[j * NR + c] = c < cols ? real_at(v, at + c, type == EW_F16) : 0;
    }
    for (const attention_strip *at = strip; at < strip + strips; at++) {
      const int32_t from = at->from > j0 ? at->from - j0 : 0,
                    to = at->to - j0 < keys ? at->to - j0 : keys;
      if (from >= to) continue;
      ew_tiles(at->tiles, to - from, s[at->first] + from, KEYS, panel + from * NR, t, NR, NULL);
      for (int32_t i = 0, r = at->first; i < at->tiles * MR && r < rows; i++, r++) {
        real *y = row[r].y + c0;
        if (cols == NR)
          for (int32_t c = 0; c < NR; c += VF)
            vf_store(y + c, vf_fma(vf_splat(keep[r]), vf_load(y + c), vf_load(t + i * NR + c)));
        else
          EW_PLAIN_FOR (int32_t c = 0; c < cols; c++) y[c] = y[c] * keep[r] + t[i * NR + c];
      }
    }
  }
}

/* y = keep * y + sum of weights times rows of v, WIDE columns */
static __attribute__((noinline)) void add_weighted(int32_t keys, const float *weights,
                                                   const real *v, int64_t stride, float keep,
                                                   real *y) {
  vf t[SUMS];
  for (int u = 0; u < SUMS; u++) t[u] = vf_load(y + u * VF) * keep;
  for (int32_t j = 0; j < keys; j++, v += stride) {
    vf x = vf_splat(weights[j]);
    for (int u = 0; u < SUMS; u++) t[u] = vf_fma(x, vf_load(v + u * VF), t[u]);
  }
  for (int u = 0; u < SUMS; u++) vf_store(y + u * VF, t[u]);
}

/* out[n] = q times n keys, one key after the other: a single stream of memory. Sums have the order
 * of ew_dots. */
static __attribute__((noinline)) void score_alone(int32_t n, int32_t dim, const real *q,
                                                  const real *k, int64_t stride, float *out) {
  for (; n > 0; n--, k += stride, out++) {
    vf s[2] = {vf_splat(0), vf_splat(0)};
    int32_t d = 0;
    for (; d + 2 * VF <= dim; d += 2 * VF)
      for (int u = 0; u < 2; u++)
        s[u] = vf_fma(vf_load(q + d + u * VF), vf_load(k + d + u * VF), s[u]);
    float sum = vf_sum(s[0] + s[1]);
    EW_PLAIN_FOR (; d < dim; d++) sum += q[d] * k[d];
    *out = sum;
  }
}

/* As score and gather, for few rows: k and v are read without packing. whole: the queries as
 * integers, for keys in rows of fewer bits. */
EW_INLINE void score_few(const attention_work *w, attention_row *row, const ew_row_query *whole,
                         int32_t rows, const char *k, int32_t j0, int32_t keys, float s[ROWS][KEYS],
                         int type) {
  const ew_attention_params *p = w->p;
  if (in_rows(type)) {
    ew_row_scores(whole, rows, (p->head_dim + GROUP - 1) / GROUP,
                  (const uint8_t *)k + (int64_t)j0 * p->k_s, p->k_s, keys, s, p->kv_type == EW_I8);
    return;
  }
  if (rows == 1 && type == EW_F32) {
    score_alone(keys, p->head_dim, row->q, (const real *)k + (int64_t)j0 * p->k_s, p->k_s, s[0]);
    return;
  }
  for (int32_t j = 0, n; j < keys; j += n) {
    const char *key = k + (int64_t)(j0 + j) * p->k_s * size_of(type);
    n = keys - j >= 4 ? 4 : 1; /* at the end a single key, used four times */
    for (int32_t r = 0, count; r < rows; r += count) {
      float t[16];
      count = ew_dots_rows(rows - r);
      int64_t q_row = count > 1 ? row[r + 1].q - row[r].q : 0;
      for (int32_t i = 2; i < count; i++)
        if (row[r + i].q - row[r].q != i * q_row) count = 1; /* rows of different heads */
      ew_dots(count, p->head_dim, row[r].q, q_row, key, n == 4 ? p->k_s : 0, type == EW_F16, t);
      for (int32_t i = 0; i < count; i++)
        for (int32_t c = 0; c < n; c++) s[r + i][j + c] = t[i * 4 + c];
    }
  }
}
EW_INLINE void gather_few(const attention_work *w, attention_row *row, int32_t rows, const void *v,
                          int32_t j0, int32_t keys, float s[ROWS][KEYS], const float *keep,
                          int type) {
  const ew_attention_params *p = w->p;
  const int32_t whole = p->v_dim / WIDE * WIDE;
  const bool is_half = type == EW_F16;
  if (in_rows(type)) {
    real *y[FEW];
    for (int32_t r = 0; r < rows; r++) y[r] = row[r].y;
    ew_row_sums(s, rows, (const uint8_t *)v + (int64_t)j0 * p->v_s, p->v_s, keys, p->v_dim, keep, y,
                p->kv_type == EW_I8);
    return;
  }
  for (int32_t c = 0; is_half && c < whole; c += WIDE) { /* convert once for all rows */
    float converted[KEYS * WIDE];
    for (int32_t j = 0; j < keys; j++)
      EW_PLAIN_FOR (int u = 0; u < WIDE; u += 2 * VF)
        vf_copy_at(converted + j * WIDE + u, v, (int64_t)(j0 + j) * p->v_s + c + u, true);
    for (int32_t r = 0; r < rows; r++)
      add_weighted(keys, s[r], converted, WIDE, keep[r], row[r].y + c);
  }
  /* a few values at a time, so that all of their columns are read from memory in order */
  for (int32_t j = 0; !is_half && j < keys; j += TURN)
    for (int32_t c = 0; c < whole; c += WIDE)
      for (int32_t r = 0; r < rows; r++)
        add_weighted(keys - j < TURN ? keys - j : TURN, s[r] + j,
                     (const real *)v + (int64_t)(j0 + j) * p->v_s + c, p->v_s, j ? 1 : keep[r],
                     row[r].y + c);
  for (int32_t c = whole; c < p->v_dim; c++)
    for (int32_t r = 0; r < rows; r++) {
      float t = row[r].y[c] * keep[r];
      EW_PLAIN_FOR (int32_t j = 0; j < keys; j++)
        t += s[r][j] * real_at(v, (int64_t)(j0 + j) * p->v_s + c, is_half);
      row[r].y[c] = t;
    }
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

EW_INLINE void attend(const attention_work *w, int32_t index, int type) {
  const ew_attention_params *p = w->p;
  const int32_t part = index % w->parts, task = index / w->parts;
  int32_t item = task / w->row_blocks, r0 = task % w->row_blocks * w->block,
          rows = w->rows - r0 < w->block ? w->rows - r0 : w->block;
  int32_t b = item / p->kv_heads, kv_head = item % p->kv_heads, size = size_of(type);
  const char *k = w->k + ((int64_t)b * p->k_b + (int64_t)kv_head * p->k_h) * size,
             *v = w->v + ((int64_t)b * p->v_b + (int64_t)kv_head * p->v_h) * size;
  attention_row row[ROWS];
  float s[ROWS][KEYS], keep[ROWS];
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
  const int32_t strips = rows > FEW ? divide_rows(row, rows, strip) : 0;
  ew_row_query whole[in_rows(type) ? FEW : 1];
  if (in_rows(type) && rows <= FEW) {
    const real *q[FEW];
    for (int32_t r = 0; r < rows; r++) q[r] = row[r].q;
    ew_row_queries(q, rows, p->head_dim, p->kv_type == EW_I8, whole);
  }
  for (int32_t j0 = from; j0 < to; j0 += KEYS) {
    int32_t keys = to - j0 < KEYS ? to - j0 : KEYS;
    if (rows > FEW)
      score(w, row, strip, strips, rows, k, j0, keys, s, type);
    else
      score_few(w, row, whole, rows, k, j0, keys, s, type);
    for (int32_t r = 0; r < rows; r++) keep[r] = weigh(p, &row[r], s[r], j0, keys);
    if (rows > FEW)
      gather(w, row, strip, strips, rows, v, j0, keys, s, keep, type);
    else
      gather_few(w, row, rows, v, j0, keys, s, keep, type);
  }
  for (int32_t r = 0; r < rows; r++)
    if (w->partial)
      row[r].y[-2] = row[r].max, row[r].y[-1] = row[r].sum;
    else
      divide(p, row[r].y, row[r].max, row[r].sum);
}

static void attention_task(void *arg, int32_t index, int32_t thread) {
  const attention_work *w = arg;
  (void)thread;
  switch (EW_CHOICE(B_TYPE, w->p->kv_type)) {
  case EW_F16: attend(w, index, EW_F16); break;
  case EW_F32: attend(w, index, EW_F32); break;
  case EW_I8:
  case EW_U8: attend(w, index, EW_I8); break; /* one code: the engine for pages stays small */
  }
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
