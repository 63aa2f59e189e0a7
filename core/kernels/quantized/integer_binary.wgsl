// threads: n
// apply: stored = stored_{y_type}
//
// The steps of the formula are those of the C function, which adds 128 to signed bytes.

const SHIFT_A = select(0f, 128f, a_type == 3);
const SHIFT_B = select(0f, 128f, b_type == 3);

fn element(i: u32) {
  let za = f32(a_zero(0u)) + SHIFT_A;
  let zb = f32(b_zero(0u)) + SHIFT_B;
  let zy = f32(y_zero(0u));
  let p = f32(a(i)) + SHIFT_A;
  let q = f32(b(i)) + SHIFT_B;
  var v = 0f;
  if (multiply != 0) {
    v = (p - za) * (q - zb) * (a_scale(0u) * b_scale(0u) / y_scale(0u)) + zy;
  } else {
    let fa = a_scale(0u) / y_scale(0u);
    let fb = f32(sign) * b_scale(0u) / y_scale(0u);
    v = p * fa + q * fb + (zy - fa * za - fb * zb);
  }
  y_set(i, stored(round(clamp(v, f32(low), f32(high)))));
}
fn stored_u(v: f32) -> u32 { return u32(v); }
fn stored_i(v: f32) -> i32 { return i32(v); }
