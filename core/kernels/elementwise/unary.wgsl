// threads: volume(dims)
// apply: apply = unary_{op}_{type}
// alike: any
//
// One function for each op and class of element types: i signed integers, u unsigned ones and bool,
// l int64; those of f, floats, are generated from the contract's formulas.

fn element(i: u32) { y_set(y_at(i), apply(x(x_at(i)))); }

fn unary_neg_i(v: i32) -> i32 { return -v; }
fn unary_abs_i(v: i32) -> i32 { return abs(v); }
fn unary_sign_i(v: i32) -> i32 { return sign(v); }
fn unary_relu_i(v: i32) -> i32 { return max(v, 0); }
fn unary_square_i(v: i32) -> i32 { return v * v; }
fn unary_bit_not_i(v: i32) -> i32 { return ~v; }

fn unary_neg_u(v: u32) -> u32 { return 0u - v; }
fn unary_abs_u(v: u32) -> u32 { return v; }
fn unary_sign_u(v: u32) -> u32 { return min(v, 1u); }
fn unary_relu_u(v: u32) -> u32 { return v; }
fn unary_square_u(v: u32) -> u32 { return v * v; }
fn unary_bit_not_u(v: u32) -> u32 { return ~v; }
fn unary_not_u(v: u32) -> u32 { return select(0u, 1u, v == 0u); }

fn unary_neg_l(v: vec2u) -> vec2u { return long_neg(v); }
fn unary_abs_l(v: vec2u) -> vec2u { return long_abs(v); }
fn unary_sign_l(v: vec2u) -> vec2u {
  if ((v.y >> 31u) == 1u) { return vec2u(0xffffffffu); }
  return vec2u(select(0u, 1u, any(v != vec2u(0u))), 0u);
}
fn unary_relu_l(v: vec2u) -> vec2u { return select(v, vec2u(0u), (v.y >> 31u) == 1u); }
fn unary_square_l(v: vec2u) -> vec2u { return long_mul(v, v); }
fn unary_bit_not_l(v: vec2u) -> vec2u { return ~v; }
