// threads: slots * ceil_div(n, 4)
// when: transposed == 0 and block * bits % 32 == 0
// apply: zero_of = zero_of_{zero_type}
//
// An invocation computes 4 elements of a slot's row of y.

const EACH = 32 / bits;
const BLOCKS = (k + block - 1) / block;
const WORDS = block * bits / 32;

fn element(i: u32) {
  let across = ceil_div(n, 4u);
  let slot = i / across;
  let first = i % across * 4u;
  var expert = index_int(slot);
  if (expert < -i32(experts) || expert >= i32(experts)) {
    if (first == 0u) { fail(expert); }
    return;
  }
  if (expert < 0) { expert += i32(experts); }
  let columns = min(first + vec4u(0u, 1u, 2u, 3u), vec4u(n - 1u));
  let column = u32(expert) * n + columns;
  var s = vec4f();
  var at = column * (BLOCKS * WORDS);
  var source = slot / each * a_row;
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
  for (var j = 0u; j < 4u; j++) {
    if (first + j < n) {
      var v = s[j];
      if (has_bias) { v += bias(u32(expert) * n + first + j); }
      y_set(slot * n + first + j, v);
    }
  }
}
