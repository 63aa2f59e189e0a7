// threads: outer * inner
// apply: plus = plus_{type}; zero = zero_{type}

fn element(i: u32) {
  let o = i / inner;
  let column = i - o * inner;
  var s = zero();
  for (var step = 0u; step < n; step++) {
    var r = step;
    if (reverse != 0) { r = n - 1u - step; }
    let v = x(o * x_outer + r * inner + column);
    let before = s;
    s = plus(s, v);
    if (exclusive != 0) { y_set(o * y_outer + r * inner + column, before); }
    else { y_set(o * y_outer + r * inner + column, s); }
  }
}
fn plus_f(u: f32, v: f32) -> f32 { return u + v; }
fn plus_i(u: i32, v: i32) -> i32 { return u + v; }
fn plus_l(u: vec2u, v: vec2u) -> vec2u { return long_add(u, v); }
fn zero_f() -> f32 { return 0f; }
fn zero_i() -> i32 { return 0i; }
fn zero_l() -> vec2u { return vec2u(0u); }
