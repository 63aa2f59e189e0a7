// groups: outer * inner
// group: 64
// apply: above = above_{type}; odd = odd_{type}
//
// The best index so far of each invocation, then of all. NaN is before any number. Ties go to the
// lowest index, or to the highest with `last`.

const NONE = 0xffffffffu;

var<workgroup> place: array<u32, GROUP>;

// whether index i is better than j
fn better(source: u32, i: u32, j: u32) -> bool {
  if (i == NONE) { return false; }
  if (j == NONE) { return true; }
  let p = source + i * inner;
  let q = source + j * inner;
  if (odd(p) != odd(q)) { return odd(p); }
  if (above(p, q)) { return largest != 0; }
  if (above(q, p)) { return largest == 0; }
  if (last != 0) { return i > j; }
  return i < j;
}

fn run(at: u32, lane: u32) {
  let o = at / inner;
  let source = o * n * inner + (at - o * inner);
  var best = NONE;
  for (var r = lane; r < n; r += GROUP) {
    if (better(source, r, best)) { best = r; }
  }
  place[lane] = best;
  for (var half = GROUP / 2u; half > 0u; half /= 2u) {
    workgroupBarrier();
    if (lane < half && better(source, place[lane + half], place[lane])) {
      place[lane] = place[lane + half];
    }
  }
  if (lane == 0u) { y_set(at, vec2u(place[0], 0u)); }
}
fn above_f(p: u32, q: u32) -> bool { return x(p) > x(q); }
fn above_i(p: u32, q: u32) -> bool { return x(p) > x(q); }
fn above_u(p: u32, q: u32) -> bool { return x(p) > x(q); }
fn above_l(p: u32, q: u32) -> bool { return long_less(x(q), x(p)); }
fn odd_f(p: u32) -> bool { return is_nan(x(p)); }
fn odd_i(p: u32) -> bool { return false; }
fn odd_u(p: u32) -> bool { return false; }
fn odd_l(p: u32) -> bool { return false; }
