// groups: m * ceil_div(n, 4)
// group: 64
// when: format == 0 and transposed == 0 and block * bits % 32 == 0
// apply: activate = activate_{activation}; zero_of = zero_of_{zero_type}
// alike: any
// vary: n y_row
// before: a if m == 1
// after: y if m == 1
//
// A workgroup computes 4 elements of a row of y, 16 invocations each, which take words of b in
// turns. A weight is never stored as a float; sums are float32 for every accuracy level.

const EACH = 32 / bits;
const BLOCKS = (k + block - 1) / block;
const WORDS = block * bits / 32;

var<workgroup> partial: array<f32, GROUP>;

fn run(at: u32, lane: u32) {
  let across = ceil_div(n, 4u);
  let row = at / across;
  let column = at % across * 4u + lane / 16u;
  let part = lane % 16u;
  var s = 0f;
  if (column < n) {
    for (var w = part; w < BLOCKS * WORDS; w += 16u) {
      let blk = w / WORDS;
      let word = b_word(column * (BLOCKS * WORDS) + w);
      var from_ = blk * block + (w % WORDS) * EACH;
      var zero = f32(1u << (bits - 1u));
      if (has_zeros) { zero = zero_of(column, blk); }
      var t = 0f;
      for (var e = 0u; e < EACH; e++) {
        if (from_ + e < k) {
          let code = (word >> (e * bits)) & ((1u << bits) - 1u);
          t = fma(a(row * a_row + from_ + e), f32(code) - zero, t);
        }
      }
      s = fma(t, scales(column * BLOCKS + blk), s);
    }
  }
  partial[lane] = s;
  workgroupBarrier();
  if (part == 0u && column < n) {
    s = 0f;
    for (var i = 0u; i < 16u; i++) { s += partial[lane + i]; }
    if (has_bias) { s += bias(column); }
    s = activate(s);
    if (has_residual) { s += residual(row * y_row + column); }
    y_set(row * y_row + column, s);
  }
}
// zero points: floats, one for each block, or packed like b with rows padded to bytes
fn zero_of_f(column: u32, blk: u32) -> f32 { return zeros(column * BLOCKS + blk); }
fn zero_of_u(column: u32, blk: u32) -> f32 {
  const row_bytes = (BLOCKS * bits + 7) / 8;
  let bit = blk * bits;
  let byte = zeros(column * row_bytes + bit / 8u);
  return f32((byte >> (bit % 8u)) & ((1u << bits) - 1u));
}
