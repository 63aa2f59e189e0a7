// threads: batch * positions
// when: has_y
//
// An invocation computes all channels of one position.

var<private> place_: array<array<i32, 4>, 3>;
var<private> weight_: array<array<f32, 4>, 3>;

fn reflected(u: f32, bottom: f32, top: f32) -> f32 {
  let span = top - bottom;
  var v = abs(u - bottom);
  if (span <= 0f) { return bottom; }
  let turns = floor(v / span);
  v -= turns * span;
  if (turns - 2f * floor(turns * 0.5f) != 0f) { return top - v; }
  return bottom + v;
}
fn folded(u: f32, size: f32) -> f32 {
  if (align != 0) { return reflected(u, 0f, size - 1f); }
  return reflected(u, -0.5f, size - 0.5f);
}
fn inside(p: f32, size: f32) -> i32 {
  var v = p;
  if (padding == 2) { v = folded(v, size); }
  if (padding != 0) { v = clamp(v, 0f, size - 1f); }
  let at = i32(round(v));
  return select(-1i, at, at >= 0 && at < i32(size));
}
fn cubic(f: f32) -> f32 {
  let d = abs(f);
  if (d <= 1f) { return (1.25f * d - 2.25f) * d * d + 1f; }
  return ((-0.75f * d + 3.75f) * d - 6f) * d + 3f;
}
// sets the elements along dimension d and their weights; returns their number
fn taps_of(d: u32, coordinate: f32, size: f32) -> u32 {
  var u = ((coordinate + 1f) * size - 1f) * 0.5f;
  if (align != 0) { u = (coordinate + 1f) * 0.5f * (size - 1f); }
  if (is_nan(u)) { u = -1073741824f; }
  u = clamp(u, -1073741824f, 1073741824f);
  if (mode != 2 && padding != 0) {
    if (padding == 2) { u = folded(u, size); }
    u = clamp(u, 0f, size - 1f);
  }
  if (mode == 0) {
    place_[d][0] = inside(round(u), size);
    weight_[d][0] = 1f;
    return 1u;
  }
  let base = floor(u);
  let f = u - base;
  if (mode == 1) {
    place_[d][0] = inside(base, size);
    place_[d][1] = inside(base + 1f, size);
    weight_[d][0] = 1f - f;
    weight_[d][1] = f;
    return 2u;
  }
  for (var t = 0u; t < 4u; t++) {
    let shift = f32(t) - 1f;
    place_[d][t] = inside(base + shift, size);
    weight_[d][t] = cubic(f - shift);
  }
  return 4u;
}

fn element(i: u32) {
  let item = i / positions;
  var extents = x_size;
  var counts = vec3u(1u);
  for (var d = 0u; d < 3u; d++) {
    place_[d][0] = 0i;
    weight_[d][0] = 1f;
    if (d < dims) { counts[d] = taps_of(d, grid(i * dims + d), f32(extents[2u - d])); }
  }
  let volume = u32(x_size[0] * x_size[1] * x_size[2]);
  for (var c = 0u; c < channels; c++) {
    let plane = (item * channels + c) * volume;
    var s = 0f;
    for (var t2 = 0u; t2 < counts.z; t2++) {
      for (var t1 = 0u; t1 < counts.y; t1++) {
        for (var t0 = 0u; t0 < counts.x; t0++) {
          let p2 = place_[2][t2];
          let p1 = place_[1][t1];
          let p0 = place_[0][t0];
          if (p0 < 0 || p1 < 0 || p2 < 0) { continue; }
          let at = u32((p2 * x_size[1] + p1) * x_size[2] + p0);
          s += weight_[0][t0] * weight_[1][t1] * weight_[2][t2] * x(plane + at);
        }
      }
    }
    y_set((item * channels + c) * positions + i % positions, s);
  }
}
