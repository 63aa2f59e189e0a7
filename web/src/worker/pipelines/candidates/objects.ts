// Objects by any labels: OWL-ViT, OWLv2. Rules are in logic/tasks/objects.py.

import { candidates } from "../../../logic/tasks/candidates.ts";
import { finding, found_by_labels, is_squared } from "../../../logic/tasks/objects.ts";
import { numbers } from "../outputs.ts";
import type { TaskRunner } from "../runner.ts";
import { type Show, scored } from "./zero-shot.ts";

/** `pipe(pictures, candidate_labels, {threshold, top_k, percentage})` */
export function zeroShotObjects(show: Show): TaskRunner {
  return {
    options: [
      ...["candidate_labels", "threshold", "box_threshold"],
      ...["text_threshold", "top_k", "percentage"],
    ],
    prepare(host, { given }) {
      const how = finding(given);
      const { texts } = candidates(given, host.task);
      return async (input, ending) => {
        const { tensors, image } = await show(host, input, ending);
        const columns: Float32Array[] = [];
        for (const text of texts) columns.push(await scored(host, tensors, text, ending));
        const queries = columns[0]!.length;
        const data = new Float32Array(queries * texts.length);
        for (const [k, column] of columns.entries())
          for (const [q, x] of column.entries()) data[q * texts.length + k] = x;
        const size: [number, number] = [image.height, image.width];
        const logits = { dims: [1, queries, texts.length], data };
        const boxes = numbers(tensors.pred_boxes!);
        const squared = is_squared(host.config());
        return found_by_labels(logits, boxes, texts, how, size, squared, host.task);
      };
    },
  };
}
