// threads: m * k
// when: format == 0 and transposed == 1 and block * bits % 32 == 0
// apply: activate = activate_{activation}; zero_of = zero_of_{zero_type}
//
// An invocation computes one element; neighbours read the same words of b.

const EACH = 32 / bits;
const BLOCKS = (k + block - 1) / block;
const WORDS = block * bits / 32;

fn element(i: u32) {
  let row = i / k;
  let column = i - row * k;
  let part = column / block;
  let shift = column % EACH * bits;
  let word = part * WORDS + column % block / EACH;
  var s = 0f;
  for (var j = 0u; j < n; j++) {
    var zero = f32(1u << (bits - 1u));
    if (has_zeros) { zero = zero_of(j, part); }
    let code = (b_word(j * (BLOCKS * WORDS) + word) >> shift) & ((1u << bits) - 1u);
    s = fma(a(row * a_row + j), (f32(code) - zero) * scales(j * BLOCKS + part), s);
  }
  if (has_bias) { s += bias(column); }
  s = activate(s);
  if (has_residual) { s += residual(row * y_row + column); }
  y_set(row * y_row + column, s);
}
// zero points: floats, one for each block, or packed like b with rows padded to bytes
fn zero_of_f(column: u32, part: u32) -> f32 { return zeros(column * BLOCKS + part); }
fn zero_of_u(column: u32, part: u32) -> f32 {
  const row_bytes = (BLOCKS * bits + 7) / 8;
  let bit = part * bits;
  let byte = zeros(column * row_bytes + bit / 8u);
  return f32((byte >> (bit % 8u)) & ((1u << bits) - 1u));
}
