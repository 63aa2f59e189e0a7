// groups: batch0 * batch1 * ceil_div(m, 32) * ceil_div(n, 32)
// group: 64
// apply: number = number_{b_type}; activate = activate_{activation}
// alike: any
// vary: n b_row b_col y_row y0 y1 b0 b1 bias_row bias_col
// same: m <= 4; m > 4 or b_row == 1
//
// A workgroup computes 32 x 32 elements of y, an invocation 4 x 4 of them. 16 columns of a and rows
// of b at a time go through workgroup memory.

const DEPTH = 16;

var<workgroup> tile_a: array<array<f32, 32>, DEPTH>;
var<workgroup> tile_b: array<array<f32, 32>, DEPTH>;

fn run(at: u32, lane: u32) {
  let across = ceil_div(n, 32u);
  let down = ceil_div(m, 32u);
  let column0 = (at % across) * 32u;
  let row0 = (at / across % down) * 32u;
  let batch = at / (across * down);
  let p = batch / batch1;
  let q = batch - p * batch1;
  let from_a = p * a0 + q * a1;
  let from_b = p * b0 + q * b1;
  let r = lane / 8u * 4u;
  let c = lane % 8u * 4u;
  var sums: array<vec4f, 4>;
  for (var first = 0u; first < k; first += DEPTH) {
    for (var t = lane; t < 32u * DEPTH; t += GROUP) {
      // neighbours in memory are loaded by neighbouring invocations
      var i = t / DEPTH;
      var d = t % DEPTH;
      if (a_col != 1) {
        i = t % 32u;
        d = t / 32u;
      }
      var v = 0f;
      if (row0 + i < m && first + d < k) {
        v = a(from_a + (row0 + i) * a_row + (first + d) * a_col);
      }
      tile_a[d][i] = v;
      i = t / DEPTH;
      d = t % DEPTH;
      if (b_row != 1) {
        i = t % 32u;
        d = t / 32u;
      }
      v = 0f;
      if (column0 + i < n && first + d < k) {
        v = number(b(from_b + (first + d) * b_row + (column0 + i) * b_col));
      }
      tile_b[d][i] = v;
    }
    workgroupBarrier();
    // a bound that compilers do not know keeps them from unrolling 256 products
    for (var d = 0u; d < min(DEPTH, k - first); d++) {
      let v = vec4f(tile_b[d][c], tile_b[d][c + 1u], tile_b[d][c + 2u], tile_b[d][c + 3u]);
      sums[0] = fma(vec4f(tile_a[d][r]), v, sums[0]);
      sums[1] = fma(vec4f(tile_a[d][r + 1u]), v, sums[1]);
      sums[2] = fma(vec4f(tile_a[d][r + 2u]), v, sums[2]);
      sums[3] = fma(vec4f(tile_a[d][r + 3u]), v, sums[3]);
    }
    workgroupBarrier();
  }
  for (var i = 0u; i < 4u; i++) {
    for (var j = 0u; j < 4u; j++) {
      let row = row0 + r + i;
      let column = column0 + c + j;
      if (row < m && column < n) {
        let to = p * y0 + q * y1 + row * y_row + column;
        ended_scaled(to, row, column, sums[i][j]);
      }
    }
  }
}
