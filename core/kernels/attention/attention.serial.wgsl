// threads: batch * heads * q_len * 4
// group: 4
// apply: masked = masked_{mask_type}
// when: serial and v_dim <= 1024
//
// For GPUs in software: four invocations compute a query of a head, each its columns of y. All four
// compute the scores, which costs nothing: they are lanes of one vector, and there are no barriers.

const COLUMNS = (v_dim + 3) / 4;

fn element(i: u32) {
  let lane = i % 4u;
  let at = i / 4u;
  let row = at % q_len;
  let bh = at / q_len;
  let h = bh % heads;
  let b = bh / heads;
  let kv = h * kv_heads / heads;
  var end = u32(kv_len);
  var position_ = i32(row) + i32(past);
  if (has_lengths) {
    let valid = lengths(b);
    end = min(end, u32(max(valid, 0)));
    position_ = valid - i32(q_len) + i32(row);
  }
  var begin = 0u;
  if (causal > 0) { end = min(end, u32(max(position_ + i32(causal), 0))); }
  if (window > 0) { begin = u32(max(position_ - i32(window) + 1, 0)); }
  var high = LOWEST;
  var total = 0f;
  if (has_sink) {
    high = sink(h);
    total = 1f;
  }
  let query = b * q_b + h * q_h + row * q_s;
  var y_: array<f32, COLUMNS>;
  for (var j = begin; j < end; j++) {
    var s = 0f;
    let source = b * k_b + kv * k_h + j * k_s;
    for (var d = 0u; d < head_dim; d++) { s += q(query + d) * k(source + d); }
    s = score_of(s, b * m_b + h * m_h + row * m_q + j * m_k);
    if (s > LOWEST) {
      let top = max(high, s);
      let w = exp(s - top);
      let old = select(exp(high - top), 0f, total == 0f);
      total = total * old + w;
      high = top;
      let value = b * v_b + kv * v_h + j * v_s;
      for (var c = 0u; c < COLUMNS; c++) {
        let column = c * 4u + lane;
        if (column < v_dim) { y_[c] = y_[c] * old + w * v(value + column); }
      }
    }
  }
  for (var c = 0u; c < COLUMNS; c++) {
    let column = c * 4u + lane;
    if (column < v_dim) {
      var r = y_[c] / total;
      if (total == 0f) {
        r = 0f;
        if (nan_to_zero == 0) { r = quiet_nan(lane + 1u); }
      }
      y_set(b * y_b + h * y_h + row * y_s + column, r);
    }
  }
}
