// Functions that the shaders of products share.

// zero points: floats, one for each block, or packed like b with rows padded to bytes
fn zero_of_f(column: u32, blk: u32) -> f32 { return zeros(column * BLOCKS + blk); }
fn zero_of_u(column: u32, blk: u32) -> f32 {
  const row_bytes = (BLOCKS * bits + 7) / 8;
  let bit = blk * bits;
  let byte = zeros(column * row_bytes + bit / 8u);
  return f32((byte >> (bit % 8u)) & ((1u << bits) - 1u));
}
// The zero point of a block of a column, and the end of a sum.
fn zero_at(column: u32, blk: u32) -> f32 {
  if (has_zeros) { return zero_of(column, blk); }
  return f32(1u << (bits - 1u));
}
fn ended(to: u32, column: u32, sum: f32) {
  var s = sum;
  if (has_bias) { s += bias(column); }
  s = activate(s);
  if (has_residual) { s += residual(to); }
  y_set(to, s);
}
fn ended_scaled(to: u32, row: u32, column: u32, sum: f32) {
  var v = alpha * sum;
  if (has_bias) { v += beta * bias(row * bias_row + column * bias_col); }
  v = activate(v);
  if (has_residual) { v += residual(to); }
  y_set(to, v);
}
