// threads: volume(dims)
// when: type != 11
// apply: total = total_{type}

fn element(i: u32) { y_set(i, total(a_at(i), b_at(i))); }
fn total_i(p: u32, q: u32) -> i32 {
  var s = 0i;
  for (var t = 0u; t < k; t++) { s += a(p + t * a_k) * b(q + t * b_k); }
  return s;
}
fn total_l(p: u32, q: u32) -> vec2u {
  var s = vec2u(0u);
  for (var t = 0u; t < k; t++) { s = long_add(s, long_mul(a(p + t * a_k), b(q + t * b_k))); }
  return s;
}
