// threads: ceil_div(n, 16)
//
// Philox-4x32-7, as in random.c: word w of block 4 b + l belongs to element 16 b + 4 w + l. An
// invocation computes the four blocks of 16 elements.

fn element(i: u32) {
  let key = seed(0u);
  for (var l = 0u; l < 4u; l++) {
    var c = vec4u(4u * i + l, 0u, bitcast<u32>(i32(stream)), 0u);
    var k0 = key.x;
    var k1 = key.y;
    for (var round_ = 0u; round_ < 7u; round_++) {
      let p = word_product(c.x, 0xd2511f53u);
      let q = word_product(c.z, 0xcd9e8d57u);
      c = vec4u(q.y ^ c.y ^ k0, q.x, p.y ^ c.w ^ k1, p.x);
      k0 += 0x9e3779b9u;
      k1 += 0xbb67ae85u;
    }
    for (var w = 0u; w < 4u; w++) {
      let at = 16u * i + 4u * w + l;
      if (at >= n) { break; }
      if (has_x) {
        y_set(at, select(0f, x(at) * scale, c[w] >= bitcast<u32>(i32(threshold))));
      } else { y_set(at, f32(c[w] >> 8u) * (scale * 5.9604645e-8f) + offset); }
    }
  }
}
