// threads: slots * ceil_div(n, 4)
// when: transposed == 0 and block * bits % 32 == 0
// apply: zero_of = zero_of_{zero_type}
//
// An invocation computes 4 elements of a slot's row of y.

const EACH = 32 / bits;
const BLOCKS = (k + block - 1) / block;
const WORDS = block * bits / 32;

fn element(i: u32) {
  let across = ceil_div(n, 4u);
  let slot = i / across;
  let first = i % across * 4u;
  var expert = index_int(slot);
  if (expert < -i32(experts) || expert >= i32(experts)) {
    if (first == 0u) { fail(expert); }
    return;
  }
  if (expert < 0) { expert += i32(experts); }
  let columns = min(first + vec4u(0u, 1u, 2u, 3u), vec4u(n - 1u));
  let column = u32(expert) * n + columns;
  let s = four_columns(column, slot / each * a_row);
  for (var j = 0u; j < 4u; j++) {
    if (first + j < n) {
      var v = s[j];
      if (has_bias) { v += bias(u32(expert) * n + first + j); }
      y_set(slot * n + first + j, v);
    }
  }
}
