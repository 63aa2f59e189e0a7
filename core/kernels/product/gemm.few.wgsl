// groups: batch0 * batch1 * m * ceil_div(n, 4 if b_row == 1 else 32)
// group: 64
// when: m <= 4 and k > 0
// apply: number = number_{b_type}; activate = activate_{activation}
// before: a if m == 1 and a_col == 1 and batch0 * batch1 == 1
// after: y if m == 1 and batch0 * batch1 == 1
// columns: 4 if b_row == 1 else 32
//
// Few rows: b is read once for each. Where columns of b are contiguous, 16 invocations add up a
// column and a workgroup computes 4 of them; else 2 invocations and 32 columns, so that neighbouring
// invocations read neighbouring elements.

fn parts() -> u32 { return select(2u, 16u, b_row == 1); }
fn columns() -> u32 { return GROUP / parts(); }

var<workgroup> partial: array<f32, GROUP>;

fn run(at: u32, lane: u32) {
  let across = ceil_div(n, columns());
  let row = at / across % m;
  let batch = at / across / m;
  let p = batch / batch1;
  let q = batch - p * batch1;
  var part = lane % parts();
  var local = lane / parts();
  if (b_row != 1) {
    part = lane / columns();
    local = lane % columns();
  }
  let column = at % across * columns() + local;
  var s = 0f;
  if (column < n) {
    let from_a = p * a0 + q * a1 + row * a_row;
    let from_b = p * b0 + q * b1 + column * b_col;
    for (var d = part; d < k; d += parts()) {
      s = fma(a(from_a + d * a_col), number(b(from_b + d * b_row)), s);
    }
  }
  partial[lane] = s;
  workgroupBarrier();
  if (part == 0u && column < n) {
    let step = select(columns(), 1u, b_row == 1);
    s = 0f;
    for (var i = 0u; i < parts(); i++) { s += partial[lane + i * step]; }
    let to = p * y0 + q * y1 + row * y_row + column;
    ended_scaled(to, row, column, s);
  }
}
