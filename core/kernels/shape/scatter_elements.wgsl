// threads: volume(dims)
// when: reduction == 0 or type == 1
// apply: joined = joined_{reduction}_{size}
//
// The invocation at the beginning of the axis applies all updates along it in their order, so that
// results are the same in every run. The axis is the dimension along which y has no stride.

fn element(i: u32) {
  var extents = dims;
  var steps = ys;
  var inner = 1u;
  var length = 1u;
  var step = 1u;
  for (var d = 5i; d >= 0i; d--) {
    if (extents[d] > 1 && steps[d] == 0) {
      length = u32(extents[d]);
      step = inner;
    }
    inner *= u32(extents[d]);
  }
  if (i / step % length != 0u) { return; }
  for (var t = 0u; t < length; t++) {
    let j = i + t * step;
    var row = index_int(index_at(j));
    if (row < -i32(rows) || row >= i32(rows)) {
      fail(row);
      return;
    }
    if (row < 0) { row += i32(rows); }
    let to = y_at(j) + u32(row) * y_axis;
    y_set(to, joined(to, j));
  }
}
fn joined_0_1(to: u32, source: u32) -> u32 { return updates(source); }
fn joined_0_2(to: u32, source: u32) -> u32 { return updates(source); }
fn joined_0_4(to: u32, source: u32) -> u32 { return updates(source); }
fn joined_0_8(to: u32, source: u32) -> vec2u { return updates(source); }
fn joined_1_4(to: u32, source: u32) -> u32 {
  return bitcast<u32>(bitcast<f32>(y(to)) + bitcast<f32>(updates(source)));
}
fn joined_2_4(to: u32, source: u32) -> u32 {
  return bitcast<u32>(bitcast<f32>(y(to)) * bitcast<f32>(updates(source)));
}
