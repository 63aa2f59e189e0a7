/* Pillow's Image.resize (libImaging/Resample.c, and the nearest pixel of Geometry.c): the same
 * bits for uint8, where the weights are integers of 22 bits, and for float32, which is summed in
 * float64. Pillow changes the width first, and rounds, except where it is quicker to change the
 * height first (since version 13; the results differ by rounding). The rows that an output row
 * needs are in a ring, so the source may arrive in pieces of any number of rows. */
#include "media/media.h"
#include <stdbool.h>
#include <string.h>

enum { PRECISION = 22, ALIGN = 16 };

/* The filter of one axis: output i is the sum of weight[i * taps + j] * input[first[i] + j] for
 * j < count[i]. Of the nearest pixel, which has no weights, first is -1 where the box ends after
 * the last pixel because of rounding: Pillow's pixels are 0 there. */
typedef struct {
  int32_t *first, *count;
  void *weight; /* int32 or, for floats, double */
  uint32_t taps;
} axis;

typedef struct {
  ew_resize spec;
  axis across, down;
  uint8_t *ring;        /* ring_rows rows of ring_row_bytes */
  uint8_t *line;        /* if down_first: a row that has the output's height */
  const uint8_t **used; /* the rows of one output row */
  uint32_t ring_rows;
  uint32_t row, done; /* rows of the source that have come, rows of the result that are complete */
  bool changes_width, changes_height, down_first;
  uint64_t row_bytes, ring_row_bytes, out_row_bytes;
} state;

static double support_of(uint32_t filter) {
  switch (filter) {
  case EW_RESIZE_BOX: return 0.5;
  case EW_RESIZE_BICUBIC: return 2;
  case EW_RESIZE_LANCZOS: return 3;
  default: return 1;
  }
}

static double sinc(double x) { return x == 0 ? 1 : ew_sin_pi(x) / (x * 3.141592653589793); }

static double filtered(uint32_t filter, double x) {
  const double d = x < 0 ? -x : x;
  switch (filter) {
  case EW_RESIZE_BOX: return x > -0.5 && x <= 0.5 ? 1 : 0;
  case EW_RESIZE_HAMMING: /* cos(pi d) = sin(pi (d + 1/2)); Pillow's constants are floats */
    return d >= 1 ? 0 : d == 0 ? 1 : sinc(d) * ((double)0.54f + (double)0.46f * ew_sin_pi(d + 0.5));
  case EW_RESIZE_BICUBIC:
    if (d < 1) return ((-0.5 + 2) * d - (-0.5 + 3)) * d * d + 1;
    return d < 2 ? (((d - 5) * d + 8) * d - 4) * -0.5 : 0;
  case EW_RESIZE_LANCZOS: return -3 <= x && x < 3 ? sinc(x) * sinc(x / 3) : 0;
  default: return d < 1 ? 1 - d : 0;
  }
}

/* Maximum number of taps of an axis with `size` pixels, of which those from `low` to `high` become
 * `out` pixels. */
static uint32_t taps_of(uint32_t filter, uint32_t size, float low, float high, uint32_t out) {
  if (filter == EW_RESIZE_NEAREST) return 1;
  double scale = (double)(high - low) / out;
  const double support = support_of(filter) * (scale < 1 ? 1 : scale);
  uint32_t whole = (uint32_t)support;
  whole += (double)whole < support;
  return whole * 2 + 1 < size ? whole * 2 + 1 : size;
}

/* As Pillow does, positions are sums of `scale`. */
static void set_nearest(axis *a, uint32_t size, float low, float high, uint32_t out) {
  const double scale = (double)(high - low) / out;
  double at = low + scale * 0.5;
  for (uint32_t i = 0; i < out; i++, at += scale) {
    const int32_t pixel = at < 0 ? -1 : (int32_t)at;
    a->first[i] = pixel < (int32_t)size ? pixel : -1;
    a->count[i] = 1;
  }
}

