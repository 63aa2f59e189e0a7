// threads: outer * m * inner

fn element(i: u32) {
  let column = i % inner;
  let row = i / inner;
  let at = row % m;
  let from_ = row / m * n * inner + column;
  var s = 0f;
  for (var t = 0u; t < taps; t++) {
    let k = index_int(at * taps + t);
    if (k < 0 || k >= i32(n)) {
      if (column == 0u && row < m) { fail(k); }
      return;
    }
    s = fma(weight(at * taps + t), x(from_ + u32(k) * inner), s);
  }
  y_set(i, s);
}
