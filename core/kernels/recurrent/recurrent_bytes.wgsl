// groups: d
// group: 256
// when: b * ceil_div(h, 4) <= 2048
//
// A workgroup computes one direction, step by step: the hidden state of all rows as bytes over
// their range, as dynamic_quantize does, then the cells. Bytes are multiplied as integer_product
// does it.

const WORDS = (h + 3) / 4;

var<workgroup> bytes_of_h: array<u32, 2048>;

// Four elements of a column from an even place.
fn weights_of(place: u32) -> u32 {
  if (TOGETHER == 4) { return r_word(place / 4u); }
  let next = place + 2u * PANEL;
  let low = r_word(place / 4u) >> ((place & 2u) * 8u);
  return (low & 0xffffu) | ((r_word(next / 4u) >> ((next & 2u) * 8u)) << 16u);
}
fn unpacked(word: u32) -> vec4i {
  return vec4i(vec4u(word) << vec4u(24u, 16u, 8u, 0u)) >> vec4u(24u);
}
// The product of a row of bytes with a column of r.
fn product_of_bytes(direction: u32, row: u32, column: u32, step: f32, zero: i32) -> f32 {
  let width = ceil_div(4u * h, 32u) * 32u;
  let first = direction * width * (4u + 4u * WORDS);
  var at = first + 4u * width + column / PANEL * PANEL * 4u * WORDS + column % PANEL * TOGETHER;
  var own = 0i;
  if (has_r_zero) { own = i32(r_zero(direction * zeros + select(0u, column, zeros > 1))); }
  own -= select(0, 128, r_type == 2);
  var s = 0i;
  var sum = 0i;
  for (var k = 0u; k < WORDS; k++) {
    let v = unpacked(bytes_of_h[row * WORDS + k]);
    s += dot_of_bytes(v, weights_of(at));
    sum += v.x + v.y + v.z + v.w;
    at += 4u * PANEL;
  }
  let of_weights = bitcast<i32>(r_word(first / 4u + column));
  s -= own * sum + zero * (of_weights - i32(h) * own);
  return f32(s) * (factor(direction * factors + select(0u, column, factors > 1)) * step);
}

fn run(direction: u32, lane: u32) {
  let f = direction * 18u;
  let states = direction * b * h;
  for (var q = lane; q < b * h; q += GROUP) {
    var v = 0f;
    if (has_h_first) { v = h_first(states + q); }
    h_last_set(states + q, v);
    v = 0f;
    if (has_c_first) { v = c_first(states + q); }
    c_last_set(states + q, v);
  }
  for (var s = 0u; s < t; s++) {
    storageBarrier();
    workgroupBarrier();
    var now = s;
    if (direction > 0u || reverse != 0) { now = t - 1u - s; }
    var low = 0f;
    var high = 0f;
    for (var q = lane; q < b * h; q += GROUP) {
      low = max(low, -h_last(states + q));
      high = max(high, h_last(states + q));
    }
    low = -highest_of_lanes(lane, low);
    high = highest_of_lanes(lane, high);
    var step = 1f;
    if (low != high) { step = (high - low) / 255f; }
    let middle = round(clamp(-low / step, 0f, 255f));
    for (var w = lane; w < b * WORDS; w += GROUP) {
      let u = w % WORDS * 4u;
      var word = 0u;
      for (var e = 0u; e < min(4u, h - u); e++) {
        var v = h_last(states + w / WORDS * h + u + e) / step;
        if (is_nan(v)) { v = -1000f; }
        let code = clamp(round(clamp(v, -1000f, 1000f)) + middle, 0f, 255f);
        word |= (u32(code) ^ 128u) << (8u * e);
      }
      bytes_of_h[w] = word;
    }
    storageBarrier();
    workgroupBarrier();
    for (var q = lane; q < b * h; q += GROUP) {
      let row = q / h;
      let j = q % h;
      let to = ((now * b + row) * d + direction) * h + j;
      var valid = u32(t);
      if (has_lengths) { valid = u32(max(lengths(row), 0)); }
      if (now >= valid) {
        y_set(to, 0f);
        continue;
      }
      var gate: array<f32, 4>;
      for (var k = 0u; k < 4u; k++) {
        let from_ = now * x_t + row * x_b + (direction * 4u + k) * h + j;
        gate[k] = x(from_) + product_of_bytes(direction, row, k * h + j, step, i32(middle) - 128);
      }
      let peep = direction * 3u * h + j;
      var cell = c_last(states + q);
      let enter = activated(gate[0] + peephole(peep) * cell, f);
      var keep = 1f - enter;
      if (coupled == 0) { keep = activated(gate[2] + peephole(peep + 2u * h) * cell, f); }
      cell = keep * cell + enter * activated(gate[3], f + 6u);
      let v = activated(gate[1] + peephole(peep + h) * cell, f) * activated(cell, f + 12u);
      c_last_set(states + q, cell);
      h_last_set(states + q, v);
      y_set(to, v);
    }
  }
}
