// The tasks of this worker part: from the inputs of a call to its results.

import { PROGRAM_TASKS } from "../../gen/manifest.ts";
import type { LoadRequest } from "../../protocol/loading.ts";
import type { TaskCall, TaskFeed, TaskInput } from "../../protocol/tasks.ts";
import { InputError } from "../../shared/errors.ts";
import type { Answer } from "../inference/service.ts";
import type { Progress } from "../model/job.ts";
import { onceMore } from "./again.ts";
import type { Perceive } from "./candidates/zero-shot.ts";
import { type Ending, TaskHost } from "./host.ts";
import { Options } from "./options.ts";
import type { Events, TaskRunner, Tasks } from "./runner.ts";
import type { Make, Turn } from "./sounds/streams.ts";

type Part = () => Promise<{ TASKS: Tasks }>;

const texts: Part = () => import("./texts/index.ts");
const images = () => import("./images/index.ts");
const sounds = () => import("./sounds/index.ts");
const generation = () => import("./seq2seq/index.ts");
const speech: Part = () => import("./seq2seq/speech/index.ts");
const moonshine: Part = () => import("./seq2seq/moonshine/index.ts");
const hearing: Part = () => import("./sounds/hearing/index.ts");
const writing: Part = () => import("./seq2seq/pictures/index.ts");
const voices: Part = () => import("./synthesis/index.ts");
const masks: Part = async () => {
  const [{ tasksOf }, pictures] = await Promise.all([import("./masks/index.ts"), images()]);
  return { TASKS: tasksOf(pictures) };
};
const multimodal = () => import("./multimodal/index.ts");
const asked: Part = async () => {
  const [{ tasksOf }, parts] = await Promise.all([multimodal(), images()] as const);
  return { TASKS: tasksOf(parts) };
};
const told: Part = async () => {
  const [parts, { readSound }] = await Promise.all([multimodal(), sounds()] as const);
  return { TASKS: { ...parts.soundTasksOf(readSound), ...parts.transcriptsOf(readSound) } };
};
const objects: Part = async () => {
  const parts = [import("./candidates/objects.ts"), images()] as const;
  const [{ zeroShotObjects }, { show }] = await Promise.all(parts);
  return { TASKS: { "zero-shot-object-detection": zeroShotObjects(show) } };
};
const candidates =
  (inputs: () => Promise<{ perceive: Perceive }>): Part =>
  async () => {
    const parts = [import("./candidates/index.ts"), inputs()] as const;
    const [{ tasksOf }, { perceive }] = await Promise.all(parts);
    return { TASKS: tasksOf(perceive) };
  };

const ocr: Part = async () => {
  const [{ tasksOf }, pictures] = await Promise.all([import("./ocr/index.ts"), images()]);
  return { TASKS: tasksOf(pictures) };
};

/** The part that has a task. */
const PARTS: Readonly<Record<string, Part>> = {
  "feature-extraction": texts,
  "text-classification": texts,
  "zero-shot-classification": texts,
  "token-classification": texts,
  "text-ranking": texts,
  "fill-mask": texts,
  "question-answering": texts,
  "image-classification": images,
  "image-feature-extraction": images,
  "object-detection": images,
  "image-segmentation": images,
  "background-removal": images,
  "depth-estimation": images,
  "mask-generation": masks,
  "image-to-image": images,
  "optical-character-recognition": ocr,
  "keypoint-detection": images,
  "visual-question-answering": images,
  "zero-shot-image-classification": candidates(images),
  "zero-shot-audio-classification": candidates(sounds),
  "zero-shot-object-detection": objects,
  "audio-classification": sounds,
  "voice-activity-detection": sounds,
  "speaker-verification": sounds,
  "automatic-speech-recognition": speech,
  "text-to-speech": voices,
  "image-text-to-text": asked,
  "image-to-text": writing,
  "document-question-answering": writing,
  "audio-text-to-text": told,
  translation: generation,
  summarization: generation,
  "text2text-generation": generation,
};

/**
 * Loads a pipeline. The part for its task is loaded at the same time.
 * @throws as TaskHost.open
 */
