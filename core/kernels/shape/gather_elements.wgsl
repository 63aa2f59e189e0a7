// threads: volume(dims)

fn element(i: u32) {
  var row = index_int(index_at(i));
  if (row < -i32(rows) || row >= i32(rows)) {
    fail(row);
    return;
  }
  if (row < 0) { row += i32(rows); }
  y_set(i, x(x_at(i) + u32(row) * x_axis));
}
