// groups: outer * inner
// group: 64
// when: type == 1
//
// The best element so far of each invocation, then of all. Ties go to the lowest index, or to the
// highest with `last`.

var<workgroup> best: array<f32, GROUP>;
var<workgroup> place: array<u32, GROUP>;

fn better(u: f32, i: u32, v: f32, j: u32) -> bool {
  if (i == 0xffffffffu) { return false; }
  if (j == 0xffffffffu) { return true; }
  if (u == v) { return select((i < j), (i > j), last != 0); }
  return select((u < v), (u > v), largest != 0);
}

fn run(at: u32, lane: u32) {
  let o = at / inner;
  let source = o * n * inner + (at - o * inner);
  best[lane] = 0f;
  place[lane] = 0xffffffffu;
  for (var r = lane; r < n; r += GROUP) {
    let v = x(source + r * inner);
    if (better(v, r, best[lane], place[lane])) {
      best[lane] = v;
      place[lane] = r;
    }
  }
  for (var half = GROUP / 2u; half > 0u; half /= 2u) {
    workgroupBarrier();
    if (lane < half && better(best[lane + half], place[lane + half], best[lane], place[lane])) {
      best[lane] = best[lane + half];
      place[lane] = place[lane + half];
    }
  }
  if (lane == 0u) { y_set(at, vec2u(place[0], 0u)); }
}
