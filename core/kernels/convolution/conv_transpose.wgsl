// threads: batch * groups * c * volume(x_size)
//
// An invocation adds up the elements of y whose windows contain its element of x.

// the position of y whose tap k is at p, or -1
fn position(p: i32, k: i32, d: u32) -> i32 {
  let q = p + pad[d] - k * dilation[d];
  if (q < 0 || q % stride[d] != 0 || q / stride[d] >= y_size[d]) { return -1; }
  return q / stride[d];
}

fn element(i: u32) {
  let width = u32(x_size[2]);
  let height = u32(x_size[1]);
  let p2 = i32(i % width);
  let p1 = i32(i / width % height);
  let p0 = i32(i / (width * height) % u32(x_size[0]));
  let channel = i / (width * height * u32(x_size[0]));
  let group = channel / c % groups;
  let item = channel / (c * groups);
  let volume = u32(y_size[0] * y_size[1] * y_size[2]);
  let window = u32(taps[0] * taps[1] * taps[2]);
  var s = 0f;
  if (has_bias) { s = bias(group * c + channel % c); }
  for (var k0 = 0i; k0 < taps[0]; k0++) {
    let o0 = position(p0, k0, 0u);
    if (o0 < 0) { continue; }
    for (var k1 = 0i; k1 < taps[1]; k1++) {
      let o1 = position(p1, k1, 1u);
      if (o1 < 0) { continue; }
      for (var k2 = 0i; k2 < taps[2]; k2++) {
        let o2 = position(p2, k2, 2u);
        if (o2 < 0) { continue; }
        let at_y = u32((o0 * y_size[1] + o1) * y_size[2] + o2);
        let tap = u32((k0 * taps[1] + k1) * taps[2] + k2);
        for (var k = 0u; k < m; k++) {
          let at_w = ((group * m + k) * c + channel % c) * window + tap;
          s = fma(y(((item * groups + group) * m + k) * volume + at_y), w(at_w), s);
        }
      }
    }
  }
  x_set(i, s);
}
