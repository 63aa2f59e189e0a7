// threads: items * batch * volume(y_size) * n
// apply: finished = finished_{y_type}; activate = activate_{activation}
//
// An invocation sums up one element, four bytes at a time. Bytes are multiplied as signed ones, as
// pack_integer has stored the weights: with a' and w' for them and for their zero points,
//
//     y = sum(a'w') - b_zero sum(a') - a_zero (sum(w') - k b_zero)

// Functions, since sizes may follow registers.
fn depth() -> u32 { return u32(taps[0] * taps[1] * taps[2]) * u32(c); }
fn padded() -> u32 { return ceil_div(depth(), 4u) * 4u; }
fn is_matrix() -> bool {
  return taps[0] == 1 && taps[1] == 1 && taps[2] == 1
    && x_size[0] == 1 && x_size[1] == 1 && x_size[2] == 1;
}

// Where position `row` of the output begins to read, without the padding; -1 outside of a.
fn place_of(row: u32, tap: u32) -> i32 {
  if (is_matrix()) { return i32(row); }
  let volume_ = u32(y_size[0] * y_size[1] * y_size[2]);
  let at = row % volume_;
  let o = vec3i(
    i32(at / u32(y_size[1] * y_size[2])), i32(at / u32(y_size[2]) % u32(y_size[1])),
    i32(at % u32(y_size[2]))
  );
  let t = vec3i(
    i32(tap / u32(taps[1] * taps[2])), i32(tap / u32(taps[2]) % u32(taps[1])),
    i32(tap % u32(taps[2]))
  );
  let extent = vec3i(x_size[0], x_size[1], x_size[2]);
  let p = o * vec3i(stride[0], stride[1], stride[2])
    + t * vec3i(dilation[0], dilation[1], dilation[2]) - vec3i(pad[0], pad[1], pad[2]);
  if (any(p < vec3i(0)) || any(p >= extent)) { return -1; }
  return ((i32(row / volume_) * extent.x + p.x) * extent.y + p.y) * extent.z + p.z;
}
// Byte k of what a position reads; a_zero outside.
fn byte_of(from_: u32, row: u32, k: u32, zero: i32) -> i32 {
  if (k >= depth()) { return 0; }
  let place = place_of(row, k / c);
  if (place < 0) { return zero; }
  return i32(a(from_ + u32(place) * a_row + k % c)) - select(0, 128, a_type == 2);
}
// The sums of weights that the machine beside the GPU has packed as narrow ones are above these, and
// moved (integer_product.h).
const MARK = 0x1000000i;
const SUM_OFFSET = 0x210000i;
// Four elements of a column from an even place.
fn weights_of(place: u32, together: u32) -> u32 {
  if (together == 4u) { return w_word(place / 4u); }
  let next = place + 2u * PANEL;
  let first = w_word(place / 4u) >> ((place & 2u) * 8u);
  return (first & 0xffffu) | ((w_word(next / 4u) >> ((next & 2u) * 8u)) << 16u);
}

fn element(i: u32) {
  let column = i % n;
  let rows = u32(y_size[0] * y_size[1] * y_size[2]) * batch;
  let row = i / n % rows;
  let item = i / n / rows;
  let at = item * column_item + column;
  var za = 0i;
  if (has_a_zero) { za = i32(a_zero(select(0u, row, a_zeros > 1))); }
  za -= select(0, 128, a_type == 2);
  var zb = 0i;
  if (has_b_zero) { zb = i32(b_zero(select(0u, at, b_zeros > 1))); }
  zb -= select(0, 128, b_type == 2);
  let width = ceil_div(n, 32u) * 32u;
  let deep = padded();
  let first = item * w_each * width * (4u + deep);
  var of_weights = bitcast<i32>(w_word(first / 4u + column));
  var together = TOGETHER;
  if (TOGETHER == 2u && depth() % 8u == 0u && depth() <= 0x8000u && of_weights >= MARK) {
    together = 4u;
    of_weights = (of_weights >> 8u) - SUM_OFFSET;
  }
  var to = first + 4u * width + column / PANEL * PANEL * deep + column % PANEL * together;
  let from_ = item * a_item;
  var s = 0i;
  var sum = 0i;
  for (var k = 0u; k < deep; k += 4u) {
    let v = vec4i(
      byte_of(from_, row, k, za), byte_of(from_, row, k + 1u, za),
      byte_of(from_, row, k + 2u, za), byte_of(from_, row, k + 3u, za)
    );
    s += dot_of_bytes(v, weights_of(to, together));
    sum += v.x + v.y + v.z + v.w;
    to += 4u * PANEL;
  }
  s -= zb * sum + za * (of_weights - i32(depth()) * zb);
  if (has_sum_bias) { s += sum_bias(at); }
  let place = item * y_item + row * y_row + column;
  y_set(place, finished(s, at, place));
}
fn scaled(s: i32, at: u32) -> f32 {
  var v = 1f;
  if (has_factor) { v = factor(select(0u, at, factors > 1)); }
  if (has_a_scale) { v *= a_scale(0u); }
  return f32(s) * v;
}
fn rounded(s: i32, at: u32, zero: f32) -> f32 {
  return round(clamp(scaled(s, at), f32(low) - zero, f32(high) - zero)) + zero;
}
fn finished_f(s: i32, at: u32, place: u32) -> f32 {
  var v = scaled(s, at);
  if (has_bias) { v += bias(at); }
  v = activate(v);
  if (has_residual) { v += residual(place); }
  return v;
}
fn zero_of_y() -> f32 {
  if (has_y_zero) { return f32(y_zero(0u)); }
  return 0f;
}
fn finished_i(s: i32, at: u32, place: u32) -> i32 {
  if (y_type == 6) { return s; }
  return i32(rounded(s, at, zero_of_y()));
}
fn finished_u(s: i32, at: u32, place: u32) -> u32 { return u32(rounded(s, at, zero_of_y())); }
