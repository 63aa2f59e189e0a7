// tune: QUERIES 1 8
// groups: batch * heads * ceil_div(q_len, QUERIES)
// group: 64
// apply: masked = masked_{mask_type}
// when: QUERIES > 1 and q_len > 1 and QUERIES * max(head_dim, v_dim) <= 2048
//
// As attention.wgsl, for QUERIES queries of one head: a key and a value are read once for them. Of a
// block of GROUP keys, an invocation has one, and the scores of a query belong to PARTS neighbours.

const COLUMNS = (v_dim + 63) / 64;
const PARTS = 64 / QUERIES;

var<workgroup> queries: array<f32, QUERIES * head_dim>;
var<workgroup> scores: array<f32, QUERIES * GROUP>;
var<workgroup> highest: array<f32, GROUP>;
var<workgroup> sums: array<f32, GROUP>;
var<workgroup> factors: array<f32, QUERIES>;

fn run(at: u32, lane: u32) {
  let tiles = ceil_div(q_len, QUERIES);
  let i0 = at % tiles * QUERIES;
  let bh = at / tiles;
  let h = bh % heads;
  let b = bh / heads;
  let kv = h * kv_heads / heads;
  for (var j = lane; j < QUERIES * head_dim; j += GROUP) {
    let i = min(i0 + j / head_dim, q_len - 1u);
    queries[j] = q(b * q_b + h * q_h + i * q_s + j % head_dim);
  }
  var limit = u32(kv_len);
  var position0 = i32(past);
  if (has_lengths) {
    let valid = lengths(b);
    limit = min(limit, u32(max(valid, 0)));
    position0 = valid - i32(q_len);
  }
  var end = limit;
  var begin = 0u;
  if (causal > 0) {
    let last = position0 + i32(min(i0 + QUERIES, q_len) - 1u);
    end = min(end, u32(max(last + i32(causal), 0)));
  }
  if (window > 0) { begin = u32(max(position0 + i32(i0) - i32(window) + 1, 0)); }
  begin = broadcast(lane, begin);
  end = broadcast(lane, end);
  var high = LOWEST;
  var total = 0f;
  if (has_sink) {
    high = sink(h);
    total = 1f;
  }
  var y_: array<f32, QUERIES * COLUMNS>;
  for (var first = begin; first < end; first += GROUP) {
    let j = first + lane;
    var s = array<f32, QUERIES>();
    if (j < end) {
      let source = b * k_b + kv * k_h + j * k_s;
      for (var d = 0u; d < head_dim; d++) {
        let x = k(source + d);
        for (var r = 0u; r < QUERIES; r++) { s[r] += queries[r * head_dim + d] * x; }
      }
    }
    for (var r = 0u; r < QUERIES; r++) {
      let i = min(i0 + r, q_len - 1u);
      var score = LOWEST;
      if (j < limit && in_reach(j, position0 + i32(i))) {
        score = score_of(s[r], b * m_b + h * m_h + i * m_q + j * m_k);
      }
      scores[r * GROUP + lane] = score;
    }
    workgroupBarrier();
    let own = lane / PARTS * GROUP + lane % PARTS;
    var top = high;
    for (var t = 0u; t < GROUP; t += PARTS) { top = max(top, scores[own + t]); }
    highest[lane] = top;
    workgroupBarrier();
    for (var p = 0u; p < PARTS; p++) { top = max(top, highest[lane / PARTS * PARTS + p]); }
    var sum = 0f;
    for (var t = 0u; t < GROUP; t += PARTS) {
      let score = scores[own + t];
      var w = 0f;
      if (score > LOWEST) { w = exp(score - top); }
      scores[own + t] = w;
      sum += w;
    }
    sums[lane] = sum;
    let old = select(exp(high - top), 0f, total == 0f);
    if (lane % PARTS == 0u) { factors[lane / PARTS] = old; }
    workgroupBarrier();
    total *= old;
    for (var p = 0u; p < PARTS; p++) { total += sums[lane / PARTS * PARTS + p]; }
    high = top;
    let count = min(GROUP, end - first);
    for (var c = 0u; c < COLUMNS; c++) {
      let column = c * GROUP + lane;
      if (column < v_dim) {
        for (var r = 0u; r < QUERIES; r++) { y_[c * QUERIES + r] *= factors[r]; }
        let source = b * v_b + kv * v_h + first * v_s + column;
        for (var t = 0u; t < count; t++) {
          let x = v(source + t * v_s);
          for (var r = 0u; r < QUERIES; r++) { y_[c * QUERIES + r] += scores[r * GROUP + t] * x; }
        }
      }
    }
    workgroupBarrier();
  }
  if (lane % PARTS == 0u) { factors[lane / PARTS] = total; }
  workgroupBarrier();
  for (var r = 0u; r < min(u32(QUERIES), q_len - i0); r++) {
    for (var c = 0u; c < COLUMNS; c++) {
      let column = c * GROUP + lane;
      if (column < v_dim) {
        let all_ = factors[r];
        var e = y_[c * QUERIES + r] / all_;
        if (all_ == 0f) {
          e = 0f;
          if (nan_to_zero == 0) { e = quiet_nan(lane + 1u); }
        }
        y_set(b * y_b + h * y_h + (i0 + r) * y_s + column, e);
      }
    }
  }
}
// Whether a query sees a key.
fn in_reach(j: u32, position_: i32) -> bool {
  if (causal > 0 && i32(j) >= position_ + i32(causal)) { return false; }
  return window <= 0 || i32(j) > position_ - i32(window);
}

var<workgroup> shared_number: u32;
fn broadcast(lane: u32, number: u32) -> u32 {
  if (lane == 0u) { shared_number = number; }
  return workgroupUniformLoad(&shared_number);
}
