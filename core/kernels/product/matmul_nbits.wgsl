// groups: m * ceil_div(n, 4)
// group: 64
// when: format == 0 and transposed == 0 and block * bits % 32 == 0
// apply: activate = activate_{activation}; zero_of = zero_of_{zero_type}
// alike: any
// vary: n y_row
// before: a if m == 1
// after: y if m == 1
// columns: 4
//
// A workgroup computes 4 elements of a row of y, 16 invocations each, which take words of b in
// turns. A weight is never stored as a float; sums are float32 for every accuracy level.

const EACH = 32 / bits;
const BLOCKS = (k + block - 1) / block;
const WORDS = block * bits / 32;

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
      let from_ = blk * block + (w % WORDS) * EACH;
      let zero = zero_at(column, blk);
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
  s = sum_of_sixteen(lane, s);
  if (part == 0u && column < n) { ended(row * y_row + column, column, s); }
}
