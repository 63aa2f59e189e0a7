// keypoint-detection: logic/tasks decides which boxes are seen, and what is found.

import type { Size } from "../../../logic/images/geometry.ts";
import {
  boxes_of,
  HEATMAPS,
  POINTS,
  type Pose,
  points,
  pose,
  posing,
} from "../../../logic/tasks/keypoints.ts";
import { output } from "../outputs.ts";
import type { TaskRunner } from "../runner.ts";
import { imageOf, look, seen } from "./image-tasks.ts";

/** `pipe(pictures, {boxes, threshold, kernel_size})` */
export const keypointDetection: TaskRunner = {
  options: ["boxes", "threshold", "kernel_size"],
  prepare(host, { given }) {
    const how = posing(given);
    const labels = (host.config().id2label ?? {}) as Record<string, string>;
    return async (input, ending) => {
      const image = await imageOf(host, input, ending);
      const size: Size = [image.height, image.width];
      const names = host.graph("model").outputs.map(({ name }) => name);
      if (POINTS.every((name) => names.includes(name))) {
        const { outputs } = seen(await look(host, image, ending));
        const made = POINTS.map((name) => output(host, outputs, name));
        return points(made, size, how.threshold, host.task);
      }
      const found: Pose[] = [];
      for (const box of boxes_of(how, size)) {
        const { outputs, done } = seen(await look(host, image, ending, box));
        const maps = output(host, outputs, HEATMAPS);
        const shown: Size = [done.height, done.width];
        found.push(pose(maps, box, shown, how, labels, host.task));
      }
      return found;
    };
  },
};
