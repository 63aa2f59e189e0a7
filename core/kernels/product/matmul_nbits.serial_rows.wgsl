// threads: ceil_div(m, 4) * ceil_div(n, 4)
// group: 8
// when: serial and m >= 4 and format == 0 and transposed == 0 and block * bits % 32 == 0
// apply: activate = activate_{activation}; zero_of = zero_of_{zero_type}
//
// As matmul_nbits.serial.wgsl, for 4 rows and 4 columns: a word is taken apart once for the rows.

const EACH = 32 / bits;
const BLOCKS = (k + block - 1) / block;
const WORDS = block * bits / 32;

fn element(i: u32) {
  let across = ceil_div(n, 4u);
  let row0 = i / across * 4u;
  let first = i % across * 4u;
  let column = min(first + vec4u(0u, 1u, 2u, 3u), vec4u(n - 1u));
  var s = mat4x4f();
  var at = column * (BLOCKS * WORDS);
  var source = four(row0, a_row);
  var d = 0u;
  for (var blk = 0u; blk < BLOCKS; blk++) {
    let zero = zeros_at(column, blk);
    let factor = scales_of(column * BLOCKS + blk);
    for (var w = 0u; w < WORDS; w++) {
      var word = vec4u(b_word(at.x), b_word(at.y), b_word(at.z), b_word(at.w));
      for (var e = 0u; e < EACH; e++) {
        if (k % block == 0 || d < k) {
          s = added(s, a_of(source), (vec4f(word & vec4u((1u << bits) - 1u)) - zero) * factor);
        }
        word >>= vec4u(bits);
        source += vec4u(1u);
        d++;
      }
      at += vec4u(1u);
    }
  }
  for (var r = 0u; r < 4u; r++) {
    for (var j = 0u; j < 4u; j++) {
      if (row0 + r < m && first + j < n) {
        ended((row0 + r) * y_row + first + j, first + j, s[r][j]);
      }
    }
  }
}