static void set_weights(axis *a, const ew_resize *r, uint32_t size, float low, float high,
                        uint32_t out, double *line) {
  const double scale = (double)(high - low) / out, stretch = scale < 1 ? 1 : scale;
  const double support = support_of(r->filter) * stretch, shrink = 1 / stretch;
  for (uint32_t i = 0; i < out; i++) {
    const double center = low + (i + 0.5) * scale;
    int32_t from = (int32_t)(center - support + 0.5), to = (int32_t)(center + support + 0.5);
    from = from < 0 ? 0 : from;
    to = to > (int32_t)size ? (int32_t)size : to;
    int32_t n = to > from ? to - from : 0;
    n = n > (int32_t)a->taps ? (int32_t)a->taps : n;
    double sum = 0;
    for (int32_t j = 0; j < n; j++)
      sum += line[j] = filtered(r->filter, (j + from - center + 0.5) * shrink);
    for (int32_t j = 0; j < n; j++) {
      const double w = sum != 0 ? line[j] / sum : line[j];
      const size_t at = (size_t)i * a->taps + (size_t)j;
      if (r->is_float)
        ((double *)a->weight)[at] = w;
      else
        ((int32_t *)a->weight)[at] = (int32_t)((w < 0 ? -0.5 : 0.5) + w * (1 << PRECISION));
    }
    a->first[i] = from, a->count[i] = n;
  }
}

/* Reserves n aligned bytes at *used bytes from `base` (NULL: only counts). */
static void *take(uint8_t *base, uint64_t *used, uint64_t n) {
  uint8_t *p = base ? base + *used : NULL;
  *used += (n + ALIGN - 1) & ~(uint64_t)(ALIGN - 1);
  return p;
}

static bool is_part(float low, float high, uint32_t size) {
  return low >= 0 && high > low && high <= (float)size;
}

static bool is_allowed(const ew_resize *r) {
  const uint32_t sizes[] = {r->height, r->width, r->out_height, r->out_width};
  for (int i = 0; i < 4; i++)
    if (!sizes[i] || sizes[i] > EW_MAX_SIDE) return false;
  return r->channels && r->channels <= EW_MAX_CHANNELS && r->filter < EW_RESIZE_FILTERS &&
         r->is_float <= 1 && is_part(r->box[0], r->box[2], r->width) &&
         is_part(r->box[1], r->box[3], r->height);
}

/* Divides `base` (NULL: none) among the members of *s. Returns the number of bytes. All sizes are
 * at most 2^20 and there are at most 2^10 channels, so products of three fit into 64 bits. */
static uint64_t arrange(const ew_resize *r, state *s, uint8_t *base) {
  const uint64_t value = r->is_float ? 4 : 1;
  const size_t weight = r->filter == EW_RESIZE_NEAREST ? 0 : r->is_float ? 8 : 4;
  uint64_t used = 0;
  take(base, &used, sizeof *s);
  s->spec = *r;
  s->across.taps = taps_of(r->filter, r->width, r->box[0], r->box[2], r->out_width);
  s->down.taps = taps_of(r->filter, r->height, r->box[1], r->box[3], r->out_height);
  s->row_bytes = value * r->width * r->channels;
  s->out_row_bytes = value * r->out_width * r->channels;
  s->ring_rows = s->down.taps;
  const int32_t shorter = (int32_t)(r->height - r->out_height);
  s->down_first = r->filter != EW_RESIZE_NEAREST && shorter > 0 &&
                  shorter > 2 * (int32_t)(r->width - r->out_width);
  s->ring_row_bytes = s->down_first ? s->row_bytes : s->out_row_bytes;
  axis *axes[] = {&s->across, &s->down};
  for (int i = 0; i < 2; i++) {
    const uint64_t out = i ? r->out_height : r->out_width;
    axes[i]->first = take(base, &used, 4 * out);
    axes[i]->count = take(base, &used, 4 * out);
    axes[i]->weight = take(base, &used, weight * out * axes[i]->taps);
  }
  s->used = take(base, &used, sizeof *s->used * s->ring_rows);
  s->line = take(base, &used, s->down_first ? s->row_bytes : 0);
  /* The ring is also the scratch of set_weights. */
  const uint64_t scratch = 8 * (uint64_t)(s->across.taps + s->down.taps);
  const uint64_t ring = s->ring_rows * s->ring_row_bytes;
  s->ring = take(base, &used, ring > scratch ? ring : scratch);
  return used;
}

EW_API(ew_resize_bytes) int32_t ew_resize_bytes(const ew_resize *r) {
  state s;
  if (!is_allowed(r)) return -EW_E_ARGUMENT;
  const uint64_t bytes = arrange(r, &s, NULL);
  const uint64_t result = s.out_row_bytes * r->out_height;
  return bytes <= INT32_MAX && s.row_bytes <= INT32_MAX && result <= UINT32_MAX ? (int32_t)bytes
                                                                                : -EW_E_MEMORY;
}

