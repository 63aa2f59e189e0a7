// groups: rows
// group: 64
// alone: cols <= 64 and rows >= 64 or serial and cols <= 8192
// stages: columns
//
// A workgroup computes a row of dx. The sums over rows, dscale and dbias, come first
// (norm_grad.columns.wgsl), since dx may overwrite x or dy.

fn factor_of(j: u32) -> f32 {
  if (has_scale) { return scale(j) + scale_offset; }
  return 1f;
}

fn run(row: u32, lane: u32) {
  if (!has_dx) { return; }
  let from_x = row * x_row;
  let from_dy = row * dy_row;
  var middle = 0f;
  if (rms == 0) {
    var s = 0f;
    for (var j = lane; j < cols; j += GROUP) { s += x(from_x + j); }
    middle = sum_of_lanes(lane, s) / f32(cols);
  }
  var q = 0f;
  var sum = 0f;
  var along = 0f;
  for (var j = lane; j < cols; j += GROUP) {
    let d = x(from_x + j) - middle;
    let h = dy(from_dy + j) * factor_of(j);
    q += d * d;
    sum += h;
    along += h * d;
  }
  let f = 1f / sqrt(sum_of_lanes(lane, q) / f32(cols) + epsilon);
  sum = sum_of_lanes(lane, sum);
  along = sum_of_lanes(lane, along);
  var first = 0f;
  if (rms == 0) { first = f * sum / f32(cols); }
  let second = f * f * f * along / f32(cols);
  for (var j = lane; j < cols; j += GROUP) {
    var r = dy(from_dy + j) * factor_of(j) * f - first - (x(from_x + j) - middle) * second;
    if (has_more) { r += more(row * cols + j); }
    dx_set(row * cols + j, r);
  }
}
