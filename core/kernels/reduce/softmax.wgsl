// groups: rows
// group: 64
// alone: cols <= 64 and rows >= 64 or serial and cols <= 8192
//
// A workgroup computes a row. Results of all -infinity are NaN.

fn run(row: u32, lane: u32) {
  var high = LOWEST;
  for (var j = lane; j < cols; j += GROUP) { high = max(high, x(row * x_row + j)); }
  high = highest_of_lanes(lane, high);
  var s = 0f;
  for (var j = lane; j < cols; j += GROUP) { s += exp(x(row * x_row + j) - high); }
  s = sum_of_lanes(lane, s);
  for (var j = lane; j < cols; j += GROUP) {
    let v = x(row * x_row + j) - high;
    if (log != 0) { y_set(row * y_row + j, v - logarithm(s)); }
    else { y_set(row * y_row + j, exp(v) / s); }
  }
}