export async function openTask(
  request: LoadRequest,
  signal: AbortSignal,
  progress: Progress,
): Promise<TaskHost> {
  const load = (part?: Part) => void part?.().catch(() => undefined); // a call reports it
  const part = PARTS[request.task];
  if (part !== speech && part !== writing && request.task !== "visual-question-answering")
    load(part); // of these the model decides
  const model = {
    seq2seq: async () => (await generation()).Seq2SeqModel,
    language: async () => (await multimodal()).languageModel,
    encoder: async () => (await multimodal()).Encoder,
  };
  const known = ({ processor }: Pick<TaskHost, "processor">) => {
    if (request.task === "text-to-speech" && !processor.speech)
      throw new InputError("it is of several graphs", "model", "Give its address, or a file.");
    load(partOf(request.task, processor));
  };
  const host = await TaskHost.open(request, signal, progress, model, known);
  const { speech: described } = host.processor;
  if (described) {
    const { sampling_rate, type } = described;
    host.info.speech = { sampling_rate, splits: type !== "vits", type };
  }
  return host;
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
  const make = (to: Events) => (processor ? processing(host, options) : called(host, options, to));
  const run = await make(events);
  const one = (input: TaskInput) =>
    host.decodes
      ? onceMore(host, events, ending, async (to) => (await make(to))(input, ending))
      : run(input, ending);
  const results: unknown[] = [];
  for (const [i, input] of inputs.entries()) {
    try {
      results.push(await one(input));
    } catch (e) {
      if (!(e instanceof InputError) || inputs.length === 1) throw e;
      throw new InputError(e.what, e.where ? `input ${i}, ${e.where}` : `input ${i}`, e.remedy);
    }
  }
  return { value: results, transfer: [...buffersIn(results)] };
}

type Run = (input: TaskInput, ending: Ending) => unknown | Promise<unknown>;

async function called(
  host: TaskHost,
  options: Record<string, unknown>,
  events: Events,
): Promise<Run> {
  const task = await runnerOf(host);
  return task.prepare(host, new Options(options, task.options), events);
}

async function processing(host: TaskHost, options: Record<string, unknown>): Promise<Run> {
  const { prompt } = host.decodes ? await runnerOf(host) : {};
  if (prompt) return prompt(host, options);
  const { processed } = await import("./images/index.ts");
  return (picture, ending) => processed(host, picture, ending);
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
 * @param turn runs work when the engine is free
 * @returns what happened in them
 * @throws as runTask
 */
export async function feedTask(
  host: TaskHost,
  request: TaskFeed,
  turn: Turn,
  ending: Ending,
): Promise<unknown[]> {
  const { feedStream } = await sounds();
  return feedStream(host, request, makeStream(host), turn, ending).catch(async (e: unknown) => {
    await turn(() => host.recover()).catch(() => undefined); // for the next stream
    throw e;
  });
}

function makeStream(host: TaskHost): Make {
  return async (options, voice) => {
    const task = await runnerOf(host);
    const names = task.streamOptions ?? task.options;
    if (task.stream) return task.stream(host, new Options(options, names), voice);
    throw new InputError("it has no streams", host.task, "Call the pipeline with a sound.");
  };
}

/** The part that a model of a task needs. */
function partOf(task: string, processor: TaskHost["processor"]): Part | undefined {
  if (processor.ctc) return sounds;
  if (processor.hearing) return hearing;
  if (processor.sounds) return told;
  if (processor.pictures) return asked;
  return processor.moonshine ? moonshine : PARTS[task];
}

/**
 * The task of a pipeline.
 * @throws InputError if this version does not have it
 */
export async function runnerOf({ task, processor }: TaskHost): Promise<TaskRunner> {
  const found = (await partOf(task, processor)?.())?.TASKS[task];
  if (found) return found;
  throw new InputError(
    `the task is '${task}'`,
    "pipeline",
    `This version of Edgewise has ${PROGRAM_TASKS.join(", ")} and text-generation.`,
  );
}
