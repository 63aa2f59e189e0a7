/* QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear and GatherBlockQuantized, with scales per
 * tensor, per axis or per block.
 *
 * Tasks are ranges of runs (see `layout`), or of elements if there is one run; chunks of a run are
 * converted through float buffers by loops that compilers vectorize. */
#include "scalar_math.h"
#include "kernels/elementwise/each.h"

enum { CHUNK = 256 };

/* Rounds half to even. `low` and `high` bound the argument to the range where the trick works and
 * remove NaN. */
static inline float round_within(float v, float low, float high) {
  v = v > low ? v : low;
  return ew_round_small(v < high ? v : high);
}

/* y = round(x / scale) + zero as bytes, saturated to low..high; NaN gives low. x / scale is bounded
 * before it is rounded, so that adding 1.5 * 2^23 leaves the rounded number in the low bits. */
EW_INLINE vi bytes_of(vf x, vf scale, vf low, vf high, vi zero) {
  const vf v = vf_min(vf_max(low, x / scale), high) + EW_ROUNDER;
  return (vi)v - zero;
}
static void quantize_bytes(const m_f32 *x, m_u8 *y, int64_t n, float scale, float zero, float low,
                           float high) {
  const vf by = vf_splat(scale), least = vf_splat(low - zero), most = vf_splat(high - zero);
  const vi base = vi_splat((int32_t)ew_bits(EW_ROUNDER) - (int32_t)zero);
  int64_t i = 0;
  for (; i + 4 * VF <= n; i += 4 * VF) {
    vi v[4];
    for (int u = 0; u < 4; u++) v[u] = bytes_of(vf_load(x + i + u * VF), by, least, most, base);
#if VF == 4
    *(u8x16_m *)(y + i) = u8x16_of(v[0], v[1], v[2], v[3]);
#else
    for (int u = 0; u < 4; u += 2) vi_store_bytes(y + i + u * VF, v[u], v[u + 1]);
#endif
  }
  EW_PLAIN_FOR (; i < n; i++) y[i] = (uint8_t)bytes_of(vf_splat(x[i]), by, least, most, base)[0];
}

/* Decodes n values from element `at` on. 4-bit values are stored two to a byte, the low half first.
 */
static void decode(int32_t type, const void *x, int64_t at, int32_t n, float *to) {
#define DECODE(expression)                                     \
  for (int32_t i = 0; i < n; i++) to[i] = (float)(expression); \
  break
#define DECODE_RARE(expression)                                         \
  EW_PLAIN_FOR (int32_t i = 0; i < n; i++) to[i] = (float)(expression); \
  break
  const m_u8 *bytes = x;
  switch (type) {
  case EW_U8: DECODE(bytes[at + i]);
  case EW_I8: DECODE(((const m_i8 *)x)[at + i]);
  case EW_U16: DECODE_RARE(((const m_u16 *)x)[at + i]);
  case EW_I16: DECODE_RARE(((const m_i16 *)x)[at + i]);
  case EW_I32: DECODE(((const m_i32 *)x)[at + i]);
  case EW_U4: DECODE(bytes[(at + i) >> 1] >> 4 * ((at + i) & 1) & 15);
  default: DECODE((((bytes[(at + i) >> 1] >> 4 * ((at + i) & 1)) & 15) ^ 8) - 8);
  }
#undef DECODE
#undef DECODE_RARE
}

/* A tensor [outer, axis, inner] as runs of contiguous elements for which scale and zero point are
 * either constant or contiguous as well. */
typedef struct {
  int32_t axis, inner, block;
  int64_t run, runs; /* elements per run, number of runs */
  bool each;         /* one scale per element of the run; otherwise one for the whole run */
  bool one;          /* a single run, whose elements are divided among tasks */
} layout;

static layout layout_of(int32_t outer, int32_t axis, int32_t inner, int32_t block) {
  layout l = {axis, inner, block, inner, (int64_t)outer * axis, block > 0, false};
  if (block < 0)
    l.run = (int64_t)outer * axis * inner, l.runs = 1;
  else if (block == 0 && inner == 1)
    l.run = axis, l.runs = outer, l.each = true;
  /* a run is the part of a row in one block; the last block may be shorter */
  else if (block > 0 && inner == 1) {
    l.each = false, l.runs = (int64_t)outer * ((axis - 1) / block + 1);
    l.run = block;
  }
  l.one = l.runs == 1 && block <= 0;
  return l;
}

