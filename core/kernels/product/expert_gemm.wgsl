// threads: slots * ceil_div(n, 4)
// apply: number = number_{b_type}
//
// An invocation computes 4 elements of a slot's row of y.

fn element(i: u32) {
  let across = ceil_div(n, 4u);
  let slot = i / across;
  let first = i % across * 4u;
  var expert = index_int(slot);
  if (expert < -i32(experts) || expert >= i32(experts)) {
    if (first == 0u) { fail(expert); }
    return;
  }
  if (expert < 0) { expert += i32(experts); }
  var from_a = slot / each * a_row;
  var from_b = u32(expert) * b_expert + four(first, b_col);
  var s = vec4f();
  for (var d = 0u; d < k; d++) {
    s = fma(vec4f(a(from_a)), b_of(from_b), s);
    from_a++;
    from_b += vec4u(b_row);
  }
  for (var j = 0u; j < 4u; j++) {
    if (first + j < n) {
      var v = alpha * s[j];
      if (has_bias) { v += bias(u32(expert) * n + first + j); }
      y_set(slot * n + first + j, v);
    }
  }
}
