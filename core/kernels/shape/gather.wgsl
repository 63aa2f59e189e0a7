// threads: outer * count * inner

fn element(i: u32) {
  let c = i / inner;
  let column = i - c * inner;
  let o = c / count;
  let at = c - o * count;
  var row = index_int(at);
  if (row < -i32(rows) || row >= i32(rows)) {
    if (column == 0u) { fail(row); }
    return;
  }
  if (row < 0) { row += i32(rows); }
  y_set(o * y_outer + at * inner + column, x(o * x_outer + u32(row) * x_row + column));
}
