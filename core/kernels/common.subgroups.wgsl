// The reductions of common.wgsl in the form for GPUs with subgroups: what these add up is joined in
// workgroup memory. Subgroups may have any size and any of the workgroup's invocations. The barrier
// before an addition also brings those together that left a loop at different times: not every
// driver does that by itself.

fn sum_of_lanes(lane: u32, v: f32) -> f32 {
  workgroupBarrier();
  let own = subgroupAdd(v);
  if (subgroupElect()) { lanes[subgroup] = own; }
  workgroupBarrier();
  var s = lanes[0];
  for (var i = 1u; i < subgroups; i++) { s += lanes[i]; }
  return s;
}
fn highest_of_lanes(lane: u32, v: f32) -> f32 {
  workgroupBarrier();
  let own = subgroupMax(v);
  if (subgroupElect()) { lanes[subgroup] = own; }
  workgroupBarrier();
  var high = lanes[0];
  for (var i = 1u; i < subgroups; i++) { high = max(high, lanes[i]); }
  return high;
}
fn sum_of_sixteen(lane: u32, v: f32) -> f32 {
  workgroupBarrier();
  let own = subgroupAdd(select(vec4f(0f), vec4f(v), vec4u(0u, 1u, 2u, 3u) == vec4u(lane / 16u)));
  if (subgroupElect()) { neighbours[subgroup] = own; }
  workgroupBarrier();
  var s = 0f;
  if (lane % 16u == 0u) {
    for (var i = 0u; i < subgroups; i++) { s += neighbours[i][lane / 16u]; }
  }
  return s;
}
fn sum_of_four(lane: u32, v: vec4f) -> f32 {
  workgroupBarrier();
  let own = subgroupAdd(v);
  if (subgroupElect()) { fours[subgroup] = own; }
  workgroupBarrier();
  var s = 0f;
  if (lane < 4u) {
    for (var i = 0u; i < subgroups; i++) { s += fours[i][lane]; }
  }
  return s;
}
var<workgroup> neighbours: array<vec4f, GROUP>;
var<private> subgroup: u32;
var<private> subgroups: u32;
