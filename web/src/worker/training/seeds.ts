// Random numbers of training: the order of the blocks. What the engine draws (first values of
// adapters, dropout) follows from seeds.ts.

import { seedOfRun } from "../../shared/seeds.ts";

/** 0 to n - 1 in an order that follows from the seed and the epoch (Fisher and Yates). */
export function shuffled(n: number, seed: bigint, epoch: number): Uint32Array {
  const order = Uint32Array.from({ length: n }, (_, i) => i);
  // apart from the engine's runs, which count from -1
  const own = seedOfRun(seedOfRun(seed, -2), epoch);
  for (let i = n - 1; i > 0; i--) {
    const j = Number(seedOfRun(own, i) % BigInt(i + 1));
    [order[i], order[j]] = [order[j]!, order[i]!];
  }
  return order;
}
