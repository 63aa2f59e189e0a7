// pipeline() for tasks other than text generation: decodes the inputs, sends them to the worker and
// gives its results their form. Names and forms are those of transformers.js.

import { ALIASES, KINDS, task_of } from "../../logic/tasks/names.ts";
import type { LoadRequest } from "../../protocol/loading.ts";
import type {
  TaskCall,
  TaskImageResult,
  TaskInfo,
  TaskInput,
  TaskPicture,
  TaskTensor,
} from "../../protocol/tasks.ts";
import { Aborted, InputError } from "../../shared/errors.ts";
import { checkFunction } from "../../shared/inputs.ts";
import { type Client, type CallOptions as ClientCallOptions, startClient } from "../client.ts";
import { Tensor, tensor } from "../tensor.ts";
import { TextStreamer } from "../text-generation.ts";
import { pairAdapterMethods } from "../training/adapter-methods.ts";
import { type Handle, handles } from "../training/handles.ts";
import { askOf } from "./asking.ts";
import { drawingPipeline } from "./drawing.ts";
import { enhancementPipeline } from "./graph-sounds.ts";
import { opener } from "./open-pictures.ts";
import { type ImageInput, RawImage, sendable } from "./pictures.ts";
import { soundMethods } from "./sound-methods.ts";
import { workers } from "./sound-streams.ts";
import { type SoundInput, sendableSound, soundBuffers } from "./sounds.ts";
import { speakingPipeline } from "./speaking.ts";
import type { CallOptions, SpeechSegment, TaskPipelines } from "./types.ts";
import { indexMethods } from "./vectors.ts";

/** A task of a page other than text generation. */
type Task = keyof TaskPipelines;

/** Tasks whose models have an encoder and a decoder. */
export const GENERATES: readonly string[] = [
  "automatic-speech-recognition",
  "translation",
  "summarization",
  "text2text-generation",
  "image-text-to-text",
  "image-to-text",
  "document-question-answering",
  "visual-question-answering",
  "audio-text-to-text",
] satisfies Task[];

/** Tasks that are learned from pairs. */
export const LEARNS: readonly string[] = [
  "automatic-speech-recognition",
  "translation",
  "summarization",
  "text2text-generation",
  "image-text-to-text",
] satisfies Task[];

/** Names of the tasks and their aliases. */
export const TASK_NAMES: readonly string[] = [...KINDS.keys(), ...ALIASES.keys()];

/** A task of a page, by its name or an alias; undefined if there is none. */
export function taskOf(name: string): Task | undefined {
  const task = task_of(name);
  return KINDS.has(task) ? (task as Task) : undefined;
}

/** Loads a pipeline. */
export async function taskPipeline(
  request: LoadRequest,
  { signal, progress_callback: onProgress }: CallOptions & { progress_callback?: unknown },
): Promise<TaskPipelines[keyof TaskPipelines]> {
  if (request.task === "text-to-image") return drawingPipeline(request, { signal, onProgress });
  if (request.task === "text-to-speech") return speakingPipeline(request, { signal, onProgress });
  if (request.task === "audio-to-audio")
    return enhancementPipeline(request, { signal, onProgress });
  const client = await startClient(request.priority);
  try {
    const transfer =
      typeof request.model === "object" && "port" in request.model ? [request.model.port] : [];
    const info = await client.call("task_open", request, {
      signal,
      onProgress: onProgress as never,
      transfer,
    });
    client.info = info;
    return callable(client, request.task as Task, info);
  } catch (e) {
    client.end(); // each pipeline has its own worker, so this frees everything
    throw e;
  }
}

type Many = readonly unknown[];

/**
 * The worker of a pipeline, and its task.
 * @throws InputError if it is none
 */
export function handleOf(pipe: unknown): { client: Client; task: Task } {
  const found = workers.get(pipe as object);
  if (found) return found as { client: Client; task: Task };
  throw new InputError(
    "it is no pipeline that can be personalized",
    "personalize",
    "Give a pipeline that classifies, or computes features.",
  );
}

/**
 * Inputs for the worker.
 * @param where of errors
 */
export async function readInputs(
  task: Task,
  input: unknown,
  where: string,
  signal?: AbortSignal,
): Promise<TaskInput[]> {
  const inputs: TaskInput[] = [];
  for (const one of Array.isArray(input) ? input : [input])
    inputs.push(await read(task, one, signal));
  if (!inputs.length) throw new InputError("there is no input", where, "Give one or more.");
  return inputs;
}

