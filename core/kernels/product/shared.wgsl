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
fn zeros_at(column: vec4u, blk: u32) -> vec4f {
  if (!has_zeros) { return vec4f(f32(1u << (bits - 1u))); }
  return vec4f(zero_of(column.x, blk), zero_of(column.y, blk), zero_of(column.z, blk),
    zero_of(column.w, blk));
}
fn scales_of(at: vec4u) -> vec4f {
  return vec4f(scales(at.x), scales(at.y), scales(at.z), scales(at.w));
}
// A row of a, from an element on, times four columns of packed integers.
fn four_columns(column: vec4u, first: u32) -> vec4f {
  var s = vec4f();
  var at = column * (BLOCKS * WORDS);
  var source = first;
  var d = 0u;
  for (var blk = 0u; blk < BLOCKS; blk++) {
    let zero = zeros_at(column, blk);
    var t = vec4f();
    for (var w = 0u; w < WORDS; w++) {
      var word = vec4u(b_word(at.x), b_word(at.y), b_word(at.z), b_word(at.w));
      for (var e = 0u; e < EACH; e++) {
        if (k % block == 0 || d < k) {
          t = fma(vec4f(a(source)), vec4f(word & vec4u((1u << bits) - 1u)) - zero, t);
        }
        word >>= vec4u(bits);
        source++;
        d++;
      }
      at += vec4u(1u);
    }
    s = fma(t, scales_of(column * BLOCKS + blk), s);
  }
  return s;
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
// The sums of a block of 4 x 4 elements with one more product each, and their end.
fn added(s: mat4x4f, p: vec4f, q: vec4f) -> mat4x4f {
  return mat4x4f(
    fma(vec4f(p.x), q, s[0]), fma(vec4f(p.y), q, s[1]),
    fma(vec4f(p.z), q, s[2]), fma(vec4f(p.w), q, s[3])
  );
}
fn ended_block(to: u32, row0: u32, column0: u32, s: mat4x4f) {
  for (var i = 0u; i < 4u; i++) {
    for (var j = 0u; j < 4u; j++) {
      let row = row0 + i;
      let column = column0 + j;
      if (row < m && column < n) {
        ended_scaled(to + row * y_row + column, row, column, s[i][j]);
      }
    }
  }
}
fn a_of(at: vec4u) -> vec4f { return vec4f(a(at.x), a(at.y), a(at.z), a(at.w)); }
fn b_of(at: vec4u) -> vec4f {
  return vec4f(number(b(at.x)), number(b(at.y)), number(b(at.z)), number(b(at.w)));
}
// Offsets of four rows, or columns. Those past the last one may be out of bounds: WebGPU clamps the
// read, and its value is never stored.
fn four(first: u32, stride: u32) -> vec4u { return (first + vec4u(0u, 1u, 2u, 3u)) * stride; }
