// groups: batch0 * batch1 * ceil_div(m, 32) * ceil_div(n, 32)
// group: 64
// apply: number = number_{b_type}; activate = activate_{activation}
// alike: any
// vary: n b_row b_col y_row y0 y1 b0 b1 bias_row bias_col
// same: m <= 4; m > 4 or b_row == 1
//
// A workgroup computes 32 x 32 elements of y, an invocation 4 x 4 of them. What they read at a time
// is 32 rows and columns side by side, which fit caches: nothing goes through workgroup memory, and
// there are no barriers.

fn run(at: u32, lane: u32) {
  let across = ceil_div(n, 32u);
  let down = ceil_div(m, 32u);
  let batch = at / (across * down);
  let p = batch / batch1;
  let q = batch - p * batch1;
  let row0 = (at / across % down) * 32u + lane / 8u * 4u;
  let column0 = (at % across) * 32u + lane % 8u * 4u;
  if (row0 >= m || column0 >= n) { return; }
  var from_a = p * a0 + q * a1 + four(row0, a_row);
  var from_b = p * b0 + q * b1 + four(column0, b_col);
  var s = mat4x4f();
  for (var d = 0u; d < k; d++) {
    s = added(s, a_of(from_a), b_of(from_b));
    from_a += vec4u(a_col);
    from_b += vec4u(b_row);
  }
  ended_block(p * y0 + q * y1, row0, column0, s);
}
