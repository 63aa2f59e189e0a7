// threads: m * ceil_div(n, 4)
// group: 8
// when: serial and m < 4 and format == 0 and transposed == 0 and block * bits % 32 == 0
// apply: activate = activate_{activation}; zero_of = zero_of_{zero_type}
//
// For GPUs in software: an invocation computes 4 elements of a row of y, and there are no barriers.

const EACH = 32 / bits;
const BLOCKS = (k + block - 1) / block;
const WORDS = block * bits / 32;

fn element(i: u32) {
  let across = ceil_div(n, 4u);
  let row = i / across;
  let first = i % across * 4u;
  let column = min(first + vec4u(0u, 1u, 2u, 3u), vec4u(n - 1u));
  var s = vec4f();
  var at = column * (BLOCKS * WORDS);
  var source = row * a_row;
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
    if (first + j < n) { ended(row * y_row + first + j, first + j, s[j]); }
  }
}
