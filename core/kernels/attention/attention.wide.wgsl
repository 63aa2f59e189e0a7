// tune: LANES 64 256
// groups: batch * heads * q_len
// group: 256
// apply: masked = masked_{mask_type}
// when: LANES > 64 and q_len == 1 and head_dim <= 1024 and v_dim <= 1024
//
// As attention.wgsl for one token, with four times as many invocations: SPLIT of them add up a
// column of y, each with other values.

const COLUMNS = (v_dim + 63) / 64;
const SPLIT = LANES / 64;

var<workgroup> query: array<f32, head_dim>;
var<workgroup> weights: array<f32, GROUP>;

fn run(at: u32, lane: u32) {
  let i = at % q_len;
  let bh = at / q_len;
  let h = bh % heads;
  let b = bh / heads;
  let kv = h * kv_heads / heads;
  for (var j = lane; j < head_dim; j += GROUP) { query[j] = q(b * q_b + h * q_h + i * q_s + j); }
  var end = u32(kv_len);
  var position_ = i32(i) + i32(past);
  if (has_lengths) {
    let valid = lengths(b);
    end = min(end, u32(max(valid, 0)));
    position_ = valid - i32(q_len) + i32(i);
  }
  var begin = 0u;
  if (causal > 0) { end = min(end, u32(max(position_ + i32(causal), 0))); }
  if (window > 0) { begin = u32(max(position_ - i32(window) + 1, 0)); }
  begin = broadcast(lane, begin);
  end = broadcast(lane, end);
  var high = LOWEST;
  var total = 0f;
  if (has_sink) {
    high = sink(h);
    total = 1f;
  }
  var y_: array<f32, COLUMNS>;
  for (var first = begin; first < end; first += GROUP) {
    let j = first + lane;
    var score = LOWEST;
    if (j < end) {
      var s = 0f;
      let source = b * k_b + kv * k_h + j * k_s;
      for (var d = 0u; d < head_dim; d++) { s += query[d] * k(source + d); }
      score = score_of(s, b * m_b + h * m_h + i * m_q + j * m_k);
    }
    let top = max(high, highest_of_lanes(lane, score));
    var w = 0f;
    if (score > LOWEST) { w = exp(score - top); }
    let sum = sum_of_lanes(lane, w);
    weights[lane] = w;
    workgroupBarrier();
    let old = select(exp(high - top), 0f, total == 0f);
    total = total * old + sum;
    high = top;
    let count = min(GROUP, end - first);
    for (var c = 0u; c < COLUMNS; c++) {
      let column = c * 64u + lane % 64u;
      if (column < v_dim) {
        var s = y_[c] * old;
        let source = b * v_b + kv * v_h + first * v_s + column;
        for (var t = lane / 64u; t < count; t += SPLIT) { s += weights[t] * v(source + t * v_s); }
        y_[c] = s;
      }
    }
    workgroupBarrier();
  }
  for (var c = 0u; c < COLUMNS; c++) {
    weights[lane] = y_[c];
    workgroupBarrier();
    let column = c * 64u + lane;
    if (lane < 64u && column < v_dim) {
      var r = 0f;
      for (var p = 0u; p < SPLIT; p++) { r += weights[p * 64u + lane]; }
      r /= total;
      if (total == 0f) {
        r = 0f;
        if (nan_to_zero == 0) { r = quiet_nan(lane + 1u); }
      }
      y_set(b * y_b + h * y_h + i * y_s + column, r);
    }
    workgroupBarrier();
  }
}

var<workgroup> shared_number: u32;
// The number of invocation 0, which the compiler then knows to be the same for all.
fn broadcast(lane: u32, number: u32) -> u32 {
  if (lane == 0u) { shared_number = number; }
  return workgroupUniformLoad(&shared_number);
}
