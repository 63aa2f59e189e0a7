// threads: count * cols
//
// Elements and zero points have `bits` bits, the low bits first, in rows padded to bytes; with
// zeros == 2 the zero points of all rows lie side by side.

const MASK = (1u << bits) - 1u;
const BLOCKS = (cols + block - 1) / block;
const ROW_BYTES = (cols * bits + 7) / 8;
const ZERO_BYTES = (BLOCKS * bits + 7) / 8;

fn element(i: u32) {
  let c = i / cols;
  let column = i - c * cols;
  var row = index_int(c);
  if (row < -i32(rows) || row >= i32(rows)) {
    if (column == 0u) { fail(row); }
    return;
  }
  if (row < 0) { row += i32(rows); }
  let part = column / block;
  let bit = column * bits;
  let code = u32(x(u32(row) * ROW_BYTES + bit / 8u)) >> (bit % 8u);
  y_set(i, (number(code) - zero_of(u32(row), part)) * scales(u32(row) * BLOCKS + part));
}
fn number(code: u32) -> f32 {
  let v = i32(code & MASK);
  if (signed != 0 && v >> (bits - 1u) == 1) { return f32(v - i32(MASK) - 1); }
  return f32(v);
}
fn zero_of(row: u32, part: u32) -> f32 {
  if (has_zeros_) {
    var first = row * ZERO_BYTES;
    var bit = part * bits;
    if (zeros == 2) {
      first = 0u;
      bit = (row * BLOCKS + part) * bits;
    }
    return number(u32(zeros_(first + bit / 8u)) >> (bit % 8u));
  }
  if (signed != 0 || zeros < 0) { return 0f; }
  return f32(1u << (bits - 1u));
}
