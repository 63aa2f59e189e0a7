// threads: slots * k
// when: transposed == 1 and block * bits % 32 == 0
// apply: zero_of = zero_of_{zero_type}
//
// An invocation computes one element; neighbours read the same words of b.

const EACH = 32 / bits;
const BLOCKS = (k + block - 1) / block;
const WORDS = block * bits / 32;

fn element(i: u32) {
  let slot = i / k;
  let column = i - slot * k;
  var expert = index_int(slot);
  if (expert < -i32(experts) || expert >= i32(experts)) {
    if (column == 0u) { fail(expert); }
    return;
  }
  if (expert < 0) { expert += i32(experts); }
  let part = column / block;
  let shift = column % EACH * bits;
  let word = part * WORDS + column % block / EACH;
  let source = slot / each * a_row;
  var row = u32(expert) * n;
  var s = 0f;
  for (var j = 0u; j < n; j++) {
    let code = (b_word(row * (BLOCKS * WORDS) + word) >> shift) & ((1u << bits) - 1u);
    s = fma(a(source + j), (f32(code) - zero_at(row, part)) * scales(row * BLOCKS + part), s);
    row++;
  }
  if (has_bias) { s += bias(u32(expert) * k + column); }
  y_set(i, s);
}
