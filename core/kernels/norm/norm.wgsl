// groups: rows
// group: 64
// alone: cols <= 64 and rows >= 64 or serial and cols <= 8192
// alike: any
//
// A workgroup computes a row: its sum, then the variance of centred values, then y.

fn value(row: u32, j: u32) -> f32 {
  var v = x(row * x_row + j);
  if (has_skip) { v += skip(row * skip_row + j); }
  if (has_skip_bias) { v += skip_bias(j); }
  return v;
}

fn run(row: u32, lane: u32) {
  var middle = 0f;
  if (rms == 0) {
    var s = 0f;
    for (var j = lane; j < cols; j += GROUP) { s += value(row, j); }
    middle = sum_of_lanes(lane, s) / f32(cols);
  }
  var q = 0f;
  for (var j = lane; j < cols; j += GROUP) {
    let d = value(row, j) - middle;
    q += d * d;
  }
  let factor = 1f / sqrt(sum_of_lanes(lane, q) / f32(cols) + epsilon);
  for (var j = lane; j < cols; j += GROUP) {
    let v = value(row, j);
    var r = (v - middle) * factor;
    if (has_scale) { r *= scale(j) + scale_offset; }
    if (has_bias) { r += bias(j); }
    if (has_sum) { sum_set(row * y_row + j, v); }
    y_set(row * y_row + j, r);
  }
  if (lane == 0u) {
    if (has_mean) { mean_set(row, middle); }
    if (has_inv_std) { inv_std_set(row, factor); }
  }
}
