// groups: batch0 * batch1 * ceil_div(m, 64) * ceil_div(n, 64)
// group: 64
// when: (serial or min(m, n) >= 64) and batch0 * batch1 * m * n >= 4096 * (1 if serial else 64)
// apply: number = number_{b_type}; activate = activate_{activation}
//
// Where 64 workgroups have enough to do, an invocation computes 8 x 8 elements: it reads 16 elements
// for 64 products, instead of 8 for 16, and reads are what products wait for.

fn run(at: u32, lane: u32) {
  let across = ceil_div(n, 64u);
  let down = ceil_div(m, 64u);
  let batch = at / (across * down);
  let p = batch / batch1;
  let q = batch - p * batch1;
  let row0 = (at / across % down) * 64u + lane / 8u * 8u;
  let column0 = (at % across) * 64u + lane % 8u * 8u;
  if (row0 >= m || column0 >= n) { return; }
  var from_a = p * a0 + q * a1 + four(row0, a_row);
  var from_b = p * b0 + q * b1 + four(column0, b_col);
  var s = mat4x4f();
  var s1 = s;
  var s2 = s;
  var s3 = s;
  for (var d = 0u; d < k; d++) {
    let t = a_of(from_a);
    let u = a_of(from_a + 4u * a_row);
    let v = b_of(from_b);
    let w = b_of(from_b + 4u * b_col);
    s = added(s, t, v);
    s1 = added(s1, t, w);
    s2 = added(s2, u, v);
    s3 = added(s3, u, w);
    from_a += vec4u(a_col);
    from_b += vec4u(b_row);
  }
  ended_block(p * y0 + q * y1, row0, column0, s);
  ended_block(p * y0 + q * y1, row0, column0 + 4u, s1);
  ended_block(p * y0 + q * y1, row0 + 4u, column0, s2);
  ended_block(p * y0 + q * y1, row0 + 4u, column0 + 4u, s3);
}