EW_API(ew_resize_open) int32_t ew_resize_open(const ew_resize *r, void *work) {
  state *s = work;
  const int32_t bytes = ew_resize_bytes(r);
  if (bytes < 0) return bytes;
  memset(s, 0, sizeof *s);
  arrange(r, s, work);
  const float *box = r->box;
  s->changes_width = r->width != r->out_width || box[0] != 0 || box[2] != (float)r->width;
  s->changes_height = r->height != r->out_height || box[1] != 0 || box[3] != (float)r->height;
  if (r->filter == EW_RESIZE_NEAREST) {
    set_nearest(&s->across, r->width, box[0], box[2], r->out_width);
    set_nearest(&s->down, r->height, box[1], box[3], r->out_height);
  } else {
    double *line = (double *)(void *)s->ring;
    set_weights(&s->across, r, r->width, box[0], box[2], r->out_width, line);
    set_weights(&s->down, r, r->height, box[1], box[3], r->out_height, line);
  }
  return 0;
}

static inline uint8_t byte_of(uint32_t sum) {
  const int32_t v = (int32_t)sum >> PRECISION;
  return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
}

/* Sums are of uint32, which wrap: an int32 result that fits is right in any order. */
static inline __attribute__((always_inline)) void
row_of_bytes(const axis *a, const uint8_t *x, uint8_t *y, uint32_t width, uint32_t channels) {
  for (uint32_t i = 0; i < width; i++) {
    const int32_t *w = (const int32_t *)a->weight + (size_t)i * a->taps, n = a->count[i];
    const uint8_t *p = x + (size_t)a->first[i] * channels;
    for (uint32_t c = 0; c < channels; c++) {
      uint32_t sum = 1u << (PRECISION - 1);
      for (int32_t j = 0; j < n; j++) sum += p[(size_t)j * channels + c] * (uint32_t)w[j];
      *y++ = byte_of(sum);
    }
  }
}

/* Three values of a pixel at once. */
static void row_of_pixels(const axis *a, const uint8_t *x, uint8_t *y, uint32_t width) {
  for (uint32_t i = 0; i < width; i++, y += 3) {
    const int32_t *w = (const int32_t *)a->weight + (size_t)i * a->taps, n = a->count[i];
    const uint8_t *p = x + (size_t)a->first[i] * 3;
    uint32_t r = 1u << (PRECISION - 1), g = r, b = r;
    for (int32_t j = 0; j < n; j++, p += 3) {
      r += p[0] * (uint32_t)w[j];
      g += p[1] * (uint32_t)w[j];
      b += p[2] * (uint32_t)w[j];
    }
    y[0] = byte_of(r), y[1] = byte_of(g), y[2] = byte_of(b);
  }
}

static void row_of_floats(const axis *a, const float *x, float *y, uint32_t width,
                          uint32_t channels) {
  for (uint32_t i = 0; i < width; i++) {
    const double *w = (const double *)a->weight + (size_t)i * a->taps;
    const float *p = x + (size_t)a->first[i] * channels;
    for (uint32_t c = 0; c < channels; c++) {
      double sum = 0;
      for (int32_t j = 0; j < a->count[i]; j++) sum += (double)p[(size_t)j * channels + c] * w[j];
      *y++ = (float)sum;
    }
  }
}

static void row_of_nearest(const state *s, const uint8_t *x, uint8_t *y) {
  const size_t pixel = s->spec.channels * (s->spec.is_float ? 4 : 1);
  for (uint32_t i = 0; i < s->spec.out_width; i++, y += pixel)
    if (s->across.first[i] < 0)
      memset(y, 0, pixel);
    else
      memcpy(y, x + (size_t)s->across.first[i] * pixel, pixel);
}

