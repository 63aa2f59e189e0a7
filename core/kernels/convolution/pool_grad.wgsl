// threads: planes
//
// An invocation adds up the gradients of a plane, whose windows may overlap, in their order.

// taps of position o that are within [-pad, x_size + tail)
fn counted(o: i32, d: u32) -> i32 {
  let first = o * stride[d] - pad[d];
  return min((x_size[d] - first + tail[d] - 1) / dilation[d] + 1, taps[d]);
}
// taps of position o that are within x
fn within(o: i32, d: u32) -> i32 {
  var count = 0i;
  for (var t = 0i; t < taps[d]; t++) {
    let p = o * stride[d] + t * dilation[d] - pad[d];
    if (p >= 0 && p < x_size[d]) { count++; }
  }
  return count;
}
fn divisor(o: i32, d: u32) -> f32 {
  if (include_pad != 0) { return f32(counted(o, d)); }
  return f32(within(o, d));
}

fn element(i: u32) {
  let first = i * u32(x_size[0] * x_size[1] * x_size[2]);
  for (var j = 0u; j < u32(x_size[0] * x_size[1] * x_size[2]); j++) { dx_set(first + j, 0f); }
  var at_y = i * u32(y_size[0] * y_size[1] * y_size[2]);
  for (var o0 = 0i; o0 < y_size[0]; o0++) {
    for (var o1 = 0i; o1 < y_size[1]; o1++) {
      for (var o2 = 0i; o2 < y_size[2]; o2++) {
        window(o0, o1, o2, first, dy(at_y));
        at_y++;
      }
    }
  }
}

fn window(o0: i32, o1: i32, o2: i32, first: u32, slope: f32) {
  var share = slope;
  if (op == 1) { share = slope / (divisor(o0, 0u) * divisor(o1, 1u) * divisor(o2, 2u)); }
  var best = 0xffffffffu;
  var most = 0f;
  for (var k0 = 0i; k0 < taps[0]; k0++) {
    let p0 = o0 * stride[0] + k0 * dilation[0] - pad[0];
    if (p0 < 0 || p0 >= x_size[0]) { continue; }
    for (var k1 = 0i; k1 < taps[1]; k1++) {
      let p1 = o1 * stride[1] + k1 * dilation[1] - pad[1];
      if (p1 < 0 || p1 >= x_size[1]) { continue; }
      for (var k2 = 0i; k2 < taps[2]; k2++) {
        let p2 = o2 * stride[2] + k2 * dilation[2] - pad[2];
        if (p2 < 0 || p2 >= x_size[2]) { continue; }
        let at = first + u32((p0 * x_size[1] + p1) * x_size[2] + p2);
        if (op != 0) {
          dx_set(at, dx(at) + share);
          continue;
        }
        let v = x(at);
        if (best == 0xffffffffu || v > most || (is_nan(v) && !is_nan(most))) {
          best = at;
          most = v;
        }
      }
    }
  }
  if (op == 0 && best != 0xffffffffu) { dx_set(best, dx(best) + share); }
}
