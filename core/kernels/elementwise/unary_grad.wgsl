// threads: volume(dims)
// apply: slope = slope_{op}
// alike: any

fn element(i: u32) { dx_set(dx_at(i), slope(dy(dy_at(i)), x(x_at(i)))); }

fn slope_step(g: f32, v: f32) -> f32 { return select(alpha * g, g, v > beta); }
fn slope_sigmoid(g: f32, v: f32) -> f32 { return g * v * (1f - v); }
fn slope_tanh(g: f32, v: f32) -> f32 { return g * (1f - v * v); }
fn slope_softsign(g: f32, v: f32) -> f32 { return g * (1f - abs(v)) * (1f - abs(v)); }
fn slope_hard_swish(g: f32, v: f32) -> f32 {
  return g * select(select(1f, v * (1f / 3f) + 0.5f, v < 3f), 0f, v <= -3f);
}
fn slope_elu(g: f32, v: f32) -> f32 {
  if (v > 0f) { return g; }
  return g * alpha * exp(beta * v);
}
fn slope_mish(g: f32, v: f32) -> f32 {
  let z = min(v, 20f);
  let e = exp(z);
  let w = e * (e + 2f);
  let r = 1f / (w + 2f);
  return g * (w * r + select(z * 4f * e * (e + 1f) * r * r, 0f, e == 0f));
}
