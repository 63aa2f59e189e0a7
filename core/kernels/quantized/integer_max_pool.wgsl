// threads: batch * volume(y_size) * channels
// apply: lowest = lowest_{type}

fn element(i: u32) {
  let channel = i % channels;
  let place = i / channels;
  let o2 = i32(place % u32(y_size[2]));
  let o1 = i32(place / u32(y_size[2]) % u32(y_size[1]));
  let o0 = i32(place / u32(y_size[2] * y_size[1]) % u32(y_size[0]));
  let item = place / u32(y_size[2] * y_size[1] * y_size[0]);
  var most = lowest();
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
        most = max(most, x((row * u32(x_size[2]) + u32(p2)) * channels + channel));
      }
    }
  }
  y_set(i, most);
}
fn lowest_u() -> u32 { return 0u; }
fn lowest_i() -> i32 { return -128i; }