/* Run r: its first element, its length, and the index of its first scale. */
static void run_of(const layout *l, int64_t r, int64_t *first, int64_t *n, int64_t *scale) {
  *n = l->run;
  if (l->block > 0 && l->inner == 1) {
    const int64_t blocks = (l->axis - 1) / l->block + 1, b = r % blocks;
    *first = r / blocks * l->axis + b * l->block;
    *n = l->axis - b * l->block < l->block ? l->axis - b * l->block : l->block;
    *scale = r;
    return;
  }
  *first = r * l->run;
  if (l->block < 0)
    *scale = 0;
  else if (l->block == 0)
    *scale = l->each ? 0 : r % l->axis;
  else
    *scale = (r / l->axis * ((l->axis - 1) / l->block + 1) + r % l->axis / l->block) * l->inner;
}

typedef struct {
  int32_t type;
  layout l;
  const void *x, *zero;
  const m_f32 *scale;
  void *y;
  int64_t per_task; /* runs per task, or elements if there is one run */
  float low, high;
} quantization;

typedef void (*chunk)(const quantization *, int64_t at, int32_t n, const float *scale,
                      const float *zero);

/* y = round(x / scale) + zero, saturated */
static void quantize_chunk(const quantization *q, int64_t at, int32_t n, const float *scale,
                           const float *zero) {
  const m_f32 *x = (const m_f32 *)q->x + at;
  const float low = q->low, high = q->high;
  float v[CHUNK];
  EW_EACH for (int32_t i = 0; i < n; i++) {
    const float r = round_within(x[i] / scale[i], -200000, 200000) + zero[i];
    v[i] = r < low ? low : r > high ? high : r;
  }
  if (q->type == EW_U8 || q->type == EW_I8) { /* signed and unsigned have the same low bits */
    m_u8 *y = (m_u8 *)q->y + at;
    EW_EACH for (int32_t i = 0; i < n; i++) y[i] = (uint8_t)(int32_t)v[i];
  } else {
    m_u16 *y = (m_u16 *)q->y + at;
    EW_EACH for (int32_t i = 0; i < n; i++) y[i] = (uint16_t)(int32_t)v[i];
  }
}

/* y = (x - zero) * scale */
static void dequantize_chunk(const quantization *q, int64_t at, int32_t n, const float *scale,
                             const float *zero) {
  float v[CHUNK];
  decode(q->type, q->x, at, n, v);
  m_f32 *y = (m_f32 *)q->y + at;
  EW_EACH for (int32_t i = 0; i < n; i++) y[i] = (v[i] - zero[i]) * scale[i];
}

static void run_chunks(const quantization *q, chunk f, int64_t first, int64_t n, int64_t scale_at,
                       bool each) {
  float scale[CHUNK], zero[CHUNK] = {0};
  if (!each) {
    float z = 0;
    if (q->zero) decode(q->type, q->zero, scale_at, 1, &z);
    for (int i = 0; i < CHUNK && i < n; i++) scale[i] = q->scale[scale_at], zero[i] = z;
  }
  for (int64_t at = 0; at < n; at += CHUNK) {
    const int32_t m = (int32_t)(n - at < CHUNK ? n - at : CHUNK);
    if (each) {
      for (int32_t i = 0; i < m; i++) scale[i] = q->scale[scale_at + at + i];
      if (q->zero) decode(q->type, q->zero, scale_at + at, m, zero);
    }
    f(q, first + at, m, scale, zero);
  }
}

/* Bytes with one scale, without buffers; false for anything else. */
static bool run_bytes(const quantization *q, bool back, int64_t first, int64_t n, int64_t at,
                      bool each) {
  if (each || (q->type != EW_U8 && q->type != EW_I8)) return false;
  float zero = 0;
  if (q->zero) decode(q->type, q->zero, at, 1, &zero);
  if (!back) {
    quantize_bytes((const m_f32 *)q->x + first, (m_u8 *)q->y + first, n, q->scale[at], zero, q->low,
                   q->high);
    return true;
  }
  /* (x - zero) scale, with x as the low bits of 2^23 */
  const m_u8 *x = (const m_u8 *)q->x + first;
  m_f32 *y = (m_f32 *)q->y + first;
  const float scale = q->scale[at];
  const int32_t flip = q->type == EW_I8 ? 0x80 : 0;
  const vi bits = vi_splat(0x4b000000 | flip);
  const vf base = vf_splat(0x1p23f + (float)flip + zero);
  int64_t i = 0;
  for (; i + 2 * VF <= n; i += 2 * VF)
    for (int u = 0; u < 2; u++)
      vf_store(y + i + u * VF, ((vf)(vi_load_bytes(x + i + u * VF) ^ bits) - base) * scale);
  EW_PLAIN_FOR (; i < n; i++) y[i] = ((float)(x[i] ^ flip) - (float)flip - zero) * scale;
  return true;
}

