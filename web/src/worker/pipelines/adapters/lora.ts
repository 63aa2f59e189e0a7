// Training of adapters on the backbone of a personal pipeline. Mirrors
// python/edgewise/host/pipelines/personal/lora.py; the programs are those of
// python/edgewise/compiler/heads/lora.py, whose vector of numbers this file builds.

import { training } from "../../../logic/personal/lora_training.ts";
import { cross_entropy, measured } from "../../../logic/personal/measures.ts";
import type { LoraReport } from "../../../protocol/heads.ts";
import type { TaskTensor } from "../../../protocol/tasks.ts";
import { InputError, ModelError } from "../../../shared/errors.ts";
import type { InferencePlan } from "../../inference/manifest.ts";
import type { Examples } from "../heads/examples.ts";
import { featuresInfo, pooledOf } from "../heads/features.ts";
import { ABSENT, floats, type Head, prepared } from "../heads/fit.ts";
import type { Ending, TaskHost } from "../host.ts";
import { numbers } from "../outputs.ts";
import { type Adapters, isLayout, isSame, type Layout } from "./layout.ts";

/** Share of the examples that is held out, where `validation_split` does not say. */
export const SHARE = 0.25;
const CLASSES = 64; // that a step's head has; there may be fewer

/** How adapters are trained. */
export interface LoraOptions {
  steps: number;
  learning_rate: number;
  batch_size: number;
  evaluate_every: number;
  patience: number;
}

const DEFAULTS: LoraOptions = {
  steps: 40,
  learning_rate: 1e-3,
  batch_size: 4,
  evaluate_every: 5,
  patience: 3,
};

/** The model's inputs for an example. */
export type Feeds = Record<string, TaskTensor>;

/**
 * Where the package has adapters.
 * @throws InputError if it has none
 */
export function layoutOf(host: TaskHost): Layout {
  const { lora } = host.processor.features as { lora?: unknown };
  if (isLayout(lora) && host.has("lora") && host.has("lora_step")) return lora;
  throw new InputError(
    "the pipeline was not made for adapters",
    "lora",
    "Load it with {personalize: {lora: true}}; build packages with `edgewise build --task ... " +
      "--personalize --train lora`.",
  );
}

/**
 * Reads the option `lora` of `personalize`.
 * @throws InputError if it is not valid
 */
export function loraOptions(given: unknown, host: TaskHost, method: string): LoraOptions {
  if (method === "knn")
    throw new InputError('the method "knn" has no head', "lora", "Leave it out.");
  const layout = layoutOf(host);
  const names = ["rank", "alpha", ...Object.keys(DEFAULTS)];
  const isObject = typeof given === "object" && given !== null && !Array.isArray(given);
  if (given !== true && (!isObject || Object.keys(given).some((name) => !names.includes(name))))
    throw new InputError("it is no set of options", "lora", `There are: ${names.join(", ")}.`);
  const { rank, alpha, ...rest } = (isObject ? given : {}) as Partial<LoraOptions & Layout>;
  if ((rank ?? layout.rank) !== layout.rank || (alpha ?? layout.alpha) !== layout.alpha)
    throw new InputError(
      `the pipeline was made for the rank ${layout.rank} and the alpha ${layout.alpha}`,
      "lora",
      "Leave `rank` and `alpha` out, or give them to `pipeline`: {personalize: {lora: {rank, " +
        "alpha}}}.",
    );
  const chosen = Object.entries(rest).filter(([, value]) => value !== undefined);
  const options = { ...DEFAULTS, ...Object.fromEntries(chosen) };
  for (const [name, value] of Object.entries(options)) {
    const most = name === "learning_rate" ? Number.MAX_VALUE : 100_000;
    const whole = name === "learning_rate" || Number.isInteger(value);
    const fine = typeof value === "number" && whole && value > 0 && value <= most;
    if (!fine) throw new InputError(`it is ${value}`, `lora.${name}`, "Give a positive number.");
  }
  return options;
}

