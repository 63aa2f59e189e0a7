// threads: batch * heads * seq * (head_dim - rotary_dim // 2)
// alike: any
// vary: heads x_b x_h x_s y_b y_h y_s
// takes: x if batch * seq == 1 and interleaved == 0 and rotary_dim == head_dim
//     and (heads == 1 or x_h == head_dim)
// apart: head_dim // 2
//
// An invocation rotates a pair, or copies an element after the rotated ones.

fn table_row(b: u32, s: u32) -> i32 {
  if (positions == 1) { return i32(position) + i32(s); }
  if (positions == 2) {
    if (has_position_ids) { return position_ids_int(b * seq + s); }
    return i32(s);
  }
  if (has_position_ids) { return position_ids_int(b) + i32(s); }
  return i32(s);
}

fn element(i: u32) {
  const half = rotary_dim / 2;
  const width = head_dim - half;
  let p = i % width;
  let t = i / width;
  let h = t % heads;
  let token = t / heads;
  let b = token / seq;
  let s = token - b * seq;
  let source = b * x_b + h * x_h + s * x_s;
  let to = b * y_b + h * y_h + s * y_s;
  if (p >= half) {
    y_set(to + p + half, x(source + p + half));
    return;
  }
  var row = b * c_b + s * c_s;
  if (positions > 0) {
    let r = table_row(b, s);
    if (r < 0 || r >= i32(c_rows)) {
      if (p == 0u && h == 0u) { fail(r); }
      return;
    }
    row = u32(r) * c_s;
  }
  var one = p;
  var other = p + half;
  if (interleaved != 0) {
    one = 2u * p;
    other = one + 1u;
  }
  let c = cos_(row + p);
  let d = sin_(row + p);
  let u = x(source + one);
  let v = x(source + other);
  y_set(to + one, (u * c - v * d) * scale);
  y_set(to + other, (v * c + u * d) * scale);
}
