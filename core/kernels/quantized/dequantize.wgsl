// threads: outer * axis * inner
// when: bits >= 8
//
// float32 holds whole numbers up to 2^24: an int32 beyond is rounded, as in C.

const BLOCK = max(block, 1);

fn element(i: u32) {
  let row = i / inner;
  let p = row % axis;
  var s = p;
  if (block < 0) { s = 0u; }
  if (block > 0) {
    s = (row / axis * ceil_div(axis, u32(BLOCK)) + p / u32(BLOCK)) * inner + i % inner;
  }
  var v = f32(x(i));
  if (has_zero) { v -= f32(zero(s)); }
  y_set(i, v * scale(s));
}
