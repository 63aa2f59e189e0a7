// threads: outer * n * inner
// when: type < 11 and (type > 1 or n <= 256 or k > 256) and outer * inner * n * n <= 4294967296
// apply: above = above_{type}
//
// An invocation counts the elements of its column that come before its own: that many places after
// the first one it goes, if there are so many. NaN is greater than any number; ties go to the lower
// index.

fn element(i: u32) {
  let o = i / (n * inner);
  let own = (i / inner) % n;
  let column = i % inner;
  let source = o * n * inner + column;
  var rank = 0u;
  for (var j = 0u; j < n; j++) {
    let at = source + j * inner;
    let more = above(at, i);
    let less = above(i, at);
    if (select(less, more, largest != 0) || (!more && !less && j < own)) { rank++; }
  }
  if (rank < k) {
    let to = (o * k + rank) * inner + column;
    values_set(to, x(i));
    indices_set(to, vec2u(own, 0u));
  }
}
fn above_f(p: u32, q: u32) -> bool { return x(p) > x(q) || (is_nan(x(p)) && !is_nan(x(q))); }
fn above_i(p: u32, q: u32) -> bool { return x(p) > x(q); }
fn above_u(p: u32, q: u32) -> bool { return x(p) > x(q); }
fn above_l(p: u32, q: u32) -> bool { return long_less(x(q), x(p)); }
