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
  let rows_ = min(vec4u(row0) + vec4u(0u, 1u, 2u, 3u), vec4u(m - 1u));
  let columns_ = min(vec4u(column0) + vec4u(0u, 1u, 2u, 3u), vec4u(n - 1u));
  var from_a = vec4u(p * a0 + q * a1) + rows_ * a_row;
  var from_b = vec4u(p * b0 + q * b1) + columns_ * b_col;
  var s0 = vec4f(0f);
  var s1 = vec4f(0f);
  var s2 = vec4f(0f);
  var s3 = vec4f(0f);
  for (var d = 0u; d < k; d++) {
    let v = vec4f(
      number(b(from_b.x)), number(b(from_b.y)), number(b(from_b.z)), number(b(from_b.w))
    );
    s0 = fma(vec4f(a(from_a.x)), v, s0);
    s1 = fma(vec4f(a(from_a.y)), v, s1);
    s2 = fma(vec4f(a(from_a.z)), v, s2);
    s3 = fma(vec4f(a(from_a.w)), v, s3);
    from_a += vec4u(a_col);
    from_b += vec4u(b_row);
  }
  let sums = array<vec4f, 4>(s0, s1, s2, s3);
  for (var i = 0u; i < 4u; i++) {
    for (var j = 0u; j < 4u; j++) {
      let row = row0 + i;
      let column = column0 + j;
      if (row < m && column < n) {
        ended_scaled(p * y0 + q * y1 + row * y_row + column, row, column, sums[i][j]);
      }
    }
  }
}
