/* RoiAlign and MaxRoiPool: regions of images, divided into bins; per bin and channel the mean or
 * maximum of bilinear samples, or the maximum of its pixels. A task is a region. */
#include "kernels/elementwise/each.h"
#include <math.h>

/* limits that no image reaches: coordinates are clamped to FAR pixels, samples along a bin to
 * MAX_SAMPLES */
enum { FAR = 1 << 24, MAX_SAMPLES = 4096 };

typedef struct {
  ew_context *context;
  const ew_roi_pool_params *p;
  const real *x, *region;
  const long_m *index;
  real *y;
} roi;

/* Bins along one dimension: the first begins at `from`, each is `step` pixels long and has n
 * samples. */
typedef struct {
  float from, step;
  int32_t n;
} bins;

static float tame(float v) { return v > -FAR ? v < FAR ? v : FAR : -FAR; } /* NaN gives -FAR */

static bins bins_of(const ew_roi_pool_params *p, float a, float b, int32_t count) {
  bins r;
  float from = tame(a * p->scale - p->shift), to = tame(b * p->scale - p->shift);
  if (p->op == EW_ROI_POOL) from = roundf(from), to = roundf(to) + 1;
  const float length = to - from, least = tame(p->least);
  r.from = from, r.step = (length < least ? least : length) / (float)count;
  float n = p->samples ? (float)p->samples : ceilf(r.step);
  r.n = n > 0 ? n < MAX_SAMPLES ? (int32_t)n : MAX_SAMPLES : 0;
  return r;
}

/* The two pixels around coordinate v and their weights; false if v lies outside the image. */
static bool around(float v, int32_t size, int32_t *at, float *weight) {
  if (!(v >= -1 && v <= (float)size)) return false;
  v = v < 0 ? 0 : v;
  int32_t low = (int32_t)v;
  if (low >= size - 1) low = size - 1, v = (float)low;
  at[0] = low, at[1] = low < size - 1 ? low + 1 : low;
  weight[1] = v - (float)low, weight[0] = 1 - weight[1];
  return true;
}

/* Range [first, end) of a bin's samples that may lie on the image, so that the work is bounded by
 * the number of pixels, however large the region is. */
static void inside(bins b, float from, int32_t size, int32_t *first, int32_t *end) {
  const float d = b.step / (float)b.n;
  *first = 0, *end = b.n;
  if (!(d > 0)) return;
  const float low = floorf((-1 - from) / d - 0.5f) - 1,
              high = ceilf(((float)size - from) / d - 0.5f) + 2;
  if (low > 0) *first = low < (float)b.n ? (int32_t)low : b.n;
  if (high < (float)b.n) *end = high > 0 ? (int32_t)high : 0;
}

/* NaN gives 0 */
static int32_t edge(float v, int32_t size) {
  return !(v > 0) ? 0 : v > (float)size ? size : (int32_t)v;
}

static void roi_task(void *arg, int32_t r, int32_t thread) {
  const roi *s = arg;
  const ew_roi_pool_params *p = s->p;
  const int64_t plane = (int64_t)p->height * p->width, cells = (int64_t)p->y_height * p->y_width;
  const real *box = s->region + (int64_t)r * 4, *image = s->x + s->index[r] * p->channels * plane;
  const bins h = bins_of(p, box[1], box[3], p->y_height),
             w = bins_of(p, box[0], box[2], p->y_width);
  (void)thread;
  for (int64_t cell = 0; cell < cells && !ew_stopping(s->context); cell++) {
    const int32_t ph = (int32_t)(cell / p->y_width), pw = (int32_t)(cell % p->y_width);
    real *y = s->y + (int64_t)r * p->channels * cells + cell;
    bool first = true;
    EW_PLAIN_FOR (int64_t c = 0; c < p->channels; c++) y[c * cells] = 0;
    if (p->op == EW_ROI_POOL) {
      const int32_t y0 = edge(floorf((float)ph * h.step) + h.from, p->height),
                    y1 = edge(ceilf((float)(ph + 1) * h.step) + h.from, p->height);
      const int32_t x0 = edge(floorf((float)pw * w.step) + w.from, p->width),
                    x1 = edge(ceilf((float)(pw + 1) * w.step) + w.from, p->width);
      if (y1 > y0 && x1 > x0)
        for (int64_t c = 0; c < p->channels; c++) {
          float most = -INFINITY;
          for (int32_t i = y0; i < y1; i++)
            EW_PLAIN_FOR (int32_t j = x0; j < x1; j++) {
              float v = image[c * plane + (int64_t)i * p->width + j];
              if (v > most || v != v) most = v; /* NaN stays */
            }
          y[c * cells] = most;
        }
      continue;
    }
    const float share = 1.0f / (float)(h.n * w.n > 1 ? h.n * w.n : 1);
    const float top = h.from + (float)ph * h.step, left = w.from + (float)pw * w.step;
    int32_t i0, i1, j0, j1;
    inside(h, top, p->height, &i0, &i1);
    inside(w, left, p->width, &j0, &j1);
    /* samples outside the image are zeros, which y already holds */
    if (i0 || i1 < h.n || j0 || j1 < w.n) first = false;
    for (int32_t i = i0; i < i1; i++)
      for (int32_t j = j0; j < j1; j++) {
        int32_t row[2] = {0}, column[2] = {0};
        float a[2], b[2], weight[4] = {0};
        const float v = top + ((float)i + 0.5f) * h.step / (float)h.n,
                    u = left + ((float)j + 0.5f) * w.step / (float)w.n;
        if (around(v, p->height, row, a) && around(u, p->width, column, b))
          for (int k = 0; k < 4; k++) weight[k] = a[k >> 1] * b[k & 1];
        int64_t at[4];
        for (int k = 0; k < 4; k++) at[k] = (int64_t)row[k >> 1] * p->width + column[k & 1];
        EW_PLAIN_FOR (int64_t c = 0; c < p->channels; c++) {
          float sum = 0, most = 0; /* of NaN only the first counts, as in ONNX's reference */
          for (int k = 0; k < 4; k++) {
            const float t = weight[k] * image[c * plane + at[k]];
            sum += t, most = !k || most < t ? t : most;
          }
          if (p->op == EW_ROI_AVERAGE)
            y[c * cells] += sum * share;
          else if (first || y[c * cells] < most)
            y[c * cells] = most;
        }
        first = false;
      }
  }
}

int32_t ew_k_roi_pool(ew_context *ctx, const ew_roi_pool_params *p, void *const *operand) {
  roi s = {ctx,
           p,
           operand[EW_ROI_POOL_X],
           operand[EW_ROI_POOL_REGION],
           operand[EW_ROI_POOL_INDEX],
           operand[EW_ROI_POOL_Y]};
  for (int32_t r = 0; r < p->regions; r++)
    if (s.index[r] < 0 || s.index[r] >= p->batch) return EW_E_INDEX;
  ew_parallel(ctx, p->regions, roi_task, &s);
  return EW_OK;
}
