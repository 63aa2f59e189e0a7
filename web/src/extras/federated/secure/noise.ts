// Noise of a client's own, and what it spends of its privacy: as noise.py and budget.py in
// python/edgewise/extras/federated/secure.

import { type Bytes, stream } from "./crypto.ts";

const TAIL = 12; // standard deviations of the table
/** The probability with which epsilon need not hold. */
export const DELTA = 1e-6;
const MAX = 1e4;

/**
 * Integers k with a probability in proportion to exp(-k^2 / (2 sigma^2)).
 * @param key 32 secret bytes; the same give the same numbers
 */
export async function discreteGaussian(
  count: number,
  sigma: number,
  key: Bytes,
): Promise<Int32Array> {
  const raw = new DataView((await stream(key, 8 * count)).buffer);
  const most = Math.ceil(TAIL * sigma);
  const table = new Float64Array(2 * most + 1);
  let sum = 0;
  for (let k = -most; k <= most; k++)
    table[k + most] = sum += Math.exp((-k * k) / (2 * sigma * sigma));
  return Int32Array.from({ length: count }, (_, i) => {
    const bits = Number(raw.getBigUint64(8 * i, true) >> 11n);
    const target = (bits + 1) * 2 ** -53 * sum;
    let [low, high] = [0, table.length - 1]; // the first entry that is not below the target
    while (low < high) {
      const middle = (low + high) >> 1;
      if (table[middle]! < target) low = middle + 1;
      else high = middle;
    }
    return low - most;
  });
}

/** ln of the normal distribution's function at x <= 0, and its value elsewhere by symmetry. */
function logTail(x: number): number {
  // the continued fraction of Mills' ratio, from inside out
  let ratio = 0;
  for (let k = 400; k > 0; k--) ratio = k / (x + ratio);
  return -(x * x) / 2 - Math.log(Math.sqrt(2 * Math.PI) * (x + ratio));
}

/** The normal distribution's function: series near 0, continued fraction in the tails. */
function normal(x: number): number {
  if (x < -2) return Math.exp(logTail(-x));
  if (x > 2) return 1 - Math.exp(logTail(x));
  let [term, sum] = [x, x];
  for (let k = 3; k < 80; k += 2) sum += term *= (x * x) / k;
  return 0.5 + (sum * Math.exp((-x * x) / 2)) / Math.sqrt(2 * Math.PI);
}

function deltaOf(epsilon: number, mu: number): number {
  const far = -mu / 2 - epsilon / mu;
  const log = far < -2 ? logTail(-far) : Math.log(normal(far));
  return normal(mu / 2 - epsilon / mu) - Math.exp(epsilon + log);
}

/** The epsilon of rounds with these standard deviations of noise, in units of the clip. */
export function epsilonOf(noises: Iterable<number>, delta = DELTA): number {
  let sum = 0;
  for (const noise of noises) sum += 1 / (noise * noise);
  const mu = Math.sqrt(sum);
  if (!mu || deltaOf(0, mu) <= delta) return 0;
  if (!(deltaOf(MAX, mu) <= delta)) return Infinity;
  let [low, high] = [0, MAX];
  for (let k = 0; k < 60; k++) {
    const middle = (low + high) / 2;
    if (deltaOf(middle, mu) > delta) low = middle;
    else high = middle;
  }
  return high;
}
