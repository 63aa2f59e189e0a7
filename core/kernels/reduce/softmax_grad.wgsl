// groups: rows
// group: 64
// alone: cols <= 64 and rows >= 64 or serial and cols <= 8192

fn run(row: u32, lane: u32) {
  var s = 0f;
  for (var j = lane; j < cols; j += GROUP) {
    let g = dy(row * dy_row + j);
    if (log != 0) { s += g; } else { s += g * y(row * y_row + j); }
  }
  s = sum_of_lanes(lane, s);
  for (var j = lane; j < cols; j += GROUP) {
    let g = dy(row * dy_row + j);
    let v = y(row * y_row + j);
    if (log != 0) { dx_set(row * cols + j, g - exp(v) * s); }
    else { dx_set(row * cols + j, (g - s) * v); }
  }
}
