// groups: ceil_div(m, 8) * ceil_div(n, 4)
// group: 64
// when: m > 1 and format == 0 and transposed == 0 and block * bits % 32 == 0
// apply: activate = activate_{activation}; zero_of = zero_of_{zero_type}
//
// A workgroup computes 4 columns of 8 rows of y, 16 invocations for a column, which take words of b
// in turns: a word is read and taken apart once for 8 rows.

const ROWS = 8;
const EACH = 32 / bits;
const BLOCKS = (k + block - 1) / block;
const WORDS = block * bits / 32;

var<workgroup> partial: array<array<f32, ROWS>, GROUP>;

fn run(at: u32, lane: u32) {
  let across = ceil_div(n, 4u);
  let first = at / across * ROWS;
  let column = at % across * 4u + lane / 16u;
  let count = min(u32(ROWS), m - first);
  var sums: array<f32, ROWS>;
  if (column < n) {
    for (var w = lane % 16u; w < BLOCKS * WORDS; w += 16u) {
      let blk = w / WORDS;
      let word = b_word(column * (BLOCKS * WORDS) + w);
      let from_ = blk * block + (w % WORDS) * EACH;
      let factor = scales(column * BLOCKS + blk);
      let zero = zero_at(column, blk);
      for (var r = 0u; r < ROWS; r++) {
        if (r >= count) { break; }
        let source = (first + r) * a_row + from_;
        var t = 0f;
        for (var e = 0u; e < EACH; e++) {
          if (from_ + e < k) {
            let code = (word >> (e * bits)) & ((1u << bits) - 1u);
            t = fma(a(source + e), f32(code) - zero, t);
          }
        }
        sums[r] = fma(t, factor, sums[r]);
      }
    }
  }
  partial[lane] = sums;
  workgroupBarrier();
  let row = first + lane / 4u;
  let to = at % across * 4u + lane % 4u;
  if (lane < 4u * count && to < n) {
    var s = 0f;
    for (var i = 0u; i < 16u; i++) { s += partial[lane % 4u * 16u + i][lane / 4u]; }
    ended(row * y_row + to, to, s);
  }
}
