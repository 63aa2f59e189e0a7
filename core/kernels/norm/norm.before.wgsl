// computes: y
// when: rows == 1 and has_skip + has_skip_bias + has_sum + has_mean + has_inv_std == 0
//
// The row as the body of a step after it reads it, which needs no memory for it then: all
// invocations of a workgroup call `prepare`, and `value` is an element.

var<private> middle: f32;
var<private> factor: f32;

fn prepare(lane: u32) {
  middle = 0f;
  if (rms == 0) {
    var s = 0f;
    for (var j = lane; j < cols; j += GROUP) { s += x(j); }
    middle = sum_of_lanes(lane, s) / f32(cols);
  }
  var q = 0f;
  for (var j = lane; j < cols; j += GROUP) {
    let d = x(j) - middle;
    q += d * d;
  }
  factor = 1f / sqrt(sum_of_lanes(lane, q) / f32(cols) + epsilon);
}

fn value(i: u32) -> f32 {
  var r = (x(i) - middle) * factor;
  if (has_scale) { r *= scale(i) + scale_offset; }
  if (has_bias) { r += bias(i); }
  return r;
}
