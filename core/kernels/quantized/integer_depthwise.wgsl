// threads: batch * volume(y_size) * channels
// apply: finished = finished_{y_type}

fn element(i: u32) {
  let channel = i % channels;
  let place = i / channels;
  let o2 = i32(place % u32(y_size[2]));
  let o1 = i32(place / u32(y_size[2]) % u32(y_size[1]));
  let o0 = i32(place / u32(y_size[2] * y_size[1]) % u32(y_size[0]));
  let item = place / u32(y_size[2] * y_size[1] * y_size[0]);
  var za = 0i;
  var zb = 0i;
  if (has_a_zero) { za = i32(a_zero(0u)); }
  if (has_b_zero) { zb = i32(b_zero(select(0u, channel, b_zeros > 1))); }
  var s = 0i;
  if (has_sum_bias) { s = sum_bias(channel); }
  for (var k0 = 0i; k0 < taps[0]; k0++) {
    let p0 = o0 * stride[0] + k0 * dilation[0] - pad[0];
    if (p0 < 0 || p0 >= x_size[0]) { continue; }
    for (var k1 = 0i; k1 < taps[1]; k1++) {
      let p1 = o1 * stride[1] + k1 * dilation[1] - pad[1];
      if (p1 < 0 || p1 >= x_size[1]) { continue; }
      for (var k2 = 0i; k2 < taps[2]; k2++) {
        let p2 = o2 * stride[2] + k2 * dilation[2] - pad[2];
        if (p2 < 0 || p2 >= x_size[2]) { continue; }
        let row = (item * u32(x_size[0]) + u32(p0)) * u32(x_size[1]) + u32(p1);
        let tap = u32((k0 * taps[1] + k1) * taps[2] + k2);
        let v = i32(a((row * u32(x_size[2]) + u32(p2)) * channels + channel)) - za;
        s += v * (i32(w(tap * channels + channel)) - zb);
      }
    }
  }
  y_set(i, finished(s, channel));
}
fn scaled(s: i32, channel: u32) -> f32 {
  var v = f32(s);
  if (has_a_scale) { v *= a_scale(0u); }
  if (has_factor) { v *= factor(select(0u, channel, factors > 1)); }
  return v;
}
fn rounded(s: i32, channel: u32, zero: f32) -> f32 {
  return round(clamp(scaled(s, channel), f32(low) - zero, f32(high) - zero)) + zero;
}
fn finished_f(s: i32, channel: u32) -> f32 { return scaled(s, channel); }
fn finished_i(s: i32, channel: u32) -> i32 {
  if (y_type == 6) { return s; }
  return i32(rounded(s, channel, f32(y_zero(0u))));
}
fn finished_u(s: i32, channel: u32) -> u32 { return u32(rounded(s, channel, f32(y_zero(0u)))); }
