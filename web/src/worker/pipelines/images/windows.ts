// Planes of classes of a picture that a model sees in windows: the mean where they overlap.
// Mirrors ImageSegmentationPipeline of python/edgewise/host/pipelines/images.

import type { Split } from "../../../logic/images/geometry.ts";
import {
  in_windows,
  masks_of,
  type Segmenting,
  wrong_shape,
} from "../../../logic/tasks/pictures.ts";
import type { Ending, TaskHost } from "../host.ts";
import type { TaskImage } from "./decode.ts";
import { look, seen } from "./image-tasks.ts";
import { Interpolation } from "./interpolation.ts";
import { classesOf, sigmoid } from "./segmentation.ts";

/**
 * @returns `planes` [count, split.height, split.width]
 * @throws InputError if objects are wanted, or the outputs are not those of this task
 */
export async function windowPlanes(
  host: TaskHost,
  image: TaskImage,
  split: Split,
  wanted: Segmenting,
  ending: Ending,
): Promise<{ planes: Float32Array; count: number }> {
  const how = in_windows(wanted);
  const [area, plane] = [split.height * split.width, new Float32Array(0)];
  const made = { planes: plane, count: 0 };
  for (const [left, top, width, height] of split.boxes) {
    const { outputs } = seen(await look(host, image, ending, [left, top, width, height]));
    const names = masks_of(how, Object.keys(outputs), host.task, host.config());
    const [logits, masks] = [outputs[names.logits]!, outputs[names.masks]];
    const drawn = masks ?? logits;
    if (drawn.dims.length !== 4) throw wrong_shape(drawn.dims, host.task);
    const [, sources, rows, columns] = drawn.dims as [number, number, number, number];
    const classes = masks ? classesOf(logits.data, logits.dims.at(-1)!) : undefined;
    if (masks && classes!.length !== sources) throw wrong_shape(logits.dims, host.task);
    if (!made.count) {
      made.count = classes ? logits.dims.at(-1)! - 1 : sources;
      made.planes = new Float32Array(made.count * area);
    }
    const enlarge = Interpolation.of("linear", rows, columns, height, width);
    const part = new Float32Array(height * width);
    for (let k = 0; k < sources; k++) {
      enlarge.run(drawn.data, k * rows * columns, part);
      if (masks) for (let i = 0; i < part.length; i++) part[i] = sigmoid(part[i]!);
      for (let c = 0; c < made.count; c++) {
        const share = classes ? classes[k]![c]! : Number(c === k);
        if (!share) continue;
        for (let y = 0; y < height; y++) {
          const at = c * area + (top + y) * split.width + left;
          for (let x = 0; x < width; x++) made.planes[at + x]! += share * part[y * width + x]!;
        }
      }
    }
  }
  const upright = split.height > split.width;
  for (let i = 0; i < made.planes.length; i++)
    made.planes[i]! /=
      split.counts[upright ? Math.floor((i % area) / split.width) : i % split.width]!;
  return made;
}
