/* Sliding windows over planes: traversal by rows of positions, and boxes (window.h). */
#include "kernels/convolution/window.h"

ew_place ew_place_of(int64_t i, const int32_t size[3]) {
  return (ew_place){(int32_t)(i / size[2] / size[1]), (int32_t)(i / size[2] % size[1]),
                    (int32_t)(i % size[2])};
}

void ew_window_taps(const ew_window *w, int d, int32_t o, int32_t *from, int32_t *to) {
  const int64_t at = (int64_t)o * w->stride[d] - w->pad[d], step = w->dilation[d],
                room = w->x_size[d] - at;
  int64_t first = at >= 0     ? 0
                  : step == 1 ? -at
                              : (step - 1 - at) / step,
          end = room <= 0   ? 0
                : step == 1 ? room
                            : (room - 1) / step + 1;
  if (end > w->taps[d]) end = w->taps[d];
  if (first > end) first = end;
  *from = (int32_t)first, *to = (int32_t)end;
}

void ew_window_rows(const ew_context *context, const ew_window *w, ew_window_row row, void *job) {
  for (int32_t oz = 0; oz < w->y_size[0]; oz++)
    for (int32_t oy = 0; oy < w->y_size[1]; oy++) {
      int32_t kz, end_z, first_y, end_y;
      ew_window_taps(w, 1, oy, &first_y, &end_y);
      for (ew_window_taps(w, 0, oz, &kz, &end_z); kz < end_z; kz++) {
        const int64_t z = oz * (int64_t)w->stride[0] + ew_window_at(w, 0, kz);
        for (int32_t ky = first_y; ky < end_y; ky++) {
          const int64_t y = oy * (int64_t)w->stride[1] + ew_window_at(w, 1, ky);
          if (ew_stopping(context)) return;
          for (int32_t kx = 0; kx < w->taps[2]; kx++) {
            int64_t x = ew_window_at(w, 2, kx);
            int32_t from, to;
            ew_window_range(w, 2, x, &from, &to);
            if (from < to)
              row(job, to - from,
                  (z * w->x_size[1] + y) * w->x_size[2] + from * (int64_t)w->stride[2] + x,
                  w->stride[2], ((int64_t)oz * w->y_size[1] + oy) * w->y_size[2] + from,
                  (kz * w->taps[1] + ky) * w->taps[2] + kx);
          }
        }
      }
    }
}

bool ew_box_of(const ew_window *w, int64_t at, int32_t n, ew_window_box *b) {
  ew_place first = ew_place_of(at, w->y_size), last = ew_place_of(at + n - 1, w->y_size);
  if (first.z != last.z) first.y = 0, last.y = w->y_size[1] - 1;
  if (first.z != last.z || first.y != last.y) first.x = 0, last.x = w->y_size[2] - 1;
  const int64_t more[3] = {last.z - first.z, last.y - first.y, last.x - first.x};
  int64_t all = 1;
  for (int d = 0; d < 3; d++) {
    int64_t size = more[d] * w->stride[d] + (w->taps[d] - 1) * (int64_t)w->dilation[d] + 1;
    if (d == 2) size = ((size - 1) / w->stride[2] + 1) * w->stride[2];
    if (size > EW_BOX_FLOATS || (all *= size) > EW_BOX_FLOATS) return false;
    b->size[d] = (int32_t)size;
  }
  b->w = w, b->first = first, b->pitch = b->size[2] / w->stride[2];
  return true;
}

/* True if some tap reads the element `at` elements after the start of the box, along dimension d.
 */
static bool is_met(const ew_window *w, int d, int32_t at) {
  bool met = w->stride[d] == 1;
  for (int32_t k = 0; k < w->taps[d] && !met; k++)
    met = (at - k * (int64_t)w->dilation[d]) % w->stride[d] == 0;
  return met;
}

void ew_fill_box(const ew_window_box *b, const real *x) {
  const ew_window *w = b->w;
  const int32_t step = w->stride[2];
  const int64_t z0 = b->first.z * (int64_t)w->stride[0] - w->pad[0],
                y0 = b->first.y * (int64_t)w->stride[1] - w->pad[1],
                x0 = b->first.x * (int64_t)step - w->pad[2];
  for (int32_t r = 0; r < step; r++) {
    /* elements x0 + r + i * step for i in 0..pitch-1; those from `begin` to `end` lie inside x */
    const int64_t at = x0 + r, room = w->x_size[2] - 1 - at;
    int64_t begin = at >= 0     ? 0
                    : step == 1 ? -at
                                : (step - 1 - at) / step,
            end = room < 0    ? 0
                  : step == 1 ? room + 1
                              : room / step + 1;
    if (step > 1 && !is_met(w, 2, r)) continue;
    if (end > b->pitch) end = b->pitch;
    if (begin >= end) begin = end = b->pitch;
    for (int32_t z = 0; z < b->size[0]; z++) {
      const bool slice = z0 + z >= 0 && z0 + z < w->x_size[0] && begin < end;
      if (!is_met(w, 0, z)) continue;
      for (int32_t y = 0; y < b->size[1]; y++) {
        real *line = b->at + (z * b->size[1] + y) * b->size[2] + r * b->pitch;
        if (!is_met(w, 1, y)) continue;
        const bool inside = slice && y0 + y >= 0 && y0 + y < w->x_size[1];
        const int32_t first = inside ? (int32_t)begin : b->pitch,
                      last = inside ? (int32_t)end : b->pitch;
        EW_PLAIN_FOR (int32_t i = 0; i < first; i++) line[i] = 0;
        if (inside)
          ew_every(line + first,
                   x + ((z0 + z) * w->x_size[1] + y0 + y) * w->x_size[2] + at + begin * step, step,
                   last - first);
        EW_PLAIN_FOR (int32_t i = last; i < b->pitch; i++) line[i] = 0;
      }
    }
  }
}