/* One row of the source at the width of the result. */
static void resize_row(const state *s, const uint8_t *x, uint8_t *y) {
  const ew_resize *r = &s->spec;
  if (!s->changes_width)
    memcpy(y, x, s->out_row_bytes);
  else if (r->filter == EW_RESIZE_NEAREST)
    row_of_nearest(s, x, y);
  else if (r->is_float)
    row_of_floats(&s->across, (const float *)(const void *)x, (float *)(void *)y, r->out_width,
                  r->channels);
  else if (r->channels == 3)
    row_of_pixels(&s->across, x, y, r->out_width);
  else if (r->channels == 1)
    row_of_bytes(&s->across, x, y, r->out_width, 1);
  else
    row_of_bytes(&s->across, x, y, r->out_width, r->channels);
}

enum { TILE = 32 }; /* values whose sums stay in registers */

static void combine_bytes(const uint8_t *const *rows, const int32_t *w, int32_t n, uint8_t *y,
                          size_t bytes) {
  for (size_t at = 0; at < bytes; at += TILE) {
    const size_t size = bytes - at < TILE ? bytes - at : TILE;
    uint32_t sum[TILE];
    for (size_t i = 0; i < TILE; i++) sum[i] = 1u << (PRECISION - 1);
    for (int32_t j = 0; j < n; j++) {
      const uint8_t *x = rows[j] + at;
      const uint32_t k = (uint32_t)w[j];
      if (size == TILE)
        for (size_t i = 0; i < TILE; i++) sum[i] += x[i] * k;
      else
        for (size_t i = 0; i < size; i++) sum[i] += x[i] * k;
    }
    for (size_t i = 0; i < size; i++) y[at + i] = byte_of(sum[i]);
  }
}

static void combine_floats(const uint8_t *const *rows, const double *w, int32_t n, float *y,
                           size_t count) {
  for (size_t at = 0; at < count; at += TILE) {
    const size_t size = count - at < TILE ? count - at : TILE;
    double sum[TILE] = {0};
    for (int32_t j = 0; j < n; j++) {
      const float *x = (const float *)(const void *)rows[j] + at;
      if (size == TILE)
        for (size_t i = 0; i < TILE; i++) sum[i] += (double)x[i] * w[j];
      else
        for (size_t i = 0; i < size; i++) sum[i] += (double)x[i] * w[j];
    }
    for (size_t i = 0; i < size; i++) y[at + i] = (float)sum[i];
  }
}

/* Writes row s->done of the result, whose rows of the source are in the ring. */
static void write_row(const state *s, uint8_t *y) {
  const axis *a = &s->down;
  const int32_t first = a->first[s->done], n = a->count[s->done];
  const size_t at = (size_t)s->done * a->taps;
  if (first < 0) {
    memset(y, 0, s->out_row_bytes);
    return;
  }
  for (int32_t j = 0; j < n; j++)
    s->used[j] = s->ring + (uint32_t)(first + j) % s->ring_rows * s->ring_row_bytes;
  uint8_t *combined = s->down_first ? s->line : y;
  if (s->spec.filter == EW_RESIZE_NEAREST)
    memcpy(y, s->used[0], s->out_row_bytes);
  else if (s->spec.is_float)
    combine_floats(s->used, (const double *)a->weight + at, n, (float *)(void *)combined,
                   s->ring_row_bytes / 4);
  else
    combine_bytes(s->used, (const int32_t *)a->weight + at, n, combined, s->ring_row_bytes);
  if (s->down_first) resize_row(s, s->line, y);
}

EW_API(ew_resize_feed)
int32_t ew_resize_feed(void *work, const void *rows, uint32_t n, void *out) {
  state *s = work;
  const ew_resize *r = &s->spec;
  if (n > r->height - s->row) return -EW_E_ARGUMENT;
  for (const uint8_t *x = rows; n--; x += s->row_bytes) {
    const int32_t row = (int32_t)s->row++;
    if (s->done == r->out_height) continue;
    if (!s->changes_height) { /* row by row, without the ring */
      resize_row(s, x, (uint8_t *)out + s->done++ * s->out_row_bytes);
      continue;
    }
    if (row < s->down.first[s->done]) continue; /* above all rows that are still needed */
    uint8_t *kept = s->ring + (uint32_t)row % s->ring_rows * s->ring_row_bytes;
    if (s->down_first)
      memcpy(kept, x, s->row_bytes);
    else
      resize_row(s, x, kept);
    while (s->done < r->out_height && s->down.first[s->done] + s->down.count[s->done] <= row + 1) {
      write_row(s, (uint8_t *)out + s->done * s->out_row_bytes);
      s->done++;
    }
  }
  return (int32_t)s->done;
}
