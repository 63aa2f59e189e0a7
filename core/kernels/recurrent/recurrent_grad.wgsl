// groups: d * b
// group: 256
// when: h <= 2048
//
// A workgroup goes back through the time steps of one row of the batch in one direction: gradients
// at the gates of its units, then, through products with rt, those of the hidden state before.

const LATE = gates == 3 && lbr == 0;
const WIDTH = gates + lbr;

// with respect to the hidden state; to the cell, or to the product of a GRU's last gate
var<workgroup> slope: array<f32, h>;
var<workgroup> inner: array<f32, h>;

// Through an activation whose result was v; 0 at its bounds.
fn back(slope_: f32, v: f32, at: u32) -> f32 {
  if (!(v > table(at + 4u) && v < table(at + 5u))) { return 0f; }
  let p = table(at + 1u);
  let q = table(at + 2u);
  if (table(at) == 1f) { return slope_ * (v * (1f - v)); }
  if (table(at) == 2f) { return slope_ * (p * q - q / p * (v * v)); }
  return slope_ * select(q, p, v < 0f);
}
fn lstm(direction: u32, j: u32, from_: u32, to: u32, cell: f32, before: f32) {
  let f = direction * 18u;
  let peep = direction * 3u * h + j;
  let enter = g(from_);
  let leave = g(from_ + h);
  let keep = g(from_ + 2u * h);
  let fresh = g(from_ + 3u * h);
  let shown = activated(cell, f + 12u);
  let d_leave = back(slope[j] * shown, leave, f);
  let d_cell = inner[j] + back(slope[j] * leave, shown, f + 12u) + peephole(peep + h) * d_leave;
  var d_keep = d_cell * before;
  var d_enter = d_cell * fresh;
  if (coupled != 0) {
    d_enter -= d_keep;
    d_keep = 0f;
  }
  d_enter = back(d_enter, enter, f);
  d_keep = back(d_keep, keep, f);
  inner[j] = d_cell * keep + peephole(peep) * d_enter + peephole(peep + 2u * h) * d_keep;
  slope[j] = 0f;
  dx_set(to, d_enter);
  dx_set(to + h, d_leave);
  dx_set(to + 2u * h, d_keep);
  dx_set(to + 3u * h, back(d_cell * enter, fresh, f + 6u));
}
fn gru(direction: u32, j: u32, from_: u32, to: u32, before: f32) {
  let f = direction * 18u;
  let update = g(from_);
  let fresh = g(from_ + 2u * h);
  let d_fresh = back(slope[j] * (1f - update), fresh, f + 6u);
  dx_set(to, back(slope[j] * (before - fresh), update, f));
  dx_set(to + 2u * h, d_fresh);
  slope[j] *= update;
  inner[j] = 0f;
  if (!LATE) {
    let open = g(from_ + h);
    dx_set(to + h, back(d_fresh * g(from_ + 3u * h), open, f));
    inner[j] = d_fresh * open;
  }
}
// The product of gradients at the first `count` gates' units, from `to` on, with a row of rt.
fn through(to: u32, count: u32, row: u32) -> f32 {
  var s = 0f;
  for (var k = 0u; k < count; k++) { s = fma(dx(to + k), rt(row + k), s); }
  return s;
}

fn run(at: u32, lane: u32) {
  let direction = at % d;
  let row = at / d;
  let state = (direction * b + row) * h;
  var valid = u32(t);
  if (has_lengths) { valid = u32(max(lengths(row), 0)); }
  for (var j = lane; j < h; j += GROUP) {
    slope[j] = 0f;
    inner[j] = 0f;
    if (has_dh_last) { slope[j] = dh_last(state + j); }
    if (has_dc_last) { inner[j] = dc_last(state + j); }
  }
  for (var s = t; s > 0; s--) {
    var now = u32(s - 1);
    var first = now == 0u;
    var earlier = now - 1u;
    if (direction > 0u || reverse != 0) {
      now = u32(t - s);
      first = now + 1u == valid || now + 1u == t;
      earlier = now + 1u;
    }
    let over = now >= valid;
    let place = ((now * b + row) * d + direction) * h;
    let previous = ((earlier * b + row) * d + direction) * h;
    let from_ = ((now * b + row) * d + direction) * WIDTH * h;
    let to = ((now * b + row) * d + direction) * gates * h;
    for (var j = lane; j < h; j += GROUP) {
      if (over) {
        for (var k = 0u; k < gates; k++) { dx_set(to + k * h + j, 0f); }
        if (gates == 3) { inner[j] = 0f; }
        continue;
      }
      if (has_dy) { slope[j] += dy(place + j); }
      var hidden = 0f;
      var cell = 0f;
      if (!first) {
        hidden = y(previous + j);
        if (gates == 4) { cell = cells(previous + j); }
      } else {
        if (has_h_first) { hidden = h_first(state + j); }
        if (has_c_first) { cell = c_first(state + j); }
      }
      if (gates == 4) { lstm(direction, j, from_ + j, to + j, cells(place + j), cell); }
      else if (gates == 3) { gru(direction, j, from_ + j, to + j, hidden); }
      else {
        dx_set(to + j, back(slope[j], y(place + j), direction * 18u));
        slope[j] = 0f;
      }
    }
    storageBarrier();
    workgroupBarrier();
    if (LATE) { // its r, whose gradient comes through the last gate's weights
      for (var j = lane; j < h; j += GROUP) {
        if (over) { continue; }
        var hidden = 0f;
        if (!first) { hidden = y(previous + j); }
        else if (has_h_first) { hidden = h_first(state + j); }
        let open = g(from_ + h + j);
        let s_ = through(to + 2u * h, h, ((direction * h + j) * gates + 2u) * h);
        dx_set(to + h + j, back(hidden * s_, open, direction * 18u));
        slope[j] += open * s_;
      }
      storageBarrier();
      workgroupBarrier();
    }
    for (var j = lane; j < h; j += GROUP) {
      let weights = (direction * h + j) * gates * h;
      var v = through(to, select(gates, 2u, gates == 3) * h, weights);
      if (lbr == 1) {
        for (var k = 0u; k < h; k++) { v = fma(inner[k], rt(weights + 2u * h + k), v); }
      }
      slope[j] += v;
    }
    workgroupBarrier();
  }
  for (var j = lane; j < h; j += GROUP) {
    dh_set(state + j, slope[j]);
    dc_set(state + j, inner[j]);
  }
}
