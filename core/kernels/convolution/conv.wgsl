// threads: batch * groups * m * volume(y_size)
// apply: activate = activate_{activation}
//
// An invocation computes one element of y from memory.

fn element(i: u32) {
  let width = u32(y_size[2]);
  let height = u32(y_size[1]);
  let o2 = i % width;
  let o1 = i / width % height;
  let o0 = i / (width * height) % u32(y_size[0]);
  let channel = i / (width * height * u32(y_size[0]));
  let group = channel / m % groups;
  let item = channel / (m * groups);
  let volume = u32(x_size[0] * x_size[1] * x_size[2]);
  var at_w = channel % (m * groups) * c * u32(taps[0] * taps[1] * taps[2]);
  var s = 0f;
  for (var k = 0u; k < c; k++) {
    let from_x = item * x_batch + (group * c + k) * volume;
    for (var k0 = 0i; k0 < taps[0]; k0++) {
      let p0 = i32(o0) * stride[0] + k0 * dilation[0] - pad[0];
      for (var k1 = 0i; k1 < taps[1]; k1++) {
        let p1 = i32(o1) * stride[1] + k1 * dilation[1] - pad[1];
        let inside = p0 >= 0 && p0 < x_size[0] && p1 >= 0 && p1 < x_size[1];
        let row = from_x + u32((p0 * x_size[1] + p1) * x_size[2]);
        for (var k2 = 0i; k2 < taps[2]; k2++) {
          let p2 = i32(o2) * stride[2] + k2 * dilation[2] - pad[2];
          if (inside && p2 >= 0 && p2 < x_size[2]) { s = fma(x(row + u32(p2)), w(at_w), s); }
          at_w++;
        }
      }
    }
  }
  if (has_bias) { s += bias(channel % (m * groups)); }
  s = activate(s);
  if (has_residual) { s += residual(i); }
  y_set(i, s);
}
