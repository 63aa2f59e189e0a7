// Noise of a client's own, as python/edgewise/extras/federated/secure/noise.py.

import { type Bytes, stream } from "./crypto.ts";

const TAIL = 12; // standard deviations of the table

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
