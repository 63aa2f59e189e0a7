// threads: outer * axis * inner
// apply: stored = stored_{type}

const BLOCK = max(block, 1);
const BYTES = select(2u, 1u, type_code == 2 || type_code == 3);

fn element(i: u32) {
  let row = i / inner;
  let p = row % axis;
  var s = p;
  if (block < 0) { s = 0u; }
  if (block > 0) {
    s = (row / axis * ceil_div(axis, u32(BLOCK)) + p / u32(BLOCK)) * inner + i % inner;
  }
  var v = x(i) / scale(s);
  if (is_nan(v)) { v = -200000f; }
  v = round(clamp(v, -200000f, 200000f));
  if (has_zero) { v += f32(zero(s)); }
  y_set(i, stored(v));
}
fn stored_u(v: f32) -> u32 { return u32(clamp(v, 0f, f32((1u << (8u * BYTES)) - 1u))); }
fn stored_i(v: f32) -> i32 {
  let high = f32((1u << (8u * BYTES - 1u)) - 1u);
  return i32(clamp(v, -high - 1f, high));
}
