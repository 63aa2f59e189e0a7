// Runs the training of adapters for logic/personal/adapters.py, which has its steps. The programs
// are those of python/edgewise/compiler/heads/lora.py, whose vector of numbers this file builds.

import {
  adapting,
  type LoraOptions,
  type LoraReport,
  lora_options,
  loss_of,
  type Request,
  type Step,
  shares_of,
  targets_of,
} from "../../../logic/personal/adapters.ts";
import { fitting_length, type LoraLayout, layout_of } from "../../../logic/personal/layout.ts";
import { CLASSES, mask_of } from "../../../logic/personal/training.ts";
import type { TaskTensor } from "../../../protocol/tasks.ts";
import { drive } from "../../../shared/drive.ts";
import { InputError } from "../../../shared/errors.ts";
import type { Examples } from "../heads/examples.ts";
import { featuresInfo, pooledOf } from "../heads/features.ts";
import { count, floats, type Head, prepared } from "../heads/fit.ts";
import type { Ending, TaskHost } from "../host.ts";
import { numbers } from "../outputs.ts";

/** Trained adapters: `layout.numbers` numbers. */
export interface Adapters {
  layout: LoraLayout;
  data: Float32Array<ArrayBuffer>;
}

/** The model's inputs for an example. */
export type Feeds = Record<string, TaskTensor>;

/**
 * Where the package has adapters.
 * @throws InputError if it has none
 */
export function layoutOf(host: TaskHost): LoraLayout {
  const { lora } = host.processor.features as { lora?: unknown };
  if (lora && host.has("lora") && host.has("lora_step")) return layout_of(lora, "lora");
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
export function loraOptions(given: unknown, host: TaskHost): LoraOptions {
  const { rank, alpha } = layoutOf(host);
  return lora_options(given, rank, alpha, true);
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

/** @throws InputError if a pipeline was made for other adapters */
export function checkAdapters(host: TaskHost, { layout }: Adapters): void {
  if (layout.same(layoutOf(host))) return;
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
export type Held = [truth: string[], scores: Readonly<Record<string, number>>[]];

/** What is to be trained. */
export interface Job {
  examples: Examples;
  /** Of each example. */
  feeds: readonly Feeds[];
  split: readonly [known: number[], held: number[]];
  class_weight: string | Readonly<Record<string, number>> | null;
  seed: bigint;
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
  const { examples, feeds, split, train, score, seed } = job;
  const [known, held] = split;
  const layout = layoutOf(host);
  let run: Training | undefined;
  let best: Float32Array<ArrayBuffer> | undefined;
  let adapted = examples;
  const answer = async (request: Request): Promise<unknown> => {
    if (request.kind === "begin") {
      const some = examples.chosen(known);
      run = new Training(host, layout, job, some, await train(some), ending);
      return run.begin();
    }
    if (request.kind === "step") return run!.step(request);
    if (request.kind === "measure") return run!.measure(held);
    if (request.kind === "keep") {
      best = run!.adapters.slice();
      return undefined;
    }
    if (request.adapted) {
      const rows: Float32Array[] = [];
      for (const one of feeds) rows.push(await run!.features(one, best!));
      adapted = examples.copy(rows);
    }
    return score(adapted);
  };
  const steps = adapting(examples, known, held, feeds.length, options, seed);
  const report = await drive(steps, answer);
  return report.kept
    ? { adapters: { layout, data: best! }, examples: adapted, report }
    : { adapters: undefined, examples, report };
}

/** The state of a training. */
class Training {
  private readonly mean: Float32Array<ArrayBuffer>;
  private readonly scale: number;
  private readonly shares: number[];
  private parameters: Float32Array<ArrayBuffer>;
  private means: Float32Array<ArrayBuffer>;
  private squares: Float32Array<ArrayBuffer>;

  constructor(
    private readonly host: TaskHost,
    private readonly layout: LoraLayout,
    private readonly job: Job,
    some: Examples,
    head: Head,
    private readonly ending: Ending,
  ) {
    const { mean, scale } = prepared(some, some.length);
    this.mean = Float32Array.from(mean);
    this.scale = scale;
    const { labels } = job.examples;
    this.shares = shares_of(job.examples, some, job.class_weight);
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
    const drawn = await this.host.run("lora_begin", {}, this.ending, this.job.seed);
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
  async step({ batch, number, rate }: Step): Promise<number> {
    const { host, job, ending, mean, shares, parameters } = this;
    const { labels, classes, size } = job.examples;
    const vector = floats([parameters.length], parameters);
    let gradients = floats([parameters.length], new Float32Array(parameters.length));
    let total = 0;
    for (const i of batch) {
      const label = classes[i]!;
      const made = await host.run(
        "lora_step",
        {
          ...this.fitted(job.feeds[i]!),
          mean: floats([size], mean),
          scale: floats([], [this.scale]),
          mask: floats([CLASSES], mask_of(labels.length, CLASSES)),
          targets: floats([1, CLASSES], targets_of(label, shares[label]!, batch.length)),
          parameters: vector,
          gradients,
        },
        ending,
      );
      gradients = made.new_gradients!;
      total += numbers(made.loss!).data[0]!;
    }
    await this.update(count(number), rate, vector, gradients);
    return total;
  }

  private async update(
    step: TaskTensor,
    rate: number,
    vector: TaskTensor,
    gradients: TaskTensor,
  ): Promise<void> {
    const made = await this.host.run(
      "lora_update",
      {
        rate: floats([], [rate]),
        step,
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
      sum += loss_of(logits, classes[i]!);
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
      const sizes = plans.map(({ inputs }) => inputs.get(name)!.shape[1] as number);
      const n = fitting_length(
        sizes.map((size) => [size, size]),
        dims[1]!,
      );
      const bytes = new Uint8Array(n * (data.byteLength / dims[1]!));
      for (let at = 0; at < (sound ? bytes.length : 1); at += data.length)
        bytes.set(data.subarray(0, bytes.length - at), at);
      return { type, dims: [1, n], data: bytes };
    };
    return Object.fromEntries(Object.entries(feeds).map(([name, t]) => [name, fit(t, name)]));
  }
}
