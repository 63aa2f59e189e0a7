// tune: TILE 0 32 64
// groups: ceil_div(m, TILE) * ceil_div(n, TILE)
// group: 64
// when: TILE > 0 and 2 * m > TILE and format == 0 and transposed == 0 and block % 32 == 0
// apply: activate = activate_{activation}; zero_of = zero_of_{zero_type}
//
// Prompts: a workgroup computes TILE x TILE elements of y, an invocation 4 x 4 or 8 x 8 of them.
// Parts of a and of b, which are taken apart once, are in workgroup memory: DEPTH elements of each
// row and column at a time, those of four rows or columns in a vector.

const EACH = 32 / bits;
const BLOCKS = (k + block - 1) / block;
const WORDS = block * bits / 32;
const DEPTH = 1024 / TILE;
const FOURS = TILE / 4;
const OWN = TILE / 32;

var<workgroup> rows_of_a: array<vec4f, 256>;
var<workgroup> columns_of_b: array<vec4f, 256>;

fn run(at: u32, lane: u32) {
  let across = ceil_div(n, TILE);
  let row0 = at / across * TILE;
  let column0 = at % across * TILE;
  var s: array<mat4x4f, OWN * OWN>;
  for (var from_ = 0u; from_ < BLOCKS * block; from_ += DEPTH) {
    for (var i = lane; i < 256u; i += GROUP) {
      let d = i % DEPTH;
      var x = vec4f();
      if (k % block == 0 || from_ + d < k) {
        x = a_of(four(row0 + i / DEPTH * 4u, a_row) + from_ + d);
      }
      rows_of_a[d * FOURS + i / DEPTH] = x;
    }
    take_apart(column0 + lane % FOURS * 4u, from_ + lane / FOURS * 4u, lane);
    workgroupBarrier();
    for (var d = 0u; d < DEPTH; d++) {
      let x = d * FOURS + lane / 8u * OWN;
      let y_ = d * FOURS + lane % 8u * OWN;
      for (var i = 0u; i < OWN; i++) {
        for (var j = 0u; j < OWN; j++) {
          s[i * OWN + j] = added(s[i * OWN + j], rows_of_a[x + i], columns_of_b[y_ + j]);
        }
      }
    }
    workgroupBarrier();
  }
  for (var i = 0u; i < OWN; i++) {
    for (var j = 0u; j < OWN; j++) {
      let row = row0 + (lane / 8u * OWN + i) * 4u;
      ended_four(row, column0 + (lane % 8u * OWN + j) * 4u, s[i * OWN + j]);
    }
  }
}
// Four elements of four columns.
fn take_apart(first: u32, from_: u32, lane: u32) {
  let column = min(first + vec4u(0u, 1u, 2u, 3u), vec4u(n - 1u));
  let blk = from_ / block;
  let zero = zeros_at(column, blk);
  let factor = scales_of(column * BLOCKS + blk);
  let source = column * (BLOCKS * WORDS) + from_ / EACH;
  var word = vec4u(b_word(source.x), b_word(source.y), b_word(source.z), b_word(source.w));
  word >>= vec4u(from_ % EACH * bits);
  for (var e = 0u; e < 4u; e++) {
    columns_of_b[(lane / FOURS * 4u + e) * FOURS + lane % FOURS] =
      (vec4f(word & vec4u((1u << bits) - 1u)) - zero) * factor;
    word >>= vec4u(bits);
  }
}
fn ended_four(row0: u32, column0: u32, s: mat4x4f) {
  for (var r = 0u; r < 4u; r++) {
    for (var j = 0u; j < 4u; j++) {
      if (row0 + r < m && column0 + j < n) {
        ended((row0 + r) * y_row + column0 + j, column0 + j, s[r][j]);
      }
    }
  }
}
