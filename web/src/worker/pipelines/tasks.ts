// The tasks of this worker part: from the inputs of a call to its results.

import type { TaskCall } from "../../protocol/tasks.ts";
import { InputError } from "../../shared/errors.ts";
import type { Ending, TaskHost } from "./host.ts";
import { imageClassification } from "./images/image-tasks.ts";
import { Options } from "./options.ts";
import type { TaskRunner } from "./runner.ts";
import {
  featureExtraction,
  fillMask,
  questionAnswering,
  textClassification,
  tokenClassification,
  zeroShotClassification,
} from "./text-tasks.ts";

const TASKS: Record<string, TaskRunner> = {
  "feature-extraction": featureExtraction,
  "text-classification": textClassification,
  "zero-shot-classification": zeroShotClassification,
  "token-classification": tokenClassification,
  "fill-mask": fillMask,
  "question-answering": questionAnswering,
  "image-classification": imageClassification,
};

/**
 * Executes a call, input after input: results do not depend on what is processed together.
 * @returns one result for each input
 * @throws InputError if an option or an input is not valid; Aborted
 */
export async function runTask(
  host: TaskHost,
  { inputs, options }: TaskCall,
  ending: Ending,
): Promise<unknown[]> {
  const task = TASKS[host.task];
  if (!task)
    throw new InputError(
      `the task is '${host.task}'`,
      "pipeline",
      `This version of Edgewise has ${Object.keys(TASKS).join(", ")} and text-generation.`,
    );
  const run = task.prepare(host, new Options(options, task.options));
  const results: unknown[] = [];
  for (const [i, input] of inputs.entries()) {
    try {
      results.push(await run(input, ending));
    } catch (e) {
      if (!(e instanceof InputError) || inputs.length === 1) throw e;
      throw new InputError(e.what, e.where ? `input ${i}, ${e.where}` : `input ${i}`, e.remedy);
    }
  }
  return results;
}
