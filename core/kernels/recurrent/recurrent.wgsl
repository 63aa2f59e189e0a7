// groups: d * b
// group: 256
// when: h <= 2048
//
// A workgroup computes one row of the batch in one direction, step by step: products of the hidden
// state with all rows of r, which are kept in g, then the cells of its units.

const LATE = gates == 3 && lbr == 0;
const WIDTH = gates + lbr;

var<workgroup> hidden: array<f32, h>;
var<workgroup> reset: array<f32, h>;

fn rows_at_once() -> u32 {
  if (LATE) { return 2u * h; }
  return gates * h;
}
fn row_at(row: u32, u: u32) -> u32 {
  if (panels == 0) { return row * h + u; }
  return (row / 32u * h + u) * 32u + row % 32u;
}
fn product_of_hidden(row: u32) -> f32 {
  var s = 0f;
  for (var u = 0u; u < h; u++) { s = fma(hidden[u], r(row_at(row, u)), s); }
  return s;
}
fn product_of_reset(row: u32) -> f32 {
  var s = 0f;
  for (var u = 0u; u < h; u++) { s = fma(reset[u], r(row_at(row, u)), s); }
  return s;
}
fn lstm(direction: u32, j: u32, to: u32, cell: u32) -> f32 {
  let f = direction * 18u;
  let peep = direction * 3u * h + j;
  var old = c_last(cell);
  let enter = activated(g(to) + peephole(peep) * old, f);
  var keep = 1f - enter;
  if (coupled == 0) { keep = activated(g(to + 2u * h) + peephole(peep + 2u * h) * old, f); }
  let fresh = activated(g(to + 3u * h), f + 6u);
  old = keep * old + enter * fresh;
  let leave = activated(g(to + h) + peephole(peep + h) * old, f);
  c_last_set(cell, old);
  g_set(to, enter);
  g_set(to + h, leave);
  g_set(to + 2u * h, keep);
  g_set(to + 3u * h, fresh);
  return leave * activated(old, f + 12u);
}
fn gru(direction: u32, j: u32, to: u32) -> f32 {
  let f = direction * 18u;
  var update = g(to);
  var fresh = g(to + 2u * h);
  if (!LATE) {
    update = activated(update, f);
    let open = activated(g(to + h), f);
    fresh += open * g(to + 3u * h);
    g_set(to, update);
    g_set(to + h, open);
  }
  fresh = activated(fresh, f + 6u);
  g_set(to + 2u * h, fresh);
  return fresh + update * (hidden[j] - fresh);
}

fn run(at: u32, lane: u32) {
  let direction = at % d;
  let row = at / d;
  let state = (direction * b + row) * h;
  let rows = direction * gates * h;
  var valid = u32(t);
  if (has_lengths) { valid = u32(max(lengths(row), 0)); }
  for (var j = lane; j < h; j += GROUP) {
    var v = 0f;
    if (has_h_first) { v = h_first(state + j); }
    hidden[j] = v;
    v = 0f;
    if (has_c_first) { v = c_first(state + j); }
    c_last_set(state + j, v);
  }
  for (var s = 0u; s < t; s++) {
    storageBarrier();
    workgroupBarrier();
    var now = s;
    if (direction > 0u || reverse != 0) { now = t - 1u - s; }
    let over = now >= valid;
    let from_ = now * x_t + row * x_b + direction * gates * h;
    let to = now * g_t + (row * d + direction) * WIDTH * h;
    for (var q = lane; q < rows_at_once(); q += GROUP) {
      var v = product_of_hidden(rows + q);
      if (lbr == 1 && q >= 2 * h) {
        if (has_bias) { v += bias(direction * h + q - 2 * h); }
        g_set(to + q + h, v);
        v = 0f;
      }
      g_set(to + q, x(from_ + q) + v);
    }
    storageBarrier();
    if (LATE) {
      for (var j = lane; j < h; j += GROUP) {
        if (!over) {
          let open = activated(g(to + h + j), direction * 18u);
          g_set(to + j, activated(g(to + j), direction * 18u));
          g_set(to + h + j, open);
          reset[j] = open * hidden[j];
          c_last_set(state + j, reset[j]);
        }
      }
      workgroupBarrier();
      for (var j = lane; j < h; j += GROUP) {
        g_set(to + 2u * h + j, x(from_ + 2u * h + j) + product_of_reset(rows + 2u * h + j));
      }
    }
    for (var j = lane; j < h; j += GROUP) {
      let place = ((now * b + row) * d + direction) * h + j;
      var v = 0f;
      if (!over) {
        if (gates == 4) { v = lstm(direction, j, to + j, state + j); }
        else if (gates == 3) { v = gru(direction, j, to + j); }
        else {
          v = activated(g(to + j), direction * 18u);
          g_set(to + j, v);
        }
        hidden[j] = v;
      }
      y_set(place, v);
      if (has_cells && gates == 4) { cells_set(place, c_last(state + j)); }
    }
  }
  for (var j = lane; j < h; j += GROUP) { h_last_set(state + j, hidden[j]); }
}
