// threads: inner
// when: reduction == 0 or type == 1
// apply: joined = joined_{reduction}_{size}
//
// An invocation writes one column of all updates in their order, so that sums are the same in every
// run and no two invocations write one element.

fn element(i: u32) {
  var first = 0u;
  var extents = sizes;
  var steps = strides;
  for (var c = 0u; c < count; c++) {
    var to = 0u;
    for (var d = 0u; d < depth; d++) {
      var p = index_int(first);
      first++;
      if (p < -extents[d] || p >= extents[d]) {
        if (i == 0u) { fail(p); }
        return;
      }
      if (p < 0) { p += extents[d]; }
      to += u32(p) * u32(steps[d]);
    }
    y_set(to + i, joined(to + i, c * inner + i));
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
