// threads: items * ceil_div(n, 32) * 32
//
// An invocation packs a column as pack_integer.c does on the machine beside the GPU, whose steps
// may read it: panels of PANEL columns in which TOGETHER elements of a column lie side by side.

fn element(i: u32) {
  let width = ceil_div(n, 32u) * 32u;
  let rows = u32(taps * c);
  let padded = ceil_div(rows, 4u) * 4u;
  let column = i % width;
  let first = i / width * (width * (4u + padded));
  let source = i / width * item_stride + column * n_stride;
  let to = first + 4u * width + column / PANEL * PANEL * padded + column % PANEL * TOGETHER;
  let flip = select(0u, 128u, type_code == 2);
  var sum = 0i;
  for (var k = 0u; k < padded; k++) {
    var v = 0u;
    if (k < rows && column < n) {
      v = w(source + k / c * tap_stride + k % c * c_stride) ^ flip;
      sum += bitcast<i32>(v << 24u) >> 24u;
    }
    y_set(to + k / TOGETHER * TOGETHER * PANEL + k % TOGETHER, v);
  }
  let bits = bitcast<u32>(sum);
  for (var part = 0u; part < 4u; part++) {
    y_set(first + 4u * column + part, (bits >> (8u * part)) & 0xffu);
  }
}
