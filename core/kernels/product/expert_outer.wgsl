// threads: experts * n * k
//
// An invocation computes one element: it looks at the expert of each slot.

fn element(i: u32) {
  let row = i / k;
  let column = i - row * k;
  let expert = i32(row / n);
  let of_a = row % n;
  var s = 0f;
  for (var slot = 0u; slot < slots; slot++) {
    var e = index_int(slot);
    if (e < -i32(experts) || e >= i32(experts)) {
      if (i == 0u) { fail(e); }
      return;
    }
    if (e < 0) { e += i32(experts); }
    if (e == expert) {
      s = fma(a(slot / a_each * a_row + of_a), b(slot / b_each * b_row + column), s);
    }
  }
  y_set(i, s);
}