/** What is transferred to the worker with inputs. */
export function transfers(inputs: readonly TaskInput[]): Transferable[] {
  return inputs.flatMap(buffersOf);
}

function callable(client: Client, task: Task, info: TaskInfo): TaskPipelines[keyof TaskPipelines] {
  const methods = soundMethods(client, task, (input, options) => run(input, options));
  const call = (...given: unknown[]): unknown => {
    const [input, own] = sorted(task, given);
    const options = methods.options(own);
    if (typeof input === "object" && input !== null && Symbol.asyncIterator in input)
      return each(input as AsyncIterable<unknown>, (one) => run(one, options));
    return run(input, options);
  };
  const run = async (input: unknown, options: Record<string, unknown>): Promise<unknown> => {
    if (chats) {
      const { ask, others, revived } = await askOf(task, input, options);
      return revived(await called({ ask }, others));
    }
    return called(input, options);
  };
  const called = async (input: unknown, options: Record<string, unknown>): Promise<unknown> => {
    const { signal, streamer, onProgress, onSegment, ...rest } = options as CallOptions & Callbacks;
    const several = Array.isArray(input);
    const inputs: Many = several ? input : [input];
    const listening = { streamer, onProgress, onSegment };
    checkCallbacks(task, listening, inputs.length);
    const given = Object.fromEntries(Object.entries(rest).filter(([, v]) => v !== undefined));
    const request = { options: given, streams: !!streamer };
    const results = await send(inputs, request, { signal, ...listeners(listening) });
    return formed(task, results, several, rest);
  };
  const send = async (
    given: Many,
    request: Omit<TaskCall, "inputs">,
    { signal, ...listening }: ClientCallOptions = {},
  ): Promise<Many> => {
    if (signal?.aborted) throw new Aborted("the call was aborted by its signal", task, "");
    const inputs: TaskInput[] = [];
    for (const one of given) inputs.push(await read(task, one, signal));
    const transfer = inputs.flatMap(buffersOf);
    return client.call("task_call", { inputs, ...request }, { signal, transfer, ...listening });
  };
  const chats = KINDS.get(task) === "chat";
  const processor = async (
    given: unknown,
    options: CallOptions & Record<string, unknown> = {},
  ): Promise<Record<string, Tensor>> => {
    const { signal, ...own } = options;
    const { ask, others } = chats ? await askOf(task, given, options) : { others: {} };
    const { signal: _, ...rest } = { ...own, ...others } as CallOptions & Record<string, unknown>;
    const request = { options: chats ? rest : {}, streams: false, processor: true } as const;
    const [made] = await send([ask ? { ask } : given], request, { signal });
    const tensors = Object.entries(made as Record<string, TaskTensor>);
    return Object.fromEntries(tensors.map(([name, t]) => [name, tensor(t)]));
  };
  const looks = KINDS.get(task) === "image" && task !== "optical-character-recognition";
  const more = looks || chats ? { processor } : {};
  const dispose = async () => client.end();
  const open = task === "mask-generation" ? { open: opener(run) } : {};
  const index =
    task === "feature-extraction"
      ? indexMethods((texts, options) => run(texts, options) as Promise<Tensor>)
      : {};
  const made = Object.assign(
    call,
    { ...more, ...open, ...index, task, info, dispose },
    methods.members,
  );
  workers.set(made, { client, task });
  if (LEARNS.includes(task)) makeLearn(made, client, task);
  return made as never;
}

/** Gives a pipeline adapters, which `fineTune` trains. */
function makeLearn(made: object, client: Client, task: Task): void {
  const handle = { client, model: 0, adapters: [], prepare: preparing(task) };
  Object.defineProperties(made, Object.getOwnPropertyDescriptors(pairAdapterMethods(handle)));
  handles.set(made, handle);
}

/** Makes of records what the worker reads: of their sounds the samples, and pictures. */
function preparing(task: Task): NonNullable<Handle["prepare"]> {
  const pictures = async (of: unknown) => {
    if (!Array.isArray(of)) return sendable(of as ImageInput);
    return Promise.all(of.map((one) => sendable(one as ImageInput)));
  };
  const sound = (of: unknown, signal?: AbortSignal) => sendableSound(of as SoundInput, signal);
  const chats = KINDS.get(task) === "chat";
  const [names, make] = chats ? [["image", "images"], pictures] : [["audio"], sound];
  return async (records, where, signal) => {
    if (KINDS.get(task) === "text" || !Array.isArray(records)) return records;
    const made: unknown[] = [];
    for (const [i, record] of records.entries()) {
      const name = names.find((name) => (record?.[name] ?? undefined) !== undefined);
      try {
        made.push(
          name === undefined ? record : { ...record, [name]: await make(record[name], signal) },
        );
      } catch (e) {
        if (!(e instanceof InputError)) throw e;
        const at = `${where}, record ${i + 1}`;
        throw new InputError(e.what, e.where ? `${at}: ${e.where}` : at, e.remedy);
      }
    }
    return made;
  };
}

