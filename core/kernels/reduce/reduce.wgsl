// groups: outer * inner
// group: 64
// when: type == 1
// alone: serial or outer * inner >= 64 and (n <= 64 or x_inner == 1 and inner >= 64 and n <= 1024)
// apply: entered = entered_{op}; joined = joined_{op}
// apply: finished = finished_{op}; begin = begin_{op}
//
// A workgroup computes one element of y. What an element of x enters the sum as, how two sums join,
// and what y is of the sum, by op.

var<workgroup> parts: array<f32, GROUP>;

fn all_of_lanes(lane: u32, v: f32) -> f32 {
  workgroupBarrier();
  parts[lane] = v;
  for (var half = GROUP / 2u; half > 0u; half /= 2u) {
    workgroupBarrier();
    if (lane < half) { parts[lane] = joined(parts[lane], parts[lane + half]); }
  }
  workgroupBarrier();
  return parts[0];
}

fn run(at: u32, lane: u32) {
  let o = at / inner;
  let column = at - o * inner;
  let source = o * x_outer + column * x_inner;
  var high = 0f;
  if (op == 9) {
    high = LOWEST;
    for (var r = lane; r < n; r += GROUP) { high = max(high, x(source + r * x_n)); }
    high = highest_of_lanes(lane, high);
  }
  var s = begin(n);
  for (var r = lane; r < n; r += GROUP) { s = joined(s, entered(x(source + r * x_n), high)); }
  s = all_of_lanes(lane, s);
  if (lane == 0u) { y_set(o * y_outer + column, finished(s, high)); }
}

fn begin_sum(c: u32) -> f32 { return 0f; }
fn begin_mean(c: u32) -> f32 { return 0f; }
fn begin_max(c: u32) -> f32 { return infinity(1u + c); }
fn begin_min(c: u32) -> f32 { return infinity(c - c); }
fn begin_prod(c: u32) -> f32 { return 1f; }
fn begin_l1(c: u32) -> f32 { return 0f; }
fn begin_l2(c: u32) -> f32 { return 0f; }
fn begin_sum_square(c: u32) -> f32 { return 0f; }
fn begin_log_sum(c: u32) -> f32 { return 0f; }
fn begin_log_sum_exp(c: u32) -> f32 { return 0f; }
fn entered_sum(v: f32, high: f32) -> f32 { return v; }
fn entered_mean(v: f32, high: f32) -> f32 { return v; }
fn entered_max(v: f32, high: f32) -> f32 { return v; }
fn entered_min(v: f32, high: f32) -> f32 { return v; }
fn entered_prod(v: f32, high: f32) -> f32 { return v; }
fn entered_l1(v: f32, high: f32) -> f32 { return abs(v); }
fn entered_l2(v: f32, high: f32) -> f32 { return v * v; }
fn entered_sum_square(v: f32, high: f32) -> f32 { return v * v; }
fn entered_log_sum(v: f32, high: f32) -> f32 { return v; }
fn entered_log_sum_exp(v: f32, high: f32) -> f32 { return exp(v - high); }
fn joined_sum(u: f32, v: f32) -> f32 { return u + v; }
fn joined_mean(u: f32, v: f32) -> f32 { return u + v; }
fn joined_max(u: f32, v: f32) -> f32 {
  if (is_nan(u)) { return u; }
  if (is_nan(v)) { return v; }
  return max(u, v);
}
fn joined_min(u: f32, v: f32) -> f32 {
  if (is_nan(u)) { return u; }
  if (is_nan(v)) { return v; }
  return min(u, v);
}
fn joined_prod(u: f32, v: f32) -> f32 { return u * v; }
fn joined_l1(u: f32, v: f32) -> f32 { return u + v; }
fn joined_l2(u: f32, v: f32) -> f32 { return u + v; }
fn joined_sum_square(u: f32, v: f32) -> f32 { return u + v; }
fn joined_log_sum(u: f32, v: f32) -> f32 { return u + v; }
fn joined_log_sum_exp(u: f32, v: f32) -> f32 { return u + v; }
fn finished_sum(s: f32, high: f32) -> f32 { return s; }
fn finished_mean(s: f32, high: f32) -> f32 { return s / f32(n); }
fn finished_max(s: f32, high: f32) -> f32 { return s; }
fn finished_min(s: f32, high: f32) -> f32 { return s; }
fn finished_prod(s: f32, high: f32) -> f32 { return s; }
fn finished_l1(s: f32, high: f32) -> f32 { return s; }
fn finished_l2(s: f32, high: f32) -> f32 { return sqrt(s); }
fn finished_sum_square(s: f32, high: f32) -> f32 { return s; }
fn finished_log_sum(s: f32, high: f32) -> f32 { return log(s); }
fn finished_log_sum_exp(s: f32, high: f32) -> f32 { return log(s) + high; }
