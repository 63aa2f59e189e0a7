// From a decoded picture to the pieces that a vision-language model sees. Mirrors
// python/edgewise/host/pipelines/images/vision.py.

import type { Device } from "../../../device/device.ts";
import type { Step } from "../../../logic/images/geometry.ts";
import { pieces, type Seen, type View } from "../../../logic/images/views.ts";
import type { applied } from "../images/index.ts";
import type { Picture } from "../images/pictures.ts";

/**
 * Pixels of the pieces of a picture, 3 bytes each, view by view.
 * @param apply does an operation on the size of a picture
 */
export function* piecesOf(
  device: Device,
  picture: Picture,
  seen: Seen,
  apply: typeof applied,
): Generator<Uint8Array<ArrayBuffer>> {
  let done: Step[] = [];
  let made = [picture]; // after each step of `done`: views begin alike
  for (const view of seen.views) {
    let same = 0;
    while (same < Math.min(done.length, view.steps.length) && alike(done[same], view.steps[same]))
      same++;
    done = done.slice(0, same);
    made = made.slice(0, same + 1);
    for (const step of view.steps.slice(same)) {
      made.push(apply(device, made.at(-1)!, step));
      done.push(step);
    }
    yield* cut(made.at(-1)!, seen, view);
  }
}

const alike = (a: unknown, b: unknown): boolean => JSON.stringify(a) === JSON.stringify(b);

function* cut({ pixels }: Picture, seen: Seen, view: View): Generator<Uint8Array<ArrayBuffer>> {
  const [high, wide] = seen.piece;
  const [line, size] = [3 * view.width, 3 * wide];
  for (const { top, left } of pieces(seen, view)) {
    const piece = new Uint8Array(high * size);
    for (let row = 0; row < high; row++) {
      const at = (top + row) * line + 3 * left;
      piece.set(pixels.subarray(at, at + size), row * size);
    }
    yield piece;
  }
}