/** A pipeline whose model has adapters, or that tells of the inputs of its model. */
export function changed(
  host: TaskHost,
  adapters: Adapters | undefined,
  seen: ((feeds: Feeds) => void) | undefined,
): TaskHost {
  return withRun(host, (feeds, ...rest) => {
    seen?.(feeds);
    if (!adapters) return host.run("model", feeds, ...rest);
    const { data } = adapters;
    return host.run("lora", { ...feeds, parameters: floats([data.length], data) }, ...rest);
  });
}

/**
 * Adapters of a file.
 * @throws ModelError if they are damaged
 */
export function adaptersOf(
  layout: unknown,
  data: Float32Array<ArrayBuffer>,
  where: string,
): Adapters {
  if (isLayout(layout) && data.length === layout.numbers) return { layout, data };
  throw new ModelError("its adapters are not described", where, "Save it again with `save`.");
}

/** @throws InputError if a pipeline was made for other adapters */
export function checkAdapters(host: TaskHost, { layout }: Adapters): void {
  if (isSame(layout, layoutOf(host))) return;
  throw new InputError(
    "its adapters are of other layers, or of another rank",
    "personalize",
    "Load it with the rank that it was made with, or in Python.",
  );
}

type Run = TaskHost["run"] extends (name: string, ...rest: infer Rest) => infer Result
  ? (...rest: Rest) => Result
  : never;

function withRun(host: TaskHost, model: Run): TaskHost {
  const run: TaskHost["run"] = (name, ...rest) =>
    name === "model" ? model(...rest) : host.run(name, ...rest);
  return Object.assign(Object.create(host) as TaskHost, { run });
}

/** What a training of adapters gave. */
export interface Adaptation {
  /** Undefined: the head alone is better on the held-out examples. */
  adapters: Adapters | undefined;
  /** With the features of the model with these adapters. */
  examples: Examples;
  report: LoraReport;
}

/** Labels of held-out examples, and the scores of a head that does not know them, by label. */
export type Held = [truth: readonly string[], scores: readonly Readonly<Record<string, number>>[]];

/** What is to be trained. */
export interface Job {
  examples: Examples;
  /** Of each example. */
  feeds: readonly Feeds[];
  split: readonly [known: number[], held: number[]];
  class_weight: "balanced" | Record<string, number> | null;
  seed: number;
  train(some: Examples): Promise<Head>;
  score(examples: Examples): Promise<Held>;
}

/**
 * Trains adapters, and keeps them if held-out examples are told apart better with them.
 * @throws InputError, Aborted
 */
export async function adapt(
  host: TaskHost,
  job: Job,
  options: LoraOptions,
  ending: Ending,
): Promise<Adaptation> {
  const { examples, feeds, split, train, score } = job;
  const { labels } = examples;
  const [known, held] = split;
  if (feeds.length !== examples.length)
    throw new InputError("the model reads an example in parts", "lora", "Give shorter ones.");
  if (!held.length)
    throw new InputError(
      "no label has two examples",
      "lora",
      "Give more: some are held out to compare.",
    );
  if (labels.length > CLASSES)
    throw new InputError(`there are ${labels.length} labels`, "lora", "Give up to 64.");
  const layout = layoutOf(host);
  const some = examples.chosen(known);
  const run = new Training(host, layout, job, options, some, await train(some), ending);
  await run.begin();
  const best = await trained(run, job, options);
  const alone = await score(examples);
  const before = measured(labels, ...alone);
  const report = { before, losses: run.steps, held_out_losses: run.losses };
  if (best) {
    const adapted = examples.copy();
    adapted.rows = [];
    for (const one of feeds) adapted.rows.push(await run.features(one, best));
    const scores = await score(adapted);
    const after = measured(labels, ...scores);
    const gained =
      after.accuracy! - before.accuracy! || cross_entropy(...alone) - cross_entropy(...scores);
    if (gained > 0) {
      const adapters = { layout, data: best };
      return { adapters, examples: adapted, report: { kept: true, ...report, after } };
    }
  }
  return { adapters: undefined, examples, report: { kept: false, ...report, after: null } };
}