static void quantization_task(const quantization *q, chunk f, int32_t index) {
  const bool back = f == dequantize_chunk;
  const int64_t total = q->l.one ? q->l.run : q->l.runs, from = index * q->per_task,
                to = from + q->per_task < total ? from + q->per_task : total;
  if (q->l.one) {
    if (!run_bytes(q, back, from, to - from, 0, q->l.each))
      run_chunks(q, f, from, to - from, q->l.each ? from : 0, q->l.each);
    return;
  }
  for (int64_t r = from; r < to; r++) {
    int64_t first, n, scale;
    run_of(&q->l, r, &first, &n, &scale);
    if (!run_bytes(q, back, first, n, scale, q->l.each))
      run_chunks(q, f, first, n, scale, q->l.each);
  }
}

static void quantize_task(void *q, int32_t index, int32_t thread) {
  (void)thread;
  quantization_task(q, quantize_chunk, index);
}
static void dequantize_task(void *q, int32_t index, int32_t thread) {
  (void)thread;
  quantization_task(q, dequantize_chunk, index);
}

static void share(ew_context *c, quantization *q, ew_task task) {
  const int64_t total = q->l.one ? q->l.run : q->l.runs;
  const int32_t tasks = ew_tasks(c, q->l.run * q->l.runs, 16384, total);
  q->per_task = (total + tasks - 1) / tasks;
  ew_parallel(c, (int32_t)((total + q->per_task - 1) / q->per_task), task, q);
}

int32_t ew_k_quantize(ew_context *c, const ew_quantize_params *p, void *const *operand) {
  quantization q = {p->type,
                    layout_of(p->outer, p->axis, p->inner, p->block),
                    operand[EW_QUANTIZE_X],
                    operand[EW_QUANTIZE_ZERO],
                    operand[EW_QUANTIZE_SCALE],
                    operand[EW_QUANTIZE_Y],
                    0,
                    0,
                    0};
  q.low = p->type == EW_I8 ? -128 : p->type == EW_I16 ? -32768 : 0;
  q.high = p->type == EW_I8 ? 127 : p->type == EW_I16 ? 32767 : p->type == EW_U8 ? 255 : 65535;
  share(c, &q, quantize_task);
  return EW_OK;
}

int32_t ew_k_dequantize(ew_context *c, const ew_dequantize_params *p, void *const *operand) {
  quantization q = {p->type,
                    layout_of(p->outer, p->axis, p->inner, p->block),
                    operand[EW_DEQUANTIZE_X],
                    operand[EW_DEQUANTIZE_ZERO],
                    operand[EW_DEQUANTIZE_SCALE],
                    operand[EW_DEQUANTIZE_Y],
                    0,
                    0,
                    0};
  share(c, &q, dequantize_task);
  return EW_OK;
}

enum { MAX_RANGES = 64 };

typedef struct {
  const m_f32 *x;
  m_u8 *y;
  int64_t n, share;
  float low[MAX_RANGES], high[MAX_RANGES], scale, zero;
} dynamic_quantization;

static void range_task(void *arg, int32_t index, int32_t thread) {
  (void)thread;
  dynamic_quantization *q = arg;
  const m_f32 *x = q->x;
  vf low[4] = {{0}}, high[4] = {{0}}; /* the range always includes 0 */
  const int64_t from = index * q->share, to = from + q->share < q->n ? from + q->share : q->n;
  int64_t i = from;
  for (; i + 4 * VF <= to; i += 4 * VF)
    for (int u = 0; u < 4; u++) {
      const vf v = vf_load(x + i + u * VF);
      low[u] = vf_min(low[u], v), high[u] = vf_max(high[u], v);
    }
  EW_PLAIN_FOR (; i < to; i++)
    low[0] = vf_min(low[0], vf_splat(x[i])), high[0] = vf_max(high[0], vf_splat(x[i]));
  q->low[index] = -vf_highest(-vf_min(vf_min(low[0], low[1]), vf_min(low[2], low[3])));
  q->high[index] = vf_highest(vf_max(vf_max(high[0], high[1]), vf_max(high[2], high[3])));
}

static void dynamic_quantize_task(void *arg, int32_t index, int32_t thread) {
  (void)thread;
  const dynamic_quantization *q = arg;
  const m_f32 *x = q->x + index * q->share;
  m_u8 *y = q->y + index * q->share;
  const int32_t n =
      (int32_t)(q->n - index * q->share < q->share ? q->n - index * q->share : q->share);
  quantize_bytes(x, y, n, q->scale, q->zero, 0, 255);
}

