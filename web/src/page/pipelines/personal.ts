// personalize(): teaches a pipeline labels of its user. The features and the training are in the
// pipeline's worker (worker/pipelines/heads/).

import { DEFAULTS } from "../../logic/personal/options.ts";
import type {
  ExportFormat,
  HeadAnswer,
  HeadInfo,
  HeadRequest,
  Measures,
} from "../../protocol/heads.ts";
import type { TaskInput } from "../../protocol/tasks.ts";
import { Aborted, InputError } from "../../shared/errors.ts";
import type { Client } from "../client.ts";
import { handleOf, readInputs, transfers } from "./tasks.ts";
import type { CallOptions, LabelScore, TaskPipelines } from "./types.ts";

/** Pipelines that can be personalized. */
export type Personalizable = TaskPipelines[
  | "image-classification"
  | "image-feature-extraction"
  | "audio-classification"
  | "speaker-verification"
  | "text-classification"
  | "feature-extraction"];

/** An input of a pipeline. */
export type InputOf<P extends Personalizable> = P extends (
  inputs: AsyncIterable<infer Input>,
  options?: never,
) => unknown
  ? Input
  : never;

/** Examples by label: an input, or a list of them. */
export type ExamplesOf<P extends Personalizable> = Readonly<
  Record<string, InputOf<P> | readonly InputOf<P>[]>
>;

/** Options of {@link personalize}. Names and defaults are those of Python's `personalize`. */
export interface PersonalizeOptions<P extends Personalizable> extends CallOptions {
  /** Inputs of none of the labels. They get the label "other". */
  other?: readonly InputOf<P>[];
  /**
   * `logistic` regression, or `knn`: by the nearest examples, which works from one example of one
   * label on. Default: logistic.
   */
  method?: "logistic" | "knn";
  /** How many examples `knn` compares with. Default: 5. */
  neighbors?: number;
  /** Inverse strength of the penalty, as C of scikit-learn's LogisticRegression. Default: 1. */
  c?: number;
  /** `balanced`: all labels count the same; null: all examples do. Default: balanced. */
  class_weight?: "balanced" | Record<string, number> | null;
  /** Steps of Adam, each on all examples. Default: 300. */
  steps?: number;
  /** Of the first step; it falls to 0 along a cosine. Default: 0.05. */
  learning_rate?: number;
  /**
   * Share of each label's examples on which a head that does not know them is evaluated
   * (`validation`). The head in use is trained on all. Default: 0.
   */
  validation_split?: number;
  /** That the choice of these examples follows from. Default: 0. */
  seed?: number;
  /** Of the head. Default: "default". */
  name?: string;
  /**
   * Trains LoRA adapters on the linear layers of the model as well, until the loss of held-out
   * examples (`validation_split`, here 0.25 by default) does not fall any more. They are kept if
   * held-out examples are told apart better with them: `info.lora`. Needs a pipeline that was
   * loaded with `personalize: {lora: ...}`, for classification of pictures, sounds or texts,
   * speaker verification, or features of pictures. Default: false.
   */
  lora?: boolean | LoraTraining;
}

/** How adapters are trained. Names and defaults are those of Python's `personalize`. */
export interface LoraTraining {
  /** As the pipeline was loaded with. */
  rank?: number;
  /** As the pipeline was loaded with. */
  alpha?: number;
  /** Steps of Adam, at most. Default: 40. */
  steps?: number;
  /** Of the first step; it falls to 0 along a cosine. Default: 0.001. */
  learning_rate?: number;
  /** Examples of a step. Default: 4. */
  batch_size?: number;
  /** Steps between two measurements of the held-out examples. Default: 5. */
  evaluate_every?: number;
  /** Measurements without a lower loss after which the training ends. Default: 3. */
  patience?: number;
}

/** Options of a call of a personal pipeline. */
export interface PersonalCallOptions extends CallOptions {
  /** How many labels; null: all. Default: 5, for texts 1. */
  top_k?: number | null;
  /** Default: softmax. Refused with `knn`. */
  function_to_apply?: "default" | "softmax" | "sigmoid" | "none";
  /** Of speakers: a voice is accepted from this probability on. Default: 0.5. */
  threshold?: number;
  /** Of speakers: this voice only. */
  name?: string;
}

/**
 * A pipeline with labels of its user, which {@link personalize} makes. A call gives the labels of
 * an input, the highest score first; of a list of inputs, a list for each.
 */
