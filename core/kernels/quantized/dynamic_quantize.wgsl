// groups: 1
// group: 256
//
// One workgroup: the range of all elements is known before the first is written.

fn run(at: u32, lane: u32) {
  var low = 0f;
  var high = 0f;
  for (var i = lane; i < n; i += GROUP) {
    low = max(low, -x(i));
    high = max(high, x(i));
  }
  low = -highest_of_lanes(lane, low);
  high = highest_of_lanes(lane, high);
  var step = 1f;
  if (low != high) { step = (high - low) / 255f; }
  let middle = round(clamp(-low / step, 0f, 255f));
  for (var i = lane; i < n; i += GROUP) {
    var v = x(i) / step;
    if (is_nan(v)) { v = -1000f; }
    y_set(i, u32(clamp(round(clamp(v, -1000f, 1000f)) + middle, 0f, 255f)));
  }
  if (lane == 0u) {
    scale_set(0u, step);
    zero_set(0u, u32(middle));
  }
}
