// groups: rows
// group: 64

fn run(row: u32, lane: u32) {
  let at = row * x_row;
  let y = label_int(row);
  let ignored = has_ignore != 0 && y == i32(ignore_index);
  if (!ignored && (y < 0 || y >= i32(classes))) {
    if (lane == 0u) { fail(y); }
    return;
  }
  var g = 0f;
  var w = 0f;
  var total = f32(classes);
  if (has_weight && smoothing > 0f) {
    total = 0f;
    for (var j = 0u; j < classes; j++) { total += weight(j); }
  }
  if (!ignored) {
    g = dloss(row * dloss_row);
    w = g * (1f - smoothing);
    if (has_weight) { w *= weight(u32(y)); }
  }
  let b = g * smoothing / f32(classes);
  var f = w + b * total;
  if (nll != 0) { f = 0f; }
  let shift = lse(row);
  for (var j = lane; j < classes; j += GROUP) {
    var d = -b;
    if (has_weight) { d *= weight(j); }
    // an ignored row may contain anything: it is not read
    if (f != 0f) { d += f * exp(x(at + j) - shift); }
    if (!ignored && j == u32(y)) { d -= w; }
    dx_set(row * classes + j, d);
  }
}