export interface PersonalPipeline<P extends Personalizable> {
  (input: InputOf<P>, options?: PersonalCallOptions): Promise<LabelScore[]>;
  (inputs: readonly InputOf<P>[], options?: PersonalCallOptions): Promise<LabelScore[][]>;
  (inputs: AsyncIterable<InputOf<P>>, options?: PersonalCallOptions): AsyncIterable<LabelScore[]>;
  /** The head in use: its name, labels, losses and measures, and the names of all heads. */
  readonly info: HeadInfo;
  /** Adds examples of a label, which may be new, and trains the head again. */
  add(
    label: string,
    examples: InputOf<P> | readonly InputOf<P>[],
    options?: CallOptions,
  ): Promise<HeadInfo>;
  /** Removes a label and trains the head again. */
  remove(label: string): Promise<HeadInfo>;
  /** Makes another head, or replaces one; then uses it. Options that are left out keep theirs. */
  teach(
    examples: ExamplesOf<P>,
    options?: Pick<
      PersonalizeOptions<P>,
      "other" | "name" | "validation_split" | "seed" | "lora" | "signal"
    >,
  ): Promise<HeadInfo>;
  /** Switches to another head. */
  use(name: string): Promise<HeadInfo>;
  /**
   * Measures the head on examples that it was not trained with. A label that it does not know
   * stands for "other" if it knows that.
   */
  evaluate(examples: ExamplesOf<P>, options?: CallOptions): Promise<Measures>;
  /** A head with the features of its examples, as a .safetensors file. Python reads it as well. */
  save(name?: string): Promise<Blob>;
  /** Reads a head that `save` wrote, here or in Python, and uses it. */
  load(file: Blob, name?: string, options?: CallOptions): Promise<HeadInfo>;
  /**
   * The model with the head in its graph, as a file. The model must have been loaded from its
   * .onnx files, not from a package; Python writes the file in a worker, as its `export` does.
   * @param format `onnx`: the graph, with the output `logits` and its labels in metadata_props;
   *   `edge`: a package for any page. Of speakers it is a model for `audio-classification`.
   * @throws InputError if there is no head (one label, or `knn`), or the model is not there as
   *   .onnx files or has more than 2 GB
   * @throws Aborted
   */
  export(format: ExportFormat, options?: CallOptions): Promise<Blob>;
  /** Frees the heads and their examples. The pipeline that it was made of can still be used. */
  dispose(): Promise<void>;
}

const OTHERS = ["other", "validation_split", "seed", "name", "lora", "signal"];

/**
 * Teaches a pipeline labels of its user. The model stays as it is: the features of the examples are
 * computed once and kept, and a head is trained on them, which takes less than a second for a few
 * examples.
 *
 * ```js
 * const see = await pipeline("image-classification", "model.edge", { personalize: true });
 * const mine = await personalize(see, { cup: [picture, other], keys: [third] });
 * const [{ label, score }] = await mine(video);
 * ```
 *
 * @param pipe for classification of pictures, sounds or texts, for features of pictures or texts,
 *   or for `speaker-verification`; loaded with `personalize: true`. It can still be used.
 * @param examples by label; a file of `save`; or nothing, to `add` them one by one
 * @throws InputError if an option or an example is not valid
 * @throws Aborted
 */
export async function personalize<P extends Personalizable>(
  pipe: P,
  examples: ExamplesOf<P> | Blob = {},
  options: PersonalizeOptions<P> = {},
): Promise<PersonalPipeline<P>> {
  const given = options as Record<string, unknown>;
  const own = Object.keys(DEFAULTS);
  refuseOthers(given, [...own, ...OTHERS], "personalize", "does not exist");
  checkOther(given);
  const fields = Object.fromEntries(Object.entries(given).filter(([name]) => own.includes(name)));
  if (examples instanceof Blob)
    refuseOthers(given, ["name", "signal"], "personalize", "has no effect with a file");
  const work = new Work(pipe);
  const { signal, name = "default", validation_split = 0, seed = 0 } = options;
  await work.ask({ do: "begin", fields, name, validation_split, seed });
  if (examples instanceof Blob) await work.load(examples, options.name, { signal });
  else if (Object.keys(examples).length || options.other?.length)
    await work.taught(examples, given);
  const made = (input: unknown, more: Record<string, unknown> = {}): unknown =>
    typeof input === "object" && input !== null && Symbol.asyncIterator in input
      ? work.each(input as AsyncIterable<unknown>, more)
      : work.call(input, more);
  Object.defineProperty(made, "info", { get: () => work.info, enumerable: true });
  const names = [
    "teach",
    "add",
    "remove",
    "use",
    "evaluate",
    "save",
    "load",
    "export",
    "dispose",
  ] as const;
  for (const name of names) Object.assign(made, { [name]: work[name].bind(work) });
  return made as never;
}

/** The page's side of a personal pipeline: reads inputs, and asks the worker. */
class Work {
  info!: HeadInfo;
  private readonly client: Client;
  private readonly task: Task;
  private readonly personal = next++;

  constructor(pipe: unknown) {
    ({ client: this.client, task: this.task } = handleOf(pipe));
    forgotten.register(this, { client: this.client, personal: this.personal });
  }

  async ask(
    request: HeadRequest,
    inputs: readonly TaskInput[] = [],
    { signal }: CallOptions = {},
  ): Promise<HeadAnswer> {
    if (signal?.aborted) throw new Aborted("the call was aborted by its signal", this.task, "");
    const { personal } = this;
    const transfer = transfers(inputs);
    const answer = await this.client.call("task_head", { personal, request }, { signal, transfer });
    this.info = answer.info;
    return answer;
  }

