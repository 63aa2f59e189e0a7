// threads: ceil_div(n, 4)
// apply: updated = rule_{rule}
// alike: any
// vary: n
//
// An invocation updates four elements: what all elements of a step share is computed once for them.
// The formulas are in optimizer.c. beta1 ^ n is the exponential of n log(beta1), where log(1 - rest)
// is exact for a small rest.

var<private> rate: f32;
var<private> correction1: f32;
var<private> correction2: f32;

fn element(i: u32) {
  rate = learning_rate(0u);
  if (rule == 0) {
    correction1 = correction(rest1);
    correction2 = sqrt(correction(rest2));
  }
  for (var at = i; at < n; at += ceil_div(n, 4u)) { x_set(at, updated(at)); }
}

fn number() -> f32 {
  let n64 = step(0u);
  return f32(n64.x) + 4294967296f * f32(n64.y);
}
fn is_first() -> bool { return all(step(0u) == vec2u(1u, 0u)); }
// 1 - (1 - rest) ^ number
fn correction(rest: f32) -> f32 { return -expm1(number() * log1p(-rest)); }
fn decayed() -> f32 { return 1f - rate * weight_decay; }
fn gradient(i: u32, v: f32) -> f32 {
  var d = g(i);
  if (has_scale) { d *= scale(0u); }
  if (form == 1) { d += v * weight_decay; }
  return d;
}

fn rule_adam(i: u32) -> f32 {
  let v = x(i);
  let d = gradient(i, v);
  var m = s(i);
  var q = t(i);
  m = fma(d - m, rest1, m);
  q = fma(fma(d, d, -q), rest2, q);
  s_set(i, m);
  t_set(i, q);
  let size = rate / correction1;
  if (form == 2) { return (v - m * (size * correction2) / (sqrt(q) + epsilon)) * decayed(); }
  var before = decayed();
  if (form == 1) { before = 1f; }
  return v * before - m * size / fma(sqrt(q), 1f / correction2, epsilon);
}
fn rule_sgd(i: u32) -> f32 {
  let v = x(i);
  var d = gradient(i, v);
  if (has_s) {
    var keep = f32(momentum);
    var take = 1f - dampening;
    if (is_first()) {
      keep = 0f;
      take = 1f;
    }
    let m = s(i) * keep + d * take;
    s_set(i, m);
    if (nesterov != 0) { d += m * momentum; } else { d = m; }
  }
  return v - d * rate;
}
fn rule_adagrad(i: u32) -> f32 {
  let v = x(i);
  let d = gradient(i, v);
  let q = s(i) + d * d;
  s_set(i, q);
  return v - d * rate / (sqrt(q) + epsilon);
}
fn rule_rmsprop(i: u32) -> f32 {
  let v = x(i);
  var d = gradient(i, v);
  var q = s(i);
  q = fma(fma(d, d, -q), rest1, q);
  s_set(i, q);
  var r = q;
  if (has_t) {
    var m = t(i);
    m = fma(d - m, rest1, m);
    t_set(i, m);
    r -= m * m;
  }
  d /= sqrt(max(r, 0f)) + epsilon;
  if (has_u) {
    d += u(i) * momentum;
    u_set(i, d);
  }
  return v - d * rate;
}
fn rule_lion(i: u32) -> f32 {
  let v = x(i);
  var d = g(i);
  if (has_scale) { d *= scale(0u); }
  let m = s(i);
  let c = fma(d - m, rest1, m);
  s_set(i, fma(d - m, rest2, m));
  var before = decayed();
  if (form == 1) { before = 1f; }
  return v * before - sign(c) * rate;
}
