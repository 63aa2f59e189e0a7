// threads: batch0 * batch1 * m * ceil_div(n, 4)
// group: 8
// when: serial and m <= 4
// apply: number = number_{b_type}; activate = activate_{activation}
//
// For GPUs in software: few rows, of which an invocation computes 4 elements.

fn element(i: u32) {
  let across = ceil_div(n, 4u);
  let row = i / across % m;
  let batch = i / across / m;
  let p = batch / batch1;
  let q = batch - p * batch1;
  let first = i % across * 4u;
  var from_a = p * a0 + q * a1 + row * a_row;
  var from_b = p * b0 + q * b1 + four(first, b_col);
  var s = vec4f();
  for (var d = 0u; d < k; d++) {
    s = fma(vec4f(a(from_a)), b_of(from_b), s);
    from_a += a_col;
    from_b += vec4u(b_row);
  }
  let to = p * y0 + q * y1 + row * y_row;
  for (var j = 0u; j < 4u; j++) {
    if (first + j < n) { ended_scaled(to + first + j, row, first + j, s[j]); }
  }
}
