// threads: n
// apply: value = value_{type}

fn element(i: u32) { y_set(i, value(i)); }
fn value_f(i: u32) -> f32 { return f_start + f32(i) * f_delta; }
fn value_i(i: u32) -> i32 { return i32(start) + i32(i) * i32(delta); }
fn value_u(i: u32) -> u32 { return bitcast<u32>(i32(start) + i32(i) * i32(delta)); }
fn value_l(i: u32) -> vec2u {
  return long_add(long_of(i32(start)), long_mul(vec2u(i, 0u), long_of(i32(delta))));
}
