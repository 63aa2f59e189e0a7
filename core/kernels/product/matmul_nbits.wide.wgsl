// tune: WIDE 0 16 32 64
// groups: ceil_div(n, 4)
// group: 64
// when: WIDE > 0 and m == 1 and format == 0 and transposed == 0 and block * bits % 128 == 0
// apply: activate = activate_{activation}; zero_of = zero_of_{zero_type}
// before: a if m == 1
// after: y if m == 1
// columns: 4
//
// As matmul_nbits.wgsl, with four adjacent words of b at a time, which have one scale. WIDE
// invocations add up a column: those of 32 and 64 have two and four columns, for which they read an
// element of a once.

const EACH = 32 / bits;
const BLOCKS = (k + block - 1) / block;
const WORDS = block * bits / 32;
const COLUMNS = WIDE / 16;

fn run(at: u32, lane: u32) {
  let first = at * 4u + lane / WIDE * COLUMNS;
  var sums: array<f32, COLUMNS>;
  for (var w = lane % WIDE * 4u; w < BLOCKS * WORDS; w += WIDE * 4u) {
    let blk = w / WORDS;
    var words: array<vec4u, COLUMNS>;
    var zero: array<f32, COLUMNS>;
    for (var c = 0u; c < COLUMNS; c++) {
      let column = min(first + c, n - 1u);
      let source = column * (BLOCKS * WORDS) + w;
      words[c] =
        vec4u(b_word(source), b_word(source + 1u), b_word(source + 2u), b_word(source + 3u));
      zero[c] = zero_at(column, blk);
    }
    var t = array<f32, COLUMNS>();
    for (var e = 0u; e < 4u * EACH; e += 4u) {
      let x = four_of_a(w * EACH + e);
      let shifts = (vec4u(0u, 1u, 2u, 3u) + e % EACH) * bits;
      for (var c = 0u; c < COLUMNS; c++) {
        let codes = (vec4u(words[c][e / EACH]) >> shifts) & vec4u((1u << bits) - 1u);
        t[c] += dot(x, vec4f(codes) - zero[c]);
      }
    }
    for (var c = 0u; c < COLUMNS; c++) {
      sums[c] = fma(t[c], scales(min(first + c, n - 1u) * BLOCKS + blk), sums[c]);
    }
  }
  var own = vec4f();
  for (var c = 0u; c < COLUMNS; c++) { own[lane / WIDE * COLUMNS + c] = sums[c]; }
  let s = sum_of_four(lane, own);
  let column = at * 4u + lane;
  if (lane < 4u && column < n) { ended(column, column, s); }
}
fn four_of_a(d: u32) -> vec4f {
  let x = vec4f(a(d), a(d + 1u), a(d + 2u), a(d + 3u));
  if (k % block == 0) { return x; }
  return select(vec4f(), x, vec4u(d) + vec4u(0u, 1u, 2u, 3u) < vec4u(k));
}
