// The order of rows in an epoch.

const WORDS = 624; // size of MT19937's state
const SHIFT = 397;

/**
 * 0 to `count` - 1, shuffled as PyTorch does: `torch.randperm(count,
 * generator=Generator().manual_seed(seed))`. Epoch e of a run is shuffled with seed + e, as
 * transformers' Trainer does (accelerate's SeedableRandomSampler).
 */
export function permutation(count: number, seed: bigint): Uint32Array {
  const next = mersenneTwister(Number(BigInt.asUintN(32, seed)));
  const order = Uint32Array.from({ length: count }, (_, i) => i);
  for (let i = 0; i < count - 1; i++) {
    const j = i + (next() % (count - i));
    [order[i], order[j]] = [order[j]!, order[i]!];
  }
  return order;
}

/** MT19937 (Matsumoto and Nishimura 1998): each call returns the next 32-bit number. */
function mersenneTwister(seed: number): () => number {
  const state = new Uint32Array(WORDS);
  state[0] = seed;
  for (let i = 1; i < WORDS; i++)
    state[i] = Math.imul(1812433253, state[i - 1]! ^ (state[i - 1]! >>> 30)) + i;
  let at = WORDS;
  return () => {
    if (at === WORDS) {
      for (let i = 0; i < WORDS; i++) {
        const y = (state[i]! & 0x80000000) | (state[(i + 1) % WORDS]! & 0x7fffffff);
        state[i] = state[(i + SHIFT) % WORDS]! ^ (y >>> 1) ^ (y & 1 ? 0x9908b0df : 0);
      }
      at = 0;
    }
    let y = state[at++]!;
    y ^= y >>> 11;
    y ^= (y << 7) & 0x9d2c5680;
    y ^= (y << 15) & 0xefc60000;
    return (y ^ (y >>> 18)) >>> 0;
  };
}
