// groups: outer * inner
// group: 64
// when: type == 1 and k <= 256
//
// A workgroup finds the k best elements of a column one after the other: each time, the best of those
// that come after the last one. NaN is greater than any number; ties go to the lower index.

var<workgroup> best: array<f32, GROUP>;
var<workgroup> place: array<u32, GROUP>;

fn above(u: f32, v: f32) -> bool { return u > v || (is_nan(u) && !is_nan(v)); }
// whether (u, i) ranks before (v, j)
fn before(u: f32, i: u32, v: f32, j: u32) -> bool {
  if (i == 0xffffffffu) { return false; }
  if (j == 0xffffffffu) { return true; }
  if (above(u, v)) { return largest != 0; }
  if (above(v, u)) { return largest == 0; }
  return i < j;
}

fn run(at: u32, lane: u32) {
  let o = at / inner;
  let column = at - o * inner;
  var last = 0f;
  var last_place = 0xffffffffu;
  for (var r = 0u; r < k; r++) {
    var value = 0f;
    var index = 0xffffffffu;
    for (var j = lane; j < n; j += GROUP) {
      let v = x((o * n + j) * inner + column);
      let open = r == 0u || before(last, last_place, v, j);
      if (open && before(v, j, value, index)) {
        value = v;
        index = j;
      }
    }
    best[lane] = value;
    place[lane] = index;
    for (var half = GROUP / 2u; half > 0u; half /= 2u) {
      workgroupBarrier();
      if (lane < half && before(best[lane + half], place[lane + half], best[lane], place[lane])) {
        best[lane] = best[lane + half];
        place[lane] = place[lane + half];
      }
    }
    workgroupBarrier();
    last = best[0];
    last_place = place[0];
    workgroupBarrier();
    if (lane == 0u) {
      values_set((o * k + r) * inner + column, last);
      indices_set((o * k + r) * inner + column, vec2u(last_place, 0u));
    }
  }
}
