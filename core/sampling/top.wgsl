// The 256 highest of many logits in order, ties by token. `const LEVEL: u32` is put in front of it.
// Level 0 reads float32 logits, the others what the level before left: 256 pairs (rank, token) for
// each workgroup, which sorts 1024 (bitonic sort). Levels follow until one workgroup is left. Where
// there are fewer, pairs with rank 0 follow. The ranks are those of argmax.wgsl: 0xffffffff stands for
// NaN and +infinity.

@group(0) @binding(0) var<storage, read> source: array<u32>;
@group(0) @binding(1) var<storage, read_write> sink: array<u32>;

const GROUP = 256u;
const CHUNK = 1024u;

var<workgroup> ranks: array<u32, CHUNK>;
var<workgroup> tokens: array<u32, CHUNK>;

fn rank_of(bits: u32) -> u32 {
  if ((bits & 0x7fffffffu) > 0x7f800000u || bits == 0x7f800000u) { return 0xffffffffu; }
  if ((bits & 0x7fffffffu) == 0u) { return 0x80000000u; }
  if (bits >> 31u == 1u) { return ~bits; }
  return bits | 0x80000000u;
}

@compute @workgroup_size(256) fn main(@builtin(workgroup_id) wg: vec3u,
                                      @builtin(local_invocation_index) lane: u32) {
  let count = select(arrayLength(&source) / 2u, arrayLength(&source), LEVEL == 0u);
  for (var i = lane; i < CHUNK; i += GROUP) {
    let at = wg.x * CHUNK + i;
    ranks[i] = 0u;
    tokens[i] = 0xffffffffu;
    if (at < count) {
      if (LEVEL == 0u) {
        ranks[i] = rank_of(source[at]);
        tokens[i] = at;
      } else {
        ranks[i] = source[2u * at];
        tokens[i] = source[2u * at + 1u];
      }
    }
  }
  for (var size = 2u; size <= CHUNK; size *= 2u) {
    for (var step = size / 2u; step > 0u; step /= 2u) {
      workgroupBarrier();
      for (var p = lane; p < CHUNK / 2u; p += GROUP) {
        let a = 2u * p - (p & (step - 1u));
        let b = a + step;
        let ordered =
          ranks[a] > ranks[b] || (ranks[a] == ranks[b] && tokens[a] < tokens[b]);
        if (ordered != ((a & size) == 0u)) {
          let rank = ranks[a];
          ranks[a] = ranks[b];
          ranks[b] = rank;
          let token = tokens[a];
          tokens[a] = tokens[b];
          tokens[b] = token;
        }
      }
    }
  }
  workgroupBarrier();
  sink[2u * (wg.x * GROUP + lane)] = ranks[lane];
  sink[2u * (wg.x * GROUP + lane) + 1u] = tokens[lane];
}
