// threads: planes * volume(y_size)
//
// An invocation computes one element of y.

// taps of position o that are within [-pad, x_size + tail)
fn counted(o: u32, d: u32) -> i32 {
  let first = i32(o) * stride[d] - pad[d];
  return min((x_size[d] - first + tail[d] - 1) / dilation[d] + 1, taps[d]);
}

fn element(i: u32) {
  let width = u32(y_size[2]);
  let height = u32(y_size[1]);
  let o2 = i % width;
  let o1 = i / width % height;
  let o0 = i / (width * height) % u32(y_size[0]);
  let plane = i / (width * height * u32(y_size[0]));
  let from_x = plane * u32(x_size[0] * x_size[1] * x_size[2]);
  var s = 0f;
  var best = 0u;
  var count = 0i;
  for (var k0 = 0i; k0 < taps[0]; k0++) {
    let p0 = i32(o0) * stride[0] + k0 * dilation[0] - pad[0];
    if (p0 < 0 || p0 >= x_size[0]) { continue; }
    for (var k1 = 0i; k1 < taps[1]; k1++) {
      let p1 = i32(o1) * stride[1] + k1 * dilation[1] - pad[1];
      if (p1 < 0 || p1 >= x_size[1]) { continue; }
      for (var k2 = 0i; k2 < taps[2]; k2++) {
        let p2 = i32(o2) * stride[2] + k2 * dilation[2] - pad[2];
        if (p2 < 0 || p2 >= x_size[2]) { continue; }
        let at = from_x + u32((p0 * x_size[1] + p1) * x_size[2] + p2);
        let v = x(at);
        if (op != 0) { s += v; }
        else if (count == 0 || v > s || (is_nan(v) && !is_nan(s))) {
          s = v;
          best = at;
        }
        count++;
      }
    }
  }
  if (op == 0) {
    if (count == 0) { s = infinity(i + 1u); }
    if (has_index) { index_set(i, vec2u(best, 0u)); }
  } else if (op == 1) {
    if (include_pad != 0) { count = counted(o0, 0u) * counted(o1, 1u) * counted(o2, 2u); }
    s /= f32(count);
  }
  y_set(i, s);
}