/** The input and the options of a call; labels and contexts are arguments of their own. */
function sorted(task: string, given: Many): [unknown, Record<string, unknown>] {
  const [first, second] = given;
  if (task.startsWith("zero-shot"))
    return [first, { ...(given[2] as object), candidate_labels: second }];
  if (task.endsWith("-question-answering"))
    return [first, { ...(given[2] as object), question: second }];
  if (task === "text-ranking" && Array.isArray(second))
    return [{ query: first, documents: second }, (given[2] ?? {}) as Record<string, unknown>];
  if (task !== "question-answering" || (typeof second !== "string" && !Array.isArray(second)))
    return [first, (second ?? {}) as Record<string, unknown>];
  const questions: Many = Array.isArray(first) ? first : [first];
  const contexts: Many = Array.isArray(second) ? second : questions.map(() => second);
  if (questions.length !== contexts.length)
    throw new InputError(
      `there are ${questions.length} questions and ${contexts.length} contexts`,
      task,
      "Give one context, or one for each question.",
    );
  const pairs = questions.map((question, i) => ({ question, context: contexts[i] }));
  return [Array.isArray(first) ? pairs : pairs[0], (given[2] ?? {}) as Record<string, unknown>];
}

/** Functions of a call that the worker sends values to. */
interface Callbacks {
  streamer?: TextStreamer | ((text: string) => void);
  onProgress?: (fraction: number) => void;
  onSegment?: (segment: SpeechSegment) => void;
}

/** @throws InputError if a task has no such callback, or a streamer would follow several inputs */
function checkCallbacks(task: string, given: Callbacks, inputs: number): void {
  for (const [name, callback] of Object.entries(given)) {
    if ((callback ?? undefined) === undefined) continue;
    const speech = task === "automatic-speech-recognition";
    if (!(speech || (name === "streamer" && GENERATES.includes(task))))
      throw new InputError(`there is no option '${name}'`, task, "Leave it out.");
    if (!(callback instanceof TextStreamer)) checkFunction(name, callback);
  }
  if (given.streamer && inputs !== 1)
    throw new InputError("a streamer can follow one input only", "options.streamer", "Give one.");
}

function listeners({ streamer, onProgress, onSegment }: Callbacks): ClientCallOptions {
  return {
    onText: (text, end) => {
      if (typeof streamer === "function") text && streamer(text);
      else streamer?.on_finalized_text(text, end);
    },
    onEvent: ({ name, value }) => {
      if (name === "progress") onProgress?.(value as number);
      else onSegment?.(value as SpeechSegment);
    },
  };
}

/** An input for the worker. */
async function read(
  task: Task,
  input: unknown,
  signal: AbortSignal | undefined,
): Promise<TaskInput> {
  if (KINDS.get(task) === "sound")
    return { sound: await sendableSound(input as SoundInput, signal) };
  if (KINDS.get(task) === "image")
    return isOpen(task, input) ? input : { image: await sendable(input as ImageInput) };
  if (KINDS.get(task) === "chat") return input as TaskInput;
  const texts = typeof input === "string" ? [input] : Object.values(input ?? {}).flat();
  if (!texts.length || !texts.every((text) => typeof text === "string"))
    throw new InputError("the input is no text", task, "Give a string or a list of strings.");
  return input as TaskInput;
}

/** Whether an input is a picture that is open. */
function isOpen(task: Task, input: unknown): input is { picture: number } {
  const given = task === "mask-generation" && typeof input === "object" && input;
  return !!given && "picture" in given;
}

function buffersOf(input: TaskInput): Transferable[] {
  const bitmaps = (pictures: readonly TaskPicture[]): Transferable[] =>
    pictures.filter((one) => typeof one === "object" && "close" in one);
  if (typeof input === "object" && "image" in input) return bitmaps([input.image]);
  if (typeof input === "object" && "ask" in input)
    return [...bitmaps(input.ask.pictures), ...input.ask.sounds.flatMap(soundBuffers)];
  if (typeof input === "object" && "sound" in input) return soundBuffers(input.sound);
  return [];
}