int32_t ew_k_dynamic_quantize(ew_context *c, const ew_dynamic_quantize_params *p,
                              void *const *operand) {
  dynamic_quantization q = {
      .x = operand[EW_DYNAMIC_QUANTIZE_X], .y = operand[EW_DYNAMIC_QUANTIZE_Y], .n = p->n};
  int32_t tasks = ew_tasks(c, p->n, 8192, MAX_RANGES);
  q.share = ((int64_t)p->n + tasks - 1) / tasks, tasks = (int32_t)((p->n + q.share - 1) / q.share);
  ew_parallel(c, tasks, range_task, &q);
  EW_PLAIN_FOR (int32_t i = 1; i < tasks; i++)
    q.low[0] = q.low[i] < q.low[0] ? q.low[i] : q.low[0],
    q.high[0] = q.high[i] > q.high[0] ? q.high[i] : q.high[0];
  q.scale = q.low[0] == q.high[0] ? 1 : (q.high[0] - q.low[0]) / 255,
  q.zero = round_within(-q.low[0] / q.scale, 0, 255);
  ew_parallel(c, tasks, dynamic_quantize_task, &q);
  *(m_f32 *)operand[EW_DYNAMIC_QUANTIZE_SCALE] = q.scale;
  *(m_u8 *)operand[EW_DYNAMIC_QUANTIZE_ZERO] = (uint8_t)q.zero;
  return EW_OK;
}

/* Value i of a row of values of `bits` bits each, low bits first. */
static inline int32_t packed(const m_u8 *row, int32_t bits, int32_t i) {
  const int32_t bit = (i % (8 / bits)) * bits;
  return row[i / (8 / bits)] >> bit & ((1 << bits) - 1);
}

typedef struct {
  ew_context *context;
  const ew_gather_quantized_params *p;
  void *const *operand;
  int32_t per_task, failed;
} gather_quantized;

static void gather_quantized_task(void *arg, int32_t index, int32_t thread) {
  (void)thread;
  gather_quantized *g = arg;
  const ew_gather_quantized_params *p = g->p;
  const int64_t blocks = (p->cols - 1) / p->block + 1, x_row = ((int64_t)p->cols * p->bits + 7) / 8,
                per_byte = 8 / p->bits;
  /* distance between rows of zero points */
  const int64_t zero_row = p->zeros == 2 ? blocks : (blocks + per_byte - 1) / per_byte * per_byte;
  /* two's complement: (v ^ sign) - sign */
  const int32_t sign = p->signed_ ? 1 << (p->bits - 1) : 0;
  for (int64_t c = (int64_t)index * g->per_task;
       c < p->count && c < ((int64_t)index + 1) * g->per_task; c++) {
    const int64_t row =
        ew_index(g->context, g->operand[EW_GATHER_QUANTIZED_INDEX], p->index_type, c, p->rows);
    if (row < 0) {
      __atomic_store_n(&g->failed, 1, __ATOMIC_RELAXED);
      return;
    }
    const m_u8 *x = (const m_u8 *)g->operand[EW_GATHER_QUANTIZED_X] + row * x_row,
               *zeros = g->operand[EW_GATHER_QUANTIZED_ZEROS_];
    m_f32 *y = (m_f32 *)g->operand[EW_GATHER_QUANTIZED_Y] + c * p->cols;
    for (int64_t b = 0; b < blocks; b++) {
      const int64_t at = row * blocks + b;
      const float scale =
          p->scale_type == EW_F32
              ? ((const m_f32 *)g->operand[EW_GATHER_QUANTIZED_SCALES])[at]
              : half_to_float(((const m_u16 *)g->operand[EW_GATHER_QUANTIZED_SCALES])[at]);
      const int32_t zero = zeros ? (packed(zeros + (row * zero_row + b) / per_byte, p->bits,
                                           (int32_t)((row * zero_row + b) % per_byte)) ^
                                    sign) -
                                       sign
                           : p->signed_ || p->zeros < 0 ? 0
                                                        : 1 << (p->bits - 1);
      const int32_t first = (int32_t)(b * p->block),
                    end = p->cols - first < p->block ? p->cols : first + p->block;
      EW_PLAIN_FOR (int32_t i = first; i < end; i++)
        y[i] = (float)((packed(x, p->bits, i) ^ sign) - sign - zero) * scale;
    }
  }
}

int32_t ew_k_gather_quantized(ew_context *c, const ew_gather_quantized_params *p,
                              void *const *operand) {
  gather_quantized g = {c, p, operand, 0, 0};
  const int32_t tasks = ew_tasks(c, (int64_t)p->count * p->cols, 16384, p->count);
  g.per_task = (int32_t)(((int64_t)p->count + tasks - 1) / tasks);
  ew_parallel(c, (int32_t)(((int64_t)p->count + g.per_task - 1) / g.per_task),
              gather_quantized_task, &g);
  return g.failed ? EW_E_INDEX : EW_OK;
}
