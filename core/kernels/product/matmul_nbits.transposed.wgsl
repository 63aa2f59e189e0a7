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
    let code = (b_word(j * (BLOCKS * WORDS) + word) >> shift) & ((1u << bits) - 1u);
    s = fma(a(row * a_row + j), (f32(code) - zero_at(j, part)) * scales(j * BLOCKS + part), s);
  }
  ended(row * y_row + column, column, s);
}
