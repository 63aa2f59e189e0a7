// groups: rows
// group: 64
// alone: classes <= 64 and rows >= 64 or serial and classes <= 8192
//
// A workgroup computes a row.

fn run(row: u32, lane: u32) {
  let at = row * x_row;
  let y = label_int(row);
  let ignored = has_ignore != 0 && y == i32(ignore_index);
  var high = LOWEST;
  for (var j = lane; j < classes; j += GROUP) { high = max(high, x(at + j)); }
  high = highest_of_lanes(lane, high);
  var s = 0f;
  var weighted = 0f;
  var total = 0f;
  for (var j = lane; j < classes; j += GROUP) {
    let v = x(at + j);
    s += exp(v - high);
    if (smoothing > 0f) {
      var w = 1f;
      if (has_weight) { w = weight(j); }
      weighted += w * v;
      total += w;
    }
  }
  s = sum_of_lanes(lane, s);
  weighted = sum_of_lanes(lane, weighted);
  total = sum_of_lanes(lane, total);
  if (lane != 0u) { return; }
  if (ignored) {
    loss_set(row, 0f);
    counted_set(row, 0f);
    lse_set(row, 0f);
    return;
  }
  if (y < 0 || y >= i32(classes)) {
    fail(y);
    return;
  }
  var w = 1f;
  if (has_weight) { w = weight(u32(y)); }
  var sum = high + log(s);
  if (nll != 0) { sum = 0f; }
  var r = w * (sum - x(at + u32(y)));
  if (smoothing > 0f) {
    r = (1f - smoothing) * r + smoothing / f32(classes) * (total * sum - weighted);
  }
  loss_set(row, r);
  counted_set(row, w);
  lse_set(row, sum);
}