/** One result for each item of an async iterable. */
async function* each(
  inputs: AsyncIterable<unknown>,
  run: (input: unknown) => Promise<unknown>,
): AsyncGenerator<unknown> {
  for await (const input of inputs) yield await run(input);
}

/** The results of a call in the form of transformers.js. */
function formed(
  task: Task,
  results: Many,
  several: boolean,
  options: Record<string, unknown>,
): unknown {
  if (task === "feature-extraction") return stacked(results as Vectors[], options);
  if (task === "text-classification" && (options.top_k ?? 1) === 1 && options.top_k !== null)
    return results.flat();
  if (task === "image-feature-extraction") return joined(results as Values[]);
  const form = FORMS[task];
  if (form) return several ? results.map(form) : form(results[0]);
  // one text each, as transformers' pipelines; with several sequences a list each
  if (GENERATES.includes(task) && KINDS.get(task) === "text") {
    if (!several) return results[0];
    return results.every((found) => (found as Many).length === 1) ? results.flat() : results;
  }
  const one = several ? undefined : results[0];
  if (task === "question-answering" && (options.top_k ?? 1) === 1)
    return several ? results.flat() : (one as Many)[0];
  return several ? results : one;
}

const picture = ({ data, width, height, channels }: TaskImageResult): RawImage =>
  new RawImage(data, width, height, channels);

/** The forms of results that are no plain objects. */
const FORMS: Record<string, ((result: unknown) => unknown) | undefined> = {
  "image-segmentation": (masks) =>
    (masks as { mask: TaskImageResult }[]).map((one) => ({ ...one, mask: picture(one.mask) })),
  "image-to-image": (result) => picture(result as TaskImageResult),
  "background-removal": (result) => picture(result as TaskImageResult),
  "mask-generation": (result) => masksOf(result as Generated),
  "depth-estimation": (result) => {
    const found = result as { predicted_depth: Values; depth: TaskImageResult };
    return { predicted_depth: joined([found.predicted_depth]), depth: picture(found.depth) };
  },
};

/** Masks of everything, or of prompts; or the size of a picture that was opened. */
interface Generated {
  masks?: TaskImageResult[] | { dims: number[]; data: Uint8Array<ArrayBuffer> };
}

function masksOf(result: Generated): unknown {
  const masks = result?.masks;
  if (!masks) return result;
  if (Array.isArray(masks)) return { ...result, masks: masks.map(picture) };
  const { masks: _, ...rest } = result;
  const scores = Object.entries(rest).map(([name, value]) => [name, joined([value as Values])]);
  return { masks: new Tensor("bool", masks.data, masks.dims), ...Object.fromEntries(scores) };
}

interface Values {
  dims: number[];
  data: Float32Array<ArrayBuffer>;
}

/** One tensor of all values, whose first dimension is that of the inputs. */
function joined(results: readonly Values[]): Tensor {
  const [first] = results;
  if (!first || results.length === 1)
    return new Tensor("float32", first?.data ?? new Float32Array(0), first?.dims ?? [0]);
  const [outer = 1, ...rest] = first.dims;
  if (results.some(({ dims }) => dims.join() !== first.dims.join()))
    throw new InputError(
      "the pictures have different numbers of features",
      "image-feature-extraction",
      "Call the pipeline with one picture at a time.",
    );
  const all = new Float32Array(results.length * first.data.length);
  results.forEach(({ data }, i) => {
    all.set(data, i * first.data.length);
  });
  return new Tensor("float32", all, [results.length * outer, ...rest]);
}

interface Vectors {
  /** [tokens], or none for one vector. */
  dims: number[];
  data: number[];
}

/** One tensor of all vectors; where texts have several, shorter ones are filled with zeros. */
function stacked(results: readonly Vectors[], options: Record<string, unknown>): Tensor {
  const tokens = Math.max(...results.map(({ dims }) => dims[0] ?? 1));
  const size = results.length ? results[0]!.data.length / (results[0]!.dims[0] ?? 1) : 0;
  const bits = options.precision ?? options.quantize;
  const type = !bits || bits === "float32" ? "float32" : bits === "ubinary" ? "uint8" : "int8";
  const Kind = { float32: Float32Array, uint8: Uint8Array, int8: Int8Array }[type];
  const all = new Kind(results.length * tokens * size);
  results.forEach(({ data }, i) => {
    all.set(data, i * tokens * size);
  });
  const flat = results.every(({ dims }) => !dims.length);
  return new Tensor(type, all, [results.length, ...(flat ? [] : [tokens]), size]);
}
