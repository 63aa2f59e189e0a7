// groups: ceil_div(cols, 64)
// group: 64
// when: has_dscale or has_dbias
//
// A workgroup adds up 64 columns of dscale and dbias over all rows, in order. The statistics of 64
// rows at a time are computed by one invocation each.

var<workgroup> means: array<f32, GROUP>;
var<workgroup> factors: array<f32, GROUP>;

fn run(at: u32, lane: u32) {
  let column = at * GROUP + lane;
  var scale_sum = 0f;
  var bias_sum = 0f;
  for (var first = 0u; first < rows; first += GROUP) {
    let row = first + lane;
    if (row < rows) {
      var middle = 0f;
      if (rms == 0) {
        for (var j = 0u; j < cols; j++) { middle += x(row * x_row + j); }
        middle /= f32(cols);
      }
      var q = 0f;
      for (var j = 0u; j < cols; j++) {
        let d = x(row * x_row + j) - middle;
        q += d * d;
      }
      means[lane] = middle;
      factors[lane] = 1f / sqrt(q / f32(cols) + epsilon);
    }
    workgroupBarrier();
    if (column < cols) {
      for (var t = 0u; t < min(GROUP, rows - first); t++) {
        let g = dy((first + t) * dy_row + column);
        scale_sum += g * (x((first + t) * x_row + column) - means[t]) * factors[t];
        bias_sum += g;
      }
    }
    workgroupBarrier();
  }
  if (column < cols) {
    if (has_dscale) { dscale_set(column, scale_sum); }
    if (has_dbias) { dbias_set(column, bias_sum); }
  }
}
