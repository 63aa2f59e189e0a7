// groups: rows
// group: 64
// alone: cols <= 64 and rows >= 64 or serial and cols <= 8192
// alike: any
//
// Columns outside of [begin, end) are zero in both outputs, and so is a row of all -infinity.

fn run(row: u32, lane: u32) {
  let reach = first + row % period;
  let end = min(reach, cols);
  var begin = 0u;
  if (span > 0 && reach > span) { begin = min(reach - span, end); }
  let at = row * cols;
  var high = LOWEST;
  for (var j = begin + lane; j < end; j += GROUP) { high = max(high, x(at + j) * scale); }
  high = highest_of_lanes(lane, high);
  var s = 0f;
  var p = 0f;
  for (var j = begin + lane; j < end; j += GROUP) {
    let e = exp(x(at + j) * scale - high);
    s += e;
    p += e * dy(at + j);
  }
  s = sum_of_lanes(lane, s);
  p = sum_of_lanes(lane, p);
  let factor = select(1f / s, 0f, s == 0f);
  let middle = p * factor;
  for (var j = lane; j < cols; j += GROUP) {
    var v = 0f;
    var d = 0f;
    if (j >= begin && j < end) {
      v = exp(x(at + j) * scale - high) * factor;
      d = v * (dy(at + j) - middle) * slope;
    }
    y_set(at + j, v);
    dx_set(at + j, d);
  }
}
