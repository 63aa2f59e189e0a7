// Functions that the shaders of recurrent layers share.

// The activation whose six numbers begin at `at`: kind, a, b, shift, low, high.
fn activated(v: f32, at: u32) -> f32 {
  var w = select(table(at + 2u), table(at + 1u), v < 0f) * v + table(at + 3u);
  if (table(at) == 1f) { w = sigmoid(v); }
  if (table(at) == 2f) { w = table(at + 1u) * safe_tanh(table(at + 2u) * v); }
  return clamped(w, table(at + 4u), table(at + 5u));
}
fn peephole(place: u32) -> f32 {
  if (has_peepholes) { return peepholes(place); }
  return 0f;
}