  async teach(given: Taught, options: TeachOptions = {}): Promise<HeadInfo> {
    const known = options as Record<string, unknown>;
    refuseOthers(known, OTHERS, "teach", "does not exist");
    checkOther(known);
    return this.taught(given, options);
  }

  async taught(given: Taught, options: TeachOptions): Promise<HeadInfo> {
    const { other = [], name = "default", validation_split = 0, seed = 0, lora } = options;
    const examples = await this.read(given);
    if (other.length) {
      const inputs = await readInputs(this.task, other, "other");
      const same = examples.find(([label]) => label === "other");
      if (same) same[1].push(...inputs);
      else examples.push(["other", inputs]);
    }
    if (!examples.length)
      throw new InputError("there are no examples", "personalize", "Give {label: [inputs]}.");
    const inputs = examples.flatMap(([, one]) => one);
    const request = { do: "teach", name, examples, validation_split, seed, lora } as const;
    return (await this.ask(request, inputs, options)).info;
  }

  async add(label: string, given: unknown, options: CallOptions = {}): Promise<HeadInfo> {
    const inputs = await readInputs(this.task, given, `examples of '${label}'`, options.signal);
    return (await this.ask({ do: "add", label, inputs }, inputs, options)).info;
  }

  async remove(label: string): Promise<HeadInfo> {
    return (await this.ask({ do: "remove", label })).info;
  }

  async use(name: string): Promise<HeadInfo> {
    return (await this.ask({ do: "use", name })).info;
  }

  async evaluate(given: Taught, options: CallOptions = {}): Promise<Measures> {
    const examples = await this.read(given);
    const inputs = examples.flatMap(([, one]) => one);
    return (await this.ask({ do: "evaluate", examples }, inputs, options)).measures!;
  }

  async save(name?: string): Promise<Blob> {
    return (await this.ask({ do: "save", name })).file!;
  }

  async load(file: Blob, name?: string, options: CallOptions = {}): Promise<HeadInfo> {
    if (!(file instanceof Blob))
      throw new InputError("it is no file", "load", "Give a Blob that `save` made.");
    return (await this.ask({ do: "load", file, name }, [], options)).info;
  }

  async export(format: ExportFormat, options: CallOptions = {}): Promise<Blob> {
    return (await this.ask({ do: "export", format: String(format) }, [], options)).file!;
  }

  async dispose(): Promise<void> {
    await this.ask({ do: "end" });
  }

  async call(input: unknown, given: Record<string, unknown>): Promise<unknown> {
    const { signal, ...rest } = given as CallOptions;
    const inputs = await readInputs(this.task, input, this.task);
    const options = Object.fromEntries(Object.entries(rest).filter(([, v]) => v !== undefined));
    const { results } = await this.ask({ do: "call", inputs, options }, inputs, { signal });
    return Array.isArray(input) ? results : results![0];
  }

  async *each(
    inputs: AsyncIterable<unknown>,
    given: Record<string, unknown>,
  ): AsyncGenerator<unknown> {
    for await (const input of inputs) yield await this.call(input, given);
  }

  private async read(given: Taught): Promise<[string, TaskInput[]][]> {
    const all: [string, TaskInput[]][] = [];
    for (const [label, inputs] of Object.entries(given))
      all.push([label, await readInputs(this.task, inputs, `examples of '${label}'`)]);
    return all;
  }
}

let next = 1; // number of a personal pipeline

/** Frees the heads of personal pipelines that the page has dropped. */
const forgotten = new FinalizationRegistry<{ client: Client; personal: number }>(
  ({ client, personal }) =>
    client.call("task_head", { personal, request: { do: "end" } }).catch(() => undefined),
);

type Taught = Readonly<Record<string, unknown>>;

interface TeachOptions extends CallOptions {
  other?: readonly unknown[];
  name?: string;
  validation_split?: number;
  seed?: number;
  lora?: unknown;
}

type Task = ReturnType<typeof handleOf>["task"];

/** @throws InputError if there is an option with a value that is not one of `known` */
function refuseOthers(
  options: Readonly<Record<string, unknown>>,
  known: readonly string[],
  where: string,
  why: string,
): void {
  for (const [name, value] of Object.entries(options))
    if (value !== undefined && !known.includes(name))
      throw new InputError(`the option '${name}' ${why}`, where, `There are: ${known.join(", ")}.`);
}

/** @throws InputError if `other` is no list, or another option a function */
function checkOther(options: Readonly<Record<string, unknown>>): void {
  if (options.other !== undefined && !Array.isArray(options.other))
    throw new InputError(
      `it is ${String(options.other)}`,
      "options.other",
      "Give a list of inputs.",
    );
  for (const [name, value] of Object.entries(options))
    if (typeof value === "function")
      throw new InputError("it is a function", `options.${name}`, "Leave it out.");
}
