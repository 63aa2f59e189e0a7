// groups: channels
// group: 64
//
// A workgroup computes a channel.

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
  let factor = scale(channel) / sqrt(spread + epsilon);
  let shift = bias(channel) - middle * factor;
  for (var i = lane; i < n; i += GROUP) {
    let at = place(channel, i);
    y_set(at, fma(x(at), factor, shift));
  }
  if (lane == 0u) {
    if (has_new_mean) {
      var v = middle;
      if (has_mean) { v = mean(channel) * momentum + middle * (1f - momentum); }
      new_mean_set(channel, v);
    }
    if (has_new_variance) {
      var v = spread;
      if (has_variance) { v = variance(channel) * momentum + spread * (1f - momentum); }
      new_variance_set(channel, v);
    }
  }
}
fn place(channel: u32, i: u32) -> u32 {
  return (i / inner * channels + channel) * inner + i % inner;
}
