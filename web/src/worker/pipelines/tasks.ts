// The tasks of this worker part: from the inputs of a call to its results.

import { PROGRAM_TASKS } from "../../gen/manifest.ts";
import type { LoadRequest } from "../../protocol/loading.ts";
import type { TaskCall, TaskFeed, TaskInput } from "../../protocol/tasks.ts";
import { InputError } from "../../shared/errors.ts";
import type { Answer } from "../inference/service.ts";
import type { Progress } from "../model/job.ts";
import { type Ending, TaskHost } from "./host.ts";
import {
  backgroundRemoval,
  depthEstimation,
  imageFeatureExtraction,
  imageSegmentation,
  objectDetection,
} from "./images/dense-tasks.ts";
import { imageClassification, imageOf } from "./images/image-tasks.ts";
import { pixelValues } from "./images/pictures.ts";
import { Options } from "./options.ts";
import type { Events, TaskRunner } from "./runner.ts";
import { ctcRecognition } from "./sounds/ctc.ts";
import { feedStream } from "./sounds/streams.ts";
import { audioClassification, speakerVerification } from "./sounds/tasks.ts";
import { voiceActivity } from "./sounds/voice-activity.ts";
import {
  featureExtraction,
  fillMask,
  questionAnswering,
  textClassification,
  tokenClassification,
  zeroShotClassification,
} from "./texts/tasks.ts";

const TASKS: Record<string, TaskRunner> = {
  "feature-extraction": featureExtraction,
  "text-classification": textClassification,
  "zero-shot-classification": zeroShotClassification,
  "token-classification": tokenClassification,
  "fill-mask": fillMask,
  "question-answering": questionAnswering,
  "image-classification": imageClassification,
  "audio-classification": audioClassification,
  "voice-activity-detection": voiceActivity,
  "speaker-verification": speakerVerification,
  "image-feature-extraction": imageFeatureExtraction,
  "object-detection": objectDetection,
  "image-segmentation": imageSegmentation,
  "background-removal": backgroundRemoval,
  "depth-estimation": depthEstimation,
};

/** The part for tasks that generate text with an encoder. */
const generation = () => import("./seq2seq/index.ts");

/**
 * Loads a pipeline.
 * @throws as TaskHost.open
 */
export function openTask(
  request: LoadRequest,
  signal: AbortSignal,
  progress: Progress,
): Promise<TaskHost> {
  return TaskHost.open(request, signal, progress, async () => (await generation()).Seq2SeqModel);
}

/**
 * Executes a call, input after input: results do not depend on what is processed together.
 * @returns one result for each input, and the buffers in them
 * @throws InputError if an option or an input is not valid; Aborted
 */
export async function runTask(
  host: TaskHost,
  { inputs, options, processor }: TaskCall,
  ending: Ending,
  events: Events,
): Promise<Answer<unknown[]>> {
  const task = await runnerOf(host);
  const run = processor
    ? (input: TaskInput) => processed(host, input, ending)
    : task.prepare(host, new Options(options, task.options), events);
  const results: unknown[] = [];
  for (const [i, input] of inputs.entries()) {
    try {
      results.push(await run(input, ending));
    } catch (e) {
      if (!(e instanceof InputError) || inputs.length === 1) throw e;
      throw new InputError(e.what, e.where ? `input ${i}, ${e.where}` : `input ${i}`, e.remedy);
    }
  }
  return { value: results, transfer: [...buffersIn(results)] };
}

/** The inputs of a model for a picture. */
async function processed(host: TaskHost, input: TaskInput, ending: Ending): Promise<unknown> {
  return (await pixelValues(host, await imageOf(host, input, ending), ending)).values;
}

/** The buffers in results, which are moved to the page. */
function buffersIn(value: unknown, found = new Set<ArrayBuffer>()): Set<ArrayBuffer> {
  if (ArrayBuffer.isView(value)) found.add(value.buffer as ArrayBuffer);
  else if (
    typeof value === "object" &&
    value !== null &&
    typeof (value as unknown[])[0] !== "number"
  )
    for (const inner of Object.values(value)) buffersIn(inner, found);
  return found;
}

/**
 * Gives a stream of sound its next samples.
 * @returns what happened in them
 * @throws as runTask
 */
export async function feedTask(
  host: TaskHost,
  request: TaskFeed,
  ending: Ending,
): Promise<unknown[]> {
  const task = await runnerOf(host);
  const make = () => {
    const names = task.streamOptions ?? task.options;
    if (task.stream) return task.stream(host, new Options(request.options, names));
    throw new InputError("it has no streams", host.task, "Call the pipeline with a sound.");
  };
  return feedStream(host, request, make, ending);
}

/** @throws InputError if this version does not have the task */
async function runnerOf({ task, processor }: TaskHost): Promise<TaskRunner> {
  if (processor.ctc) return ctcRecognition;
  const found = TASKS[task] ?? (await generation()).SEQ2SEQ[task];
  if (found) return found;
  throw new InputError(
    `the task is '${task}'`,
    "pipeline",
    `This version of Edgewise has ${PROGRAM_TASKS.join(", ")} and text-generation.`,
  );
}