/** The adapters with the lowest loss of the held-out examples; undefined: the first ones. */
async function trained(
  run: Training,
  { split: [known, held], seed }: Job,
  { steps, batch_size, evaluate_every, patience }: LoraOptions,
): Promise<Float32Array<ArrayBuffer> | undefined> {
  let best: Float32Array<ArrayBuffer> | undefined;
  let loss = 0;
  const todo = training(known, steps, batch_size, evaluate_every, patience, seed);
  for (let next = todo.next(loss); !next.done; next = todo.next(loss)) {
    const request = next.value;
    if (request.kind === "step") run.steps.push(await run.step(run.steps.length, request.batch));
    else if (request.kind === "measure") run.losses.push((loss = await run.measure(held)));
    else best = run.adapters.slice();
  }
  return best;
}

/** The length of an input [1, length] that plans take for n: n, else the next, else the last. */
export function fittingLength(
  plans: readonly Pick<InferencePlan, "inputs">[],
  name: string,
  n: number,
): number {
  const sizes = plans.map(({ inputs }) => inputs.get(name)!.shape[1] as number);
  return Math.min(Math.max(...sizes), ...sizes.filter((size) => size >= n));
}

/** The state of a training. */
class Training {
  /** Loss of each step. */
  readonly steps: number[] = [];
  /** Of the held-out examples: before the first step, and at each measurement. */
  readonly losses: number[] = [];
  private readonly mean: Float32Array<ArrayBuffer>;
  private readonly scale: number;
  private readonly weights: number[];
  private parameters: Float32Array<ArrayBuffer>;
  private means: Float32Array<ArrayBuffer>;
  private squares: Float32Array<ArrayBuffer>;

  constructor(
    private readonly host: TaskHost,
    private readonly layout: Layout,
    private readonly job: Job,
    private readonly options: LoraOptions,
    some: Examples,
    head: Head,
    private readonly ending: Ending,
  ) {
    const { mean, scale } = prepared(some, some.length);
    this.mean = Float32Array.from(mean);
    this.scale = scale;
    const { labels } = job.examples;
    const given = some.weights(job.class_weight);
    const total = given.reduce((a, b) => a + b, 0);
    this.weights = labels.map((_, c) => {
      const at = some.classes.indexOf(c);
      return ((at < 0 ? 1 : given[at]!) * given.length) / total;
    });
    const { size } = some;
    const count = layout.numbers + (size + 1) * CLASSES;
    this.parameters = new Float32Array(count);
    this.means = new Float32Array(count);
    this.squares = new Float32Array(count);
    for (let c = 0; c < labels.length; c++) {
      let bias = head.bias[c]!;
      for (let i = 0; i < size; i++) {
        const weight = head.weight[i * labels.length + c]!;
        this.parameters[layout.numbers + i * CLASSES + c] = weight / scale;
        bias += weight * this.mean[i]!;
      }
      this.parameters[layout.numbers + size * CLASSES + c] = bias;
    }
  }

  /** Sets the adapters to their first values; those of B are zeros. */
  async begin(): Promise<void> {
    const drawn = await this.host.run("lora_begin", {}, this.ending, BigInt(this.job.seed));
    this.parameters.set(numbers(drawn.a!).data);
  }

  get adapters(): Float32Array<ArrayBuffer> {
    return this.parameters.subarray(0, this.layout.numbers);
  }

  /** The features of an input, of the model with adapters. */
  async features(
    feeds: Feeds,
    adapters: Float32Array<ArrayBuffer>,
  ): Promise<Float32Array<ArrayBuffer>> {
    const parameters = floats([adapters.length], adapters);
    const made = await this.host.run("lora", { ...feeds, parameters }, this.ending);
    const { output: name, pooling } = featuresInfo(this.host);
    const found = pooledOf(numbers(made[name]!), pooling);
    const voice = this.host.task === "speaker-verification"; // a unit vector
    const length = voice && Math.hypot(...Array.from(found));
    return Float32Array.from(found, (x) => x / (length || 1));
  }

