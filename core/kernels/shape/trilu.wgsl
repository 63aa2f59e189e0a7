// threads: batch * rows * cols
// apply: nothing = nothing_{size}

fn element(i: u32) {
  let r = i / cols;
  let column = i - r * cols;
  let item = r / rows;
  let row = r - item * rows;
  let to = item * y_batch + row * y_row + column;
  // first column that is kept (upper) or cleared (lower)
  let cut = i32(row) + i32(k) + select(1, 0, upper != 0);
  if ((i32(column) >= cut) == (upper != 0)) {
    y_set(to, x(item * x_batch + row * x_row + column));
  } else { y_set(to, nothing()); }
}
fn nothing_1() -> u32 { return 0u; }
fn nothing_2() -> u32 { return 0u; }
fn nothing_4() -> u32 { return 0u; }
fn nothing_8() -> vec2u { return vec2u(0u); }
