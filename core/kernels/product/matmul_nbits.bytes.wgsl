// tune: BYTES 0 32
// groups: ceil_div(m, BYTES) * ceil_div(n, BYTES)
// group: 64
// when: BYTES > 0 and accuracy == 4 and bits == 4 and 2 * m > BYTES and format == 0
//     and transposed == 0 and block % 32 == 0 and k % block == 0
// apply: activate = activate_{activation}; zero_of = zero_of_{zero_type}
//
// Prompts at accuracy_level 4: blocks of a are rounded to bytes with a scale each, as
// matmul_nbits_blocks.c does it, so the sum over a block is an integer. A workgroup computes 32 x 32
// elements of y, an invocation 4 x 4 of them. In workgroup memory are 32 elements of each row and
// column, four in a word: the even and the odd ones of eight apart, as those of b lie.

const BLOCKS = k / block;
const WORDS = block / 8;

var<workgroup> rows_of_a: array<u32, 256>;
var<workgroup> columns_of_b: array<u32, 256>;
var<workgroup> highest: array<u32, GROUP>;
var<workgroup> scales_of_a: array<f32, 32>;
var<workgroup> sums_of_a: array<i32, GROUP>;

fn run(at: u32, lane: u32) {
  let across = ceil_div(n, 32u);
  let row0 = at / across * 32u;
  let column0 = at % across * 32u;
  let source = min(row0 + lane / 2u, m - 1u) * a_row;
  let mine = min(column0 + lane / 8u * 4u + vec4u(0u, 1u, 2u, 3u), vec4u(n - 1u));
  let first_row = lane % 8u * 4u;
  let first_column = lane / 8u * 4u;
  var s = array<vec4f, 4>();
  for (var blk = 0u; blk < BLOCKS; blk++) {
    var bits_ = 0u;
    for (var d = lane % 2u; d < block; d += 2u) {
      bits_ = max(bits_, bitcast<u32>(a(source + blk * block + d)) & 0x7fffffffu);
    }
    highest[lane] = bits_;
    workgroupBarrier();
    bits_ = max(bits_, highest[lane ^ 1u]);
    let largest = bitcast<f32>(bits_);
    var inverse = 0f;
    if (bits_ > 0u) { inverse = min(127f / largest, 3e38f); }
    var sum = 0i;
    var t = array<vec4i, 4>();
    for (var from_ = 0u; from_ < block; from_ += 32u) {
      // an invocation takes two of the eight elements of which eight make two words
      for (var i = 0u; i < 2u; i++) {
        let word = lane % 2u * 2u + i;
        let begin = source + blk * block + from_ + word * 8u;
        let even = packed_bytes(begin, inverse);
        let odd = packed_bytes(begin + 1u, inverse);
        rows_of_a[word * 64u + lane / 2u] = even;
        rows_of_a[word * 64u + 32u + lane / 2u] = odd;
        sum += dot_of_packed(even, 0x01010101u) + dot_of_packed(odd, 0x01010101u);
        let column = min(column0 + lane / 2u, n - 1u);
        let codes = b_word((column * BLOCKS + blk) * WORDS + from_ / 8u + word);
        columns_of_b[word * 64u + lane / 2u] = codes & 0x0f0f0f0fu;
        columns_of_b[word * 64u + 32u + lane / 2u] = (codes >> 4u) & 0x0f0f0f0fu;
      }
      workgroupBarrier();
      for (var w = 0u; w < 256u; w += 32u) {
        for (var j = 0u; j < 4u; j++) {
          let codes = columns_of_b[w + first_column + j];
          for (var i = 0u; i < 4u; i++) {
            t[j][i] += dot_of_packed(rows_of_a[w + first_row + i], codes);
          }
        }
      }
      workgroupBarrier();
    }
    sums_of_a[lane] = sum;
    if (lane % 2u == 0u) {
      var factor = largest / 127f;
      if (bits_ >= 0x7f800000u) { factor = quiet_nan(bits_); }
      scales_of_a[lane / 2u] = factor;
    }
    workgroupBarrier();
    let zero = zeros_at(mine, blk);
    let factor = scales_of(mine * BLOCKS + blk);
    for (var i = 0u; i < 4u; i++) {
      let row = first_row + i;
      let all_ = f32(sums_of_a[2u * row] + sums_of_a[2u * row + 1u]);
      let whole = vec4f(f32(t[0][i]), f32(t[1][i]), f32(t[2][i]), f32(t[3][i]));
      s[i] += scales_of_a[row] * factor * (whole - zero * all_);
    }
  }
  for (var i = 0u; i < 4u; i++) {
    for (var j = 0u; j < 4u; j++) {
      let row = row0 + first_row + i;
      let column = column0 + first_column + j;
      if (row < m && column < n) { ended(row * y_row + column, column, s[i][j]); }
    }
  }
}
// Every other one of eight elements of a.
fn packed_bytes(at: u32, inverse: f32) -> u32 {
  let x = round(vec4f(a(at), a(at + 2u), a(at + 4u), a(at + 6u)) * inverse);
  let bytes_ = bitcast<vec4u>(vec4i(x)) & vec4u(255u);
  return bytes_.x | (bytes_.y << 8u) | (bytes_.z << 16u) | (bytes_.w << 24u);
}
