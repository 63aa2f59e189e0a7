// groups: ceil_div(n, 256)
// group: 256
//
// A workgroup updates a block. The formulas are in optimizer.c: both moments are bytes of the
// block's largest value, rounded by chance, which depends on the element and the step.

fn number() -> f32 {
  let n64 = step(0u);
  return f32(n64.x) + 4294967296f * f32(n64.y);
}
fn correction(rest: f32) -> f32 { return -expm1(number() * log1p(-rest)); }

fn run(at: u32, lane: u32) {
  let i = at * 256u + lane;
  let inside = i < n;
  let lr = learning_rate(0u);
  var old = 0f;
  var d = 0f;
  var p = 0f;
  var q = 0f;
  if (inside) {
    old = x(i);
    d = g(i);
    if (has_scale) { d *= scale(0u); }
    if (form == 1) { d = fma(old, weight_decay, d); }
    p = f32(m(i)) * (m_largest(at) / 127f);
    q = f32(v(i) + 1u) * (v_largest(at) / 256f);
  }
  p = fma(d - p, rest1, p);
  q = q * q;
  q = sqrt(fma(fma(d, d, -q), rest2, q));
  let c1 = correction(rest1);
  let c2 = sqrt(correction(rest2));
  let decayed = 1f - lr * weight_decay;
  if (inside) {
    var r = 0f;
    if (form == 2) { r = (old - p * (lr * c2 / c1) / (q + epsilon)) * decayed; }
    else {
      var before = decayed;
      if (form == 1) { before = 1f; }
      r = old * before - p * (lr / c1) / fma(q, 1f / c2, epsilon);
    }
    x_set(i, r);
  } else {
    p = 0f;
    q = 0f;
  }
  let high_p = highest_of_lanes(lane, abs(p));
  let high_q = highest_of_lanes(lane, q);
  if (lane == 0u) {
    m_largest_set(at, high_p);
    v_largest_set(at, high_q);
  }
  var scale_p = 0f;
  var scale_q = 0f;
  if (high_p > 0f) { scale_p = 127f / high_p; }
  if (high_q > 0f) { scale_q = 256f / high_q; }
  // the hash "lowbias32" (Wellons 2018, https://nullprogram.com/blog/2018/07/31)
  var h = i * 0x9e3779b9u + step(0u).x * 0x85ebca6bu;
  h ^= h >> 16u;
  h *= 0x7feb352du;
  h ^= h >> 15u;
  h *= 0x846ca68bu;
  h ^= h >> 16u;
  if (inside) {
    let up = f32(h & 0xffffu) / 65536f;
    let up2 = f32(h >> 16u) / 65536f;
    m_set(i, i32(floor(clamp(fma(p, scale_p, 127f + up), 0f, 254f))) - 127);
    v_set(i, u32(floor(clamp(fma(q, scale_q, up2 - 1f), 0f, 255f))));
  }
}
