// threads: n if unpack else (n * bits + 7) // 8
// apply: convert = convert_{unpack}
//
// Elements lie without gaps, the low bits first.

fn element(i: u32) { y_set(i, convert(i)); }
fn convert_1(i: u32) -> u32 {
  let first = i * bits;
  var v = x(first / 8u) >> (first % 8u);
  if (first % 8u + bits > 8u) { v |= x(first / 8u + 1u) << (8u - first % 8u); }
  return v & ((1u << bits) - 1u);
}
fn convert_0(i: u32) -> u32 {
  var byte = 0u;
  for (var bit = 0u; bit < 8u; bit++) {
    let at = i * 8u + bit;
    let j = at / bits;
    if (j < n) { byte |= ((x(j) >> (at % bits)) & 1u) << bit; }
  }
  return byte;
}
