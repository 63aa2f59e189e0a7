// threads: volume(dims)
// apply: value = value_{size}
// alike: any

fn element(i: u32) { y_set(y_at(i), value()); }
fn value_1() -> u32 { return bitcast<u32>(i32(value_low)); }
fn value_2() -> u32 { return bitcast<u32>(i32(value_low)); }
fn value_4() -> u32 { return bitcast<u32>(i32(value_low)); }
fn value_8() -> vec2u { return vec2u(bitcast<u32>(i32(value_low)), bitcast<u32>(i32(value_high))); }
