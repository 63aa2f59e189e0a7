// groups: groups * m * c * volume(taps)
// group: 64
//
// A workgroup computes an element of dw, a sum over items and positions.

fn run(at: u32, lane: u32) {
  let window = u32(taps[0] * taps[1] * taps[2]);
  let tap = i32(at % window);
  let k2 = tap % taps[2];
  let k1 = tap / taps[2] % taps[1];
  let k0 = tap / (taps[2] * taps[1]);
  let channel = at / window % c;
  let row = at / (window * c);
  let volume = u32(y_size[0] * y_size[1] * y_size[2]);
  let size = u32(x_size[0] * x_size[1] * x_size[2]);
  var s = 0f;
  for (var i = lane; i < batch * volume; i += GROUP) {
    let item = i / volume;
    let o = i32(i % volume);
    let p2 = o % y_size[2] * stride[2] + k2 * dilation[2] - pad[2];
    let p1 = o / y_size[2] % y_size[1] * stride[1] + k1 * dilation[1] - pad[1];
    let p0 = o / (y_size[2] * y_size[1]) * stride[0] + k0 * dilation[0] - pad[0];
    if (p0 >= 0 && p0 < x_size[0] && p1 >= 0 && p1 < x_size[1] && p2 >= 0 && p2 < x_size[2]) {
      let from_x = item * x_batch + (row / m * c + channel) * size;
      let v = x(from_x + u32((p0 * x_size[1] + p1) * x_size[2] + p2));
      s = fma(v, dy((row * batch + item) * volume + u32(o)), s);
    }
  }
  s = sum_of_lanes(lane, s);
  if (lane == 0u) { dw_set(at, s); }
}
