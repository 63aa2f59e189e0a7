// threads: outer * inner
// when: type in (6, 7)
// apply: joined = joined_{op}_{type}; begin = begin_{op}_{type}
//
// An invocation computes one element of y.

fn element(i: u32) {
  let o = i / inner;
  let column = i - o * inner;
  var s = begin();
  for (var r = 0u; r < n; r++) { s = joined(s, x(o * x_outer + column * x_inner + r * x_n)); }
  y_set(o * y_outer + column, s);
}
fn begin_sum_i() -> i32 { return 0i; }
fn begin_prod_i() -> i32 { return 1i; }
fn begin_max_i() -> i32 { return -0x7fffffffi - 1i; }
fn begin_min_i() -> i32 { return 0x7fffffffi; }
fn begin_sum_l() -> vec2u { return vec2u(0u); }
fn begin_prod_l() -> vec2u { return vec2u(1u, 0u); }
fn begin_max_l() -> vec2u { return vec2u(0u, 0x80000000u); }
fn begin_min_l() -> vec2u { return vec2u(0xffffffffu, 0x7fffffffu); }
fn joined_sum_i(u: i32, v: i32) -> i32 { return u + v; }
fn joined_prod_i(u: i32, v: i32) -> i32 { return u * v; }
fn joined_max_i(u: i32, v: i32) -> i32 { return max(u, v); }
fn joined_min_i(u: i32, v: i32) -> i32 { return min(u, v); }
fn joined_sum_l(u: vec2u, v: vec2u) -> vec2u { return long_add(u, v); }
fn joined_prod_l(u: vec2u, v: vec2u) -> vec2u { return long_mul(u, v); }
fn joined_max_l(u: vec2u, v: vec2u) -> vec2u { return select(u, v, long_less(u, v)); }
fn joined_min_l(u: vec2u, v: vec2u) -> vec2u { return select(u, v, long_less(v, u)); }
