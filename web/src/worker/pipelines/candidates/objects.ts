// Objects by any labels: OWL-ViT, OWLv2, Grounding DINO. Rules are in logic/tasks/objects.py.

import { candidates } from "../../../logic/tasks/candidates.ts";
import {
  check_text,
  type Finding,
  finding,
  found_by_labels,
  grounded,
  grounded_text,
  is_grounded,
  is_squared,
} from "../../../logic/tasks/objects.ts";
import type { TaskInput } from "../../../protocol/tasks.ts";
import type { Ending, TaskHost } from "../host.ts";
import { described, textFeeds } from "../inputs.ts";
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
      if (is_grounded(host.config()))
        return (input, ending) => byText(show, host, input, texts, how, ending);
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

/** The objects of a model that reads all labels as one text. */
async function byText(
  show: Show,
  host: TaskHost,
  input: TaskInput,
  labels: string[],
  how: Finding,
  ending: Ending,
): Promise<unknown[]> {
  const tokenizer = host.needTokenizer();
  const ids = tokenizer.encode(grounded_text(labels));
  check_text(ids.length, described(host, "text").max_length ?? null);
  const feeds = textFeeds(host.graph("model"), ids, 0);
  const { tensors, image } = await show(host, input, ending, feeds);
  const size: [number, number] = [image.height, image.width];
  const [logits, boxes] = [numbers(tensors.logits!), numbers(tensors.pred_boxes!)];
  const found = grounded(logits, boxes, ids, how, size, host.task);
  return found.map(({ found: one, tokens }) => ({
    ...one,
    label: tokenizer.decode(tokens).trim(),
  }));
}
