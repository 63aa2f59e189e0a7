// groups: channels
// group: 64
//
// A workgroup computes a channel; batch_norm.c has the formulas.

fn run(channel: u32, lane: u32) {
  var middle = 0f;
  var spread = 0f;
  let n = u32(batch * inner);
  if (train != 0) {
    for (var i = lane; i < n; i += GROUP) { middle += x(place(channel, i)); }
    middle = sum_of_lanes(lane, middle) / f32(n);
    for (var i = lane; i < n; i += GROUP) {
      let d = x(place(channel, i)) - middle;
      spread += d * d;
    }
    spread = sum_of_lanes(lane, spread) / f32(n);
  } else {
    middle = mean(channel);
    spread = variance(channel);
  }
  let factor = 1f / sqrt(spread + epsilon);
  var sum = 0f;
  var along = 0f;
  for (var i = lane; i < n; i += GROUP) {
    let at = place(channel, i);
    sum += dy(at);
    along += (x(at) - middle) * dy(at);
  }
  sum = sum_of_lanes(lane, sum);
  along = factor * sum_of_lanes(lane, along);
  if (lane == 0u) {
    if (has_dbias) { dbias_set(channel, sum); }
    if (has_dscale) { dscale_set(channel, along); }
  }
  if (!has_dx) { return; }
  var slope = 0f;
  var shift = 0f;
  if (train != 0) {
    slope = -scale(channel) * factor * factor * (along / f32(n));
    shift = -scale(channel) * factor * (sum / f32(n)) - slope * middle;
  }
  for (var i = lane; i < n; i += GROUP) {
    let at = place(channel, i);
    dx_set(at, fma(dy(at), scale(channel) * factor, fma(x(at), slope, shift)));
  }
}
fn place(channel: u32, i: u32) -> u32 {
  return (i / inner * channels + channel) * inner + i % inner;
}
