// The highest of many logits, as ew_sampling_pick chooses it without do_sample: ties go to the lowest
// token. `const LEVEL: u32` is put in front of it. Level 0 reads float32 logits and leaves a pair
// (rank, token) for each workgroup; level 1, one workgroup, reads pairs and leaves the token, or
// 0xffffffff where a logit is NaN or +infinity, or all are -infinity.
//
// A rank is a u32 of the same order as the logit; that of -0 is that of 0.

@group(0) @binding(0) var<storage, read> source: array<u32>;
@group(0) @binding(1) var<storage, read_write> sink: array<u32>;

const GROUP = 256u;
const CHUNK = 4096u;
const NOT_FINITE = 0xffffffffu;
const LOWEST_RANK = 0x007fffffu;

var<workgroup> ranks: array<u32, GROUP>;
var<workgroup> tokens: array<u32, GROUP>;

fn rank_of(bits: u32) -> u32 {
  if ((bits & 0x7fffffffu) > 0x7f800000u || bits == 0x7f800000u) { return NOT_FINITE; }
  if ((bits & 0x7fffffffu) == 0u) { return 0x80000000u; }
  if (bits >> 31u == 1u) { return ~bits; }
  return bits | 0x80000000u;
}

@compute @workgroup_size(256) fn main(@builtin(workgroup_id) wg: vec3u,
                                      @builtin(local_invocation_index) lane: u32) {
  var best = 0u;
  var token = 0xffffffffu;
  if (LEVEL == 0u) {
    let end = min((wg.x + 1u) * CHUNK, arrayLength(&source));
    for (var i = wg.x * CHUNK + lane; i < end; i += GROUP) {
      let rank = rank_of(source[i]);
      if (rank > best) {
        best = rank;
        token = i;
      }
    }
  } else {
    for (var i = lane; i < arrayLength(&source) / 2u; i += GROUP) {
      let rank = source[2u * i];
      if (rank > best || (rank == best && source[2u * i + 1u] < token)) {
        best = rank;
        token = source[2u * i + 1u];
      }
    }
  }
  ranks[lane] = best;
  tokens[lane] = token;
  for (var half = GROUP / 2u; half > 0u; half /= 2u) {
    workgroupBarrier();
    if (lane < half) {
      let other = ranks[lane + half];
      if (other > ranks[lane] || (other == ranks[lane] && tokens[lane + half] < tokens[lane])) {
        ranks[lane] = other;
        tokens[lane] = tokens[lane + half];
      }
    }
  }
  if (lane == 0u) {
    if (LEVEL == 0u) {
      sink[2u * wg.x] = ranks[0];
      sink[2u * wg.x + 1u] = tokens[0];
    } else {
      let usable = ranks[0] != NOT_FINITE && ranks[0] > LOWEST_RANK;
      sink[0] = select(0xffffffffu, tokens[0], usable);
    }
  }
}
