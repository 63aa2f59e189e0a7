// threads: batch * kv_heads * v_dim
//
// An invocation carries one column of a head's state through all positions.

const OUTS = max(heads, kv_heads);
const EACH = OUTS / kv_heads;

fn element(i: u32) {
  let column = i % v_dim;
  let head = i / v_dim;
  let b = head / kv_heads;
  let h = head % kv_heads;
  let first = head * dim * v_dim + column;
  for (var r = 0u; r < dim; r++) {
    var before = 0f;
    if (has_past) { before = past(first + r * v_dim); }
    state_set(first + r * v_dim, before);
  }
  for (var t = 0u; t < seq; t++) {
    let at = b * seq + t;
    let row = at * kv_heads + h;
    var u = v(row * v_dim + column);
    var known = 0f;
    for (var r = 0u; r < dim; r++) {
      var s = state(first + r * v_dim);
      if (has_decay) {
        s *= decay(row * decay_dim + select(0u, r, decay_dim > 1));
        state_set(first + r * v_dim, s);
      }
      known = fma(k(row * dim + r), s, known);
    }
    if (has_beta) { u = (u - known) * beta(at * beta_heads + select(0u, h, beta_heads > 1)); }
    for (var r = 0u; r < dim; r++) {
      state_set(first + r * v_dim, fma(k(row * dim + r), u, state(first + r * v_dim)));
    }
    for (var o = h * EACH; o < (h + 1u) * EACH; o++) {
      let from_q = (at * heads + o * heads / OUTS) * dim;
      var s = 0f;
      for (var r = 0u; r < dim; r++) { s = fma(q(from_q + r), state(first + r * v_dim), s); }
      y_set((at * OUTS + o) * v_dim + column, s * scale);
    }
  }
}
