/* Convolution tap by tap, in long rows, for few output channels per group:
 *
 * x is stored with its padding, de-interleaved by stride: what one tap reads for all positions of a
 * plane is then one long contiguous row, with a few unused elements between the rows of positions.
 */
#include "kernels/convolution/convolution.h"

__attribute__((noinline)) bool ew_long_rows_open(const ew_convolution *s, real *scratch,
                                                 int64_t floats, ew_long_rows *l) {
  static const int32_t one[3] = {1, 1, 1};
  const ew_window *w = &s->w;
  if (!scratch || s->taps > LONG_TAPS || s->x_volume > floats || s->y_volume > floats) return false;
  int64_t part = 1, parts = 1;
  for (int d = 0; d < 3; d++) {
    /* each factor is checked first, so that no product wraps */
    if (w->stride[d] > LONG_TAPS || (parts *= w->stride[d]) > LONG_TAPS) return false;
    int64_t size = w->y_size[d] + (w->taps[d] - 1) * (int64_t)w->dilation[d] / w->stride[d];
    if (size > floats || (part *= size) > floats) return false;
    l->y_size[d] = (int32_t)size;
  }
  l->w = (ew_window){w->x_size, l->y_size, w->stride, w->stride, one, w->pad};
  l->part = part, l->parts = parts, l->pitch = l->y_size[2];
  l->row =
      (((int64_t)w->y_size[0] - 1) * l->y_size[1] + w->y_size[1] - 1) * l->pitch + w->y_size[2];
  l->x = scratch, l->y = scratch + l->part * l->parts + AT_ONCE;
  if (l->part * l->parts + l->row + 2 * AT_ONCE > floats) return false;
  for (int64_t t = 0; t < s->taps; t++) {
    ew_place k = ew_place_of(t, w->taps);
    int64_t z = k.z * (int64_t)w->dilation[0], y = k.y * (int64_t)w->dilation[1],
            x = k.x * (int64_t)w->dilation[2];
    int64_t index =
        (z % w->stride[0] * w->stride[1] + y % w->stride[1]) * w->stride[2] + x % w->stride[2];
    l->offset[t] = index * part + (z / w->stride[0] * l->y_size[1] + y / w->stride[1]) * l->pitch +
                   x / w->stride[2];
  }
  ew_conv_fill(l->x, l->part * l->parts + AT_ONCE, 0), ew_conv_fill(l->y + l->row, AT_ONCE, 0);
  return true;
}
__attribute__((noinline)) void ew_long_rows_load_x(const ew_long_rows *l, const real *x) {
  const int32_t *stride = l->w.stride, *pad = l->w.pad, *size = l->y_size, *x_size = l->w.x_size;
  int32_t from[LONG_TAPS], to[LONG_TAPS];
  for (int32_t r = 0; r < stride[2]; r++)
    ew_window_range(&l->w, 2, (int64_t)r - pad[2], &from[r], &to[r]);
  real *part = l->x;
  for (int32_t rz = 0; rz < stride[0]; rz++)
    for (int32_t ry = 0; ry < stride[1]; ry++, part += stride[2] * l->part)
      for (int32_t iz = 0; iz < size[0]; iz++) {
        const int64_t z = iz * (int64_t)stride[0] + rz - pad[0];
        if (z < 0 || z >= x_size[0]) continue;
        for (int32_t iy = 0; iy < size[1]; iy++) {
          const int64_t y = iy * (int64_t)stride[1] + ry - pad[1];
          if (y < 0 || y >= x_size[1]) continue;
          const real *row = x + (z * x_size[1] + y) * x_size[2] - pad[2];
          real *line = part + ((int64_t)iz * size[1] + iy) * l->pitch;
          for (int32_t r = 0; r < stride[2]; r++, line += l->part)
            if (from[r] < to[r])
              ew_every(line + from[r], row + from[r] * (int64_t)stride[2] + r, stride[2],
                       to[r] - from[r]);
        }
      }
}
__attribute__((noinline)) void ew_long_rows_add_x(const ew_long_rows *l, real *x) {
  for (int64_t i = 0; i < l->parts; i++)
    ew_conv_tap(&l->w, x, 0, ew_place_of(i, l->w.taps), (ew_place){0, 0, 0}, (int32_t)l->part,
                l->x + i * l->part, true);
}
__attribute__((noinline)) void ew_long_rows_copy_y(const ew_long_rows *l, const ew_convolution *s,
                                                   real *y, bool out) {
  for (int32_t z = 0; z < s->w.y_size[0]; z++)
    for (int32_t i = 0; i < s->w.y_size[1]; i++) {
      real *row = l->y + ((int64_t)z * l->y_size[1] + i) * l->pitch;
      ew_every(out ? y : row, out ? row : y, 1, s->w.y_size[2]);
      y += s->w.y_size[2];
      if (!out) {
        if (row + l->pitch <= l->y + l->row)
          EW_PLAIN_FOR (int64_t j = s->w.y_size[2]; j < l->pitch; j++) row[j] = 0;
      }
    }
  for (int32_t z = 0; !out && z + 1 < s->w.y_size[0]; z++) /* gaps after the rows of a slice */
    ew_conv_fill(l->y + ((int64_t)z * l->y_size[1] + s->w.y_size[1]) * l->pitch,
                 (int64_t)(l->y_size[1] - s->w.y_size[1]) * l->pitch, 0);
}

/* Sums over taps, of `vectors` vectors from position j on, starting at `start` or, if NULL, at the
 * current values. */
EW_INLINE void long_sums(int vectors, const ew_long_rows *l, int64_t j, int64_t taps, const real *w,
                         const float *start, const ew_bounds *limit) {
  vf sum[8];
  for (int u = 0; u < vectors; u++) sum[u] = start ? vf_splat(*start) : vf_load(l->y + j + u * VF);
  for (int64_t t = 0; t < taps; t++) {
    const vf k = vf_load_splat(w + t);
    const real *x = l->x + l->offset[t] + j;
    for (int u = 0; u < vectors; u++) sum[u] = vf_fma(vf_load(x + u * VF), k, sum[u]);
  }
  for (int u = 0; u < vectors; u++) vf_store(l->y + j + u * VF, ew_bounded(limit, sum[u]));
}
__attribute__((noinline)) void ew_long_rows_forward(const ew_long_rows *l, int64_t taps,
                                                    const real *w, const float *start,
                                                    const ew_bounds *limit) {
  int64_t j = 0;
  /* enough independent sums to hide the latency of a multiply-add */
  for (; j + AT_ONCE < l->row; j += 2 * AT_ONCE) long_sums(8, l, j, taps, w, start, limit);
  if (j < l->row) long_sums(4, l, j, taps, w, start, limit);
}
