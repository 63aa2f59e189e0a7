// Random numbers of training. What the engine draws (first values of adapters, dropout) follows from one int64 per run; the order of
// the blocks is drawn here.

const MASK64 = (1n << 64n) - 1n;
const MASK63 = (1n << 63n) - 1n;

/** The int64 that a run's random numbers follow from (the finalizer of SplitMix64; Steele, Lea, Flood 2014). python/edgewise/training/session.py has the same. */
export function seedOfRun(seed: bigint, run: number): bigint {
  let z = (seed * 0x9e3779b97f4a7c15n + BigInt(run) + 1n) & MASK64;
  z = ((z ^ (z >> 30n)) * 0xbf58476d1ce4e5b9n) & MASK64;
  z = ((z ^ (z >> 27n)) * 0x94d049bb133111ebn) & MASK64;
  return (z ^ (z >> 31n)) & MASK63;
}

/** 0 to n - 1 in an order that follows from the seed and the epoch (Fisher and Yates). */
export function shuffled(n: number, seed: bigint, epoch: number): Uint32Array {
  const order = Uint32Array.from({ length: n }, (_, i) => i);
  const own = seedOfRun(seedOfRun(seed, -2), epoch); // apart from the engine's runs, which count from -1
  for (let i = n - 1; i > 0; i--) {
    const j = Number(seedOfRun(own, i) % BigInt(i + 1));
    [order[i], order[j]] = [order[j]!, order[i]!];
  }
  return order;
}
