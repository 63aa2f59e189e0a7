// threads: volume(dims)
// when: mode == 0
// apply: convert = cast_{x_type}_{y_type}
// alike: any
//
// Classes as in unary.wgsl. Floats saturate to the range of an integer; integers wrap.

fn element(i: u32) { y_set(y_at(i), convert(x(x_at(i)))); }

fn cast_f_f(v: f32) -> f32 { return v; }
// lowest and highest integer of y_type; those of 32 bits are found by comparing floats
fn cast_f_i(v: f32) -> i32 {
  const high = select(select(127f, 32767f, y_type == 5), 2147483647f, y_type == 6);
  const low = select(select(-128f, -32768f, y_type == 5), -2147483648f, y_type == 6);
  if (is_nan(v)) { return 0; }
  if (v >= high) { return select(i32(high), 0x7fffffff, y_type == 6); }
  return i32(max(v, low));
}
fn cast_f_u(v: f32) -> u32 {
  if (y_type == 9) { return select(0u, 1u, v != 0f || is_nan(v)); }
  const high = select(select(255f, 65535f, y_type == 4), 4294967040f, y_type == 12);
  if (is_nan(v)) { return 0u; }
  if (v > high) { return select(u32(high), 0xffffffffu, y_type == 12); }
  return u32(max(v, 0f));
}
fn cast_f_l(v: f32) -> vec2u {
  if (is_nan(v)) { return vec2u(0u); }
  let size = abs(v);
  if (size >= 9.223372e18f) {
    return select(vec2u(0xffffffffu, 0x7fffffffu), vec2u(0u, 0x80000000u), v < 0f);
  }
  let high = floor(size * 2.3283064e-10f);
  let r = vec2u(u32(size - high * 4294967296f), u32(high));
  if (v < 0f) { return long_neg(r); }
  return r;
}
fn cast_i_f(v: i32) -> f32 { return f32(v); }
fn cast_i_i(v: i32) -> i32 { return v; }
fn cast_i_u(v: i32) -> u32 { return select(bitcast<u32>(v), u32(v != 0), y_type == 9); }
fn cast_i_l(v: i32) -> vec2u { return long_of(v); }
fn cast_u_f(v: u32) -> f32 { return f32(truth(v)); }
fn cast_u_i(v: u32) -> i32 { return bitcast<i32>(truth(v)); }
fn cast_u_u(v: u32) -> u32 { return select(truth(v), u32(v != 0u), y_type == 9); }
fn cast_u_l(v: u32) -> vec2u { return vec2u(truth(v), 0u); }
fn truth(v: u32) -> u32 { return select(v, u32(v != 0u), x_type == 9); }
fn cast_l_f(v: vec2u) -> f32 {
  let size = long_abs(v);
  let r = f32(size.y) * 4294967296f + f32(size.x);
  return select(r, -r, (v.y >> 31u) == 1u);
}
fn cast_l_i(v: vec2u) -> i32 { return bitcast<i32>(v.x); }
fn cast_l_u(v: vec2u) -> u32 { return select(v.x, u32(any(v != vec2u(0u))), y_type == 9); }
fn cast_l_l(v: vec2u) -> vec2u { return v; }
