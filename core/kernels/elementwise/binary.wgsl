// threads: volume(dims)
// apply: apply = binary_{op}_{type}
// alike: any
// joins: a b y
//
// One function for each op and class of element types, of floats by the contract's formulas; see
// unary.wgsl. Integers of less than 32 bits wrap when they are stored.

fn element(i: u32) { y_set(y_at(i), apply(a(a_at(i)), b(b_at(i)))); }

fn binary_add_i(u: i32, v: i32) -> i32 { return u + v; }
fn binary_sub_i(u: i32, v: i32) -> i32 { return u - v; }
fn binary_mul_i(u: i32, v: i32) -> i32 { return u * v; }
fn binary_div_i(u: i32, v: i32) -> i32 {
  if (v == 0) { return 0; }
  if (v == -1) { return -u; }
  return u / v;
}
fn binary_fmod_i(u: i32, v: i32) -> i32 {
  if (v == 0 || v == -1) { return 0; }
  return u % v;
}
fn binary_mod_i(u: i32, v: i32) -> i32 {
  let r = binary_fmod_i(u, v);
  return select(r, r + v, r != 0 && (r < 0) != (v < 0));
}
fn binary_min_i(u: i32, v: i32) -> i32 { return min(u, v); }
fn binary_max_i(u: i32, v: i32) -> i32 { return max(u, v); }
fn binary_equal_i(u: i32, v: i32) -> u32 { return select(0u, 1u, u == v); }
fn binary_less_i(u: i32, v: i32) -> u32 { return select(0u, 1u, u < v); }
fn binary_less_equal_i(u: i32, v: i32) -> u32 { return select(0u, 1u, u <= v); }
fn binary_greater_i(u: i32, v: i32) -> u32 { return select(0u, 1u, u > v); }
fn binary_greater_equal_i(u: i32, v: i32) -> u32 { return select(0u, 1u, u >= v); }
fn binary_bit_and_i(u: i32, v: i32) -> i32 { return u & v; }
fn binary_bit_or_i(u: i32, v: i32) -> i32 { return u | v; }
fn binary_bit_xor_i(u: i32, v: i32) -> i32 { return u ^ v; }
fn binary_prelu_i(u: i32, v: i32) -> i32 { return select(u, u * v, u < 0); }

fn binary_add_u(u: u32, v: u32) -> u32 { return u + v; }
fn binary_sub_u(u: u32, v: u32) -> u32 { return u - v; }
fn binary_mul_u(u: u32, v: u32) -> u32 { return u * v; }
fn binary_div_u(u: u32, v: u32) -> u32 {
  if (v == 0u) { return 0u; }
  return u / v;
}
fn binary_mod_u(u: u32, v: u32) -> u32 {
  if (v == 0u) { return 0u; }
  return u % v;
}
fn binary_fmod_u(u: u32, v: u32) -> u32 { return binary_mod_u(u, v); }
fn binary_min_u(u: u32, v: u32) -> u32 { return min(u, v); }
fn binary_max_u(u: u32, v: u32) -> u32 { return max(u, v); }
fn binary_equal_u(u: u32, v: u32) -> u32 { return select(0u, 1u, u == v); }
fn binary_less_u(u: u32, v: u32) -> u32 { return select(0u, 1u, u < v); }
fn binary_less_equal_u(u: u32, v: u32) -> u32 { return select(0u, 1u, u <= v); }
fn binary_greater_u(u: u32, v: u32) -> u32 { return select(0u, 1u, u > v); }
fn binary_greater_equal_u(u: u32, v: u32) -> u32 { return select(0u, 1u, u >= v); }
fn binary_and_u(u: u32, v: u32) -> u32 { return select(0u, 1u, u != 0u && v != 0u); }
fn binary_or_u(u: u32, v: u32) -> u32 { return select(0u, 1u, u != 0u || v != 0u); }
fn binary_xor_u(u: u32, v: u32) -> u32 { return select(0u, 1u, (u != 0u) != (v != 0u)); }
fn binary_bit_and_u(u: u32, v: u32) -> u32 { return u & v; }
fn binary_bit_or_u(u: u32, v: u32) -> u32 { return u | v; }
fn binary_bit_xor_u(u: u32, v: u32) -> u32 { return u ^ v; }
fn binary_prelu_u(u: u32, v: u32) -> u32 { return u; }

fn binary_add_l(u: vec2u, v: vec2u) -> vec2u { return long_add(u, v); }
fn binary_sub_l(u: vec2u, v: vec2u) -> vec2u { return long_add(u, long_neg(v)); }
fn binary_mul_l(u: vec2u, v: vec2u) -> vec2u { return long_mul(u, v); }
fn binary_div_l(u: vec2u, v: vec2u) -> vec2u { return long_div(u, v); }
fn binary_fmod_l(u: vec2u, v: vec2u) -> vec2u { return long_rem(u, v); }
fn binary_mod_l(u: vec2u, v: vec2u) -> vec2u {
  let r = long_rem(u, v);
  if (any(r != vec2u(0u)) && ((r.y ^ v.y) >> 31u) == 1u) { return long_add(r, v); }
  return r;
}
fn binary_min_l(u: vec2u, v: vec2u) -> vec2u { return select(v, u, long_less(u, v)); }
fn binary_max_l(u: vec2u, v: vec2u) -> vec2u { return select(u, v, long_less(u, v)); }
fn binary_equal_l(u: vec2u, v: vec2u) -> u32 { return select(0u, 1u, all(u == v)); }
fn binary_less_l(u: vec2u, v: vec2u) -> u32 { return select(0u, 1u, long_less(u, v)); }
fn binary_less_equal_l(u: vec2u, v: vec2u) -> u32 { return select(1u, 0u, long_less(v, u)); }
fn binary_greater_l(u: vec2u, v: vec2u) -> u32 { return select(0u, 1u, long_less(v, u)); }
fn binary_greater_equal_l(u: vec2u, v: vec2u) -> u32 { return select(1u, 0u, long_less(u, v)); }
fn binary_bit_and_l(u: vec2u, v: vec2u) -> vec2u { return u & v; }
fn binary_bit_or_l(u: vec2u, v: vec2u) -> vec2u { return u | v; }
fn binary_bit_xor_l(u: vec2u, v: vec2u) -> vec2u { return u ^ v; }
