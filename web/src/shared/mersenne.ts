// Random numbers in which PyTorch puts examples in order; worker-training.js has them.

const WORDS = 624; // size of MT19937's state
const SHIFT = 397;

/**
 * A function that returns the next 32 random bits: those of MT19937 (Matsumoto and Nishimura 1998),
 * seeded with the low 32 bits of seed + more, as PyTorch's generator is.
 */
export function random_words(seed: bigint, more: number): () => number {
  const state = new Uint32Array(WORDS);
  state[0] = Number(BigInt.asUintN(32, seed + BigInt(more)));
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
