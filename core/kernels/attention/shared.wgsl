// Functions that the shaders of attention share.

// The score of a key for a query. mask_at: of its element of the mask.
fn score_of(product: f32, mask_at: u32) -> f32 {
  var s = product * scale;
  if (softcap > 0f) { s = softcap * safe_tanh(s / softcap); }
  if (has_mask) { s = masked(s, mask_at); }
  return max(s, LOWEST);
}
fn masked_f(s: f32, at: u32) -> f32 { return s + mask(at); }
fn masked_u(s: f32, at: u32) -> f32 { return select(LOWEST, s, mask(at) != 0u); }
