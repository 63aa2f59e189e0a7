// threads: batch * count * inner

fn element(i: u32) {
  let c = i / inner;
  let column = i - c * inner;
  var source = c / count * x_batch;
  var extents = sizes;
  var steps = strides;
  for (var d = 0u; d < depth; d++) {
    var p = index_int(c * depth + d);
    if (p < -extents[d] || p >= extents[d]) {
      if (column == 0u) { fail(p); }
      return;
    }
    if (p < 0) { p += extents[d]; }
    source += u32(p) * u32(steps[d]);
  }
  y_set(i, x(source + column));
}
