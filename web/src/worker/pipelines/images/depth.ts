// Depth of a picture. Mirrors post_process_depth_estimation of transformers' image processors and
// its depth-estimation pipeline; tests/conformance/depth.json compares with it.

import { Interpolation } from "./interpolation.ts";

/**
 * A model's depth at the size of the picture.
 * @param values [fromHeight, fromWidth]
 * @returns `depth` float32 [height, width], and `picture` uint8 [height, width]: 0 is the least,
 *   255 the greatest value
 */
export function depthMap(
  values: ArrayLike<number>,
  [fromHeight, fromWidth]: readonly [number, number],
  [height, width]: readonly [number, number],
): { depth: Float32Array<ArrayBuffer>; picture: Uint8Array<ArrayBuffer> } {
  const depth = new Float32Array(height * width);
  Interpolation.of("cubic", fromHeight, fromWidth, height, width).run(values, 0, depth);
  let [least, most] = [Infinity, -Infinity];
  for (const d of depth) {
    least = Math.min(least, d);
    most = Math.max(most, d);
  }
  const range = most - least;
  return {
    depth,
    picture: Uint8Array.from(depth, (d) => (range > 0 ? ((d - least) / range) * 255 : 0)),
  };
}
