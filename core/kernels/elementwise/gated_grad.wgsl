// threads: n
// alike: any

fn element(i: u32) {
  let v = a(i);
  let q = v * v;
  var s: f32;
  var along: f32;
  if (activation == 2) {
    let bell = exp(q * -0.5f);
    s = 0.5f + 0.5f * erf(v * 0.70710678f);
    along = select(0.39894228f * v * bell, 0f, bell == 0f);
  } else if (activation == 3) {
    let w = 1.59576912f * v * fma(q, 0.044715f, 1f);
    s = sigmoid(w);
    along = v * s * sigmoid(-w); // not 1f - s, which cancels where s is near 1
    along = select(along * fma(q, 0.21406445f, 1.59576912f), 0f, along == 0f);
  } else {
    s = sigmoid(v * alpha);
    along = v * s * sigmoid(-v * alpha) * alpha;
  }
  var other = 1f;
  if (has_b) { other = b(i); }
  let g = dy(i);
  da_set(i, g * other * (s + along));
  if (has_db) { db_set(i, g * v * s); }
  if (has_y) { y_set(i, v * s * other); }
}