  /** Trains on a batch; its mean loss. */
  async step(step: number, batch: readonly number[]): Promise<number> {
    const { host, job, ending, mean, weights, parameters } = this;
    const { labels, classes, size } = job.examples;
    const vector = floats([parameters.length], parameters);
    let gradients = floats([parameters.length], new Float32Array(parameters.length));
    let total = 0;
    for (const i of batch) {
      const targets = new Float32Array(CLASSES);
      targets[classes[i]!] = weights[classes[i]!]! / batch.length;
      const made = await host.run(
        "lora_step",
        {
          ...this.fitted(job.feeds[i]!),
          mean: floats([size], mean),
          scale: floats([], [this.scale]),
          mask: floats([CLASSES], new Float32Array(CLASSES).fill(ABSENT, labels.length)),
          targets: floats([1, CLASSES], targets),
          parameters: vector,
          gradients,
        },
        ending,
      );
      gradients = made.new_gradients!;
      total += numbers(made.loss!).data[0]!;
    }
    if (!Number.isFinite(total))
      throw new InputError("the loss is not finite", "lora", "Give a lower learning_rate.");
    await this.update(step, vector, gradients);
    return total;
  }

  private async update(step: number, vector: TaskTensor, gradients: TaskTensor): Promise<void> {
    const { learning_rate: most, steps } = this.options;
    const rate = most * 0.5 * (1 + Math.cos((Math.PI * step) / steps));
    const count = new BigInt64Array([BigInt(step + 1)]);
    const made = await this.host.run(
      "lora_update",
      {
        rate: floats([], [rate]),
        step: { type: "int64", dims: [], data: new Uint8Array(count.buffer) },
        parameters: vector,
        gradients,
        means: floats([this.means.length], this.means),
        squares: floats([this.squares.length], this.squares),
      },
      this.ending,
    );
    const read = (name: string) => numbers(made[`new_${name}`]!).data as Float32Array<ArrayBuffer>;
    this.parameters = read("parameters");
    this.means = read("means");
    this.squares = read("squares");
  }

  /** The mean cross entropy of held-out examples, with the head as it is trained. */
  async measure(held: readonly number[]): Promise<number> {
    const { layout, job, mean, scale, parameters } = this;
    const { labels, classes, size } = job.examples;
    let sum = 0;
    for (const i of held) {
      const x = await this.features(job.feeds[i]!, this.adapters);
      const logits = labels.map((_, c) => {
        let logit = parameters[layout.numbers + size * CLASSES + c]!;
        for (let k = 0; k < size; k++)
          logit += (x[k]! - mean[k]!) * scale * parameters[layout.numbers + k * CLASSES + c]!;
        return logit;
      });
      const top = Math.max(...logits);
      const total = logits.reduce((all, v) => all + Math.exp(v - top), 0);
      sum += top + Math.log(total) - logits[classes[i]!]!;
    }
    return sum / held.length;
  }

  /**
   * Inputs of a length that a step takes: tokens are followed by zeros, which their mask has too,
   * sounds by themselves, so that nothing is trained on silence; what is longer is cut.
   */
  private fitted(feeds: Feeds): Feeds {
    const { plans } = this.host.graph("lora_step");
    const sound = Object.values(feeds).some(({ type }) => type.startsWith("float"));
    const fit = ({ type, dims, data }: TaskTensor, name: string): TaskTensor => {
      if (dims.length !== 2) return { type, dims, data };
      const n = fittingLength(plans, name, dims[1]!);
      const bytes = new Uint8Array(n * (data.byteLength / dims[1]!));
      for (let at = 0; at < (sound ? bytes.length : 1); at += data.length)
        bytes.set(data.subarray(0, bytes.length - at), at);
      return { type, dims: [1, n], data: bytes };
    };
    return Object.fromEntries(Object.entries(feeds).map(([name, t]) => [name, fit(t, name)]));
  }
}
