// Training of a head on features that are computed already. Mirrors
// python/edgewise/host/heads/fit.py. A step is a graph of the package
// (python/edgewise/compiler/heads/step.py), which the engine runs.

import type { HeadFields } from "../../../protocol/heads.ts";
import type { TaskTensor } from "../../../protocol/tasks.ts";
import { InputError } from "../../../shared/errors.ts";
import { numbers } from "../outputs.ts";
import type { Examples } from "./examples.ts";

/** A linear classifier: logits = x w + b. */
export interface Head {
  labels: string[];
  /** [size, labels] */
  weight: Float32Array<ArrayBuffer>;
  bias: Float32Array<ArrayBuffer>;
  /** Of the training's steps. */
  losses: number[];
}

/** Runs a step: all outputs by name. */
export type Step = (feeds: Record<string, TaskTensor>) => Promise<Record<string, TaskTensor>>;

/** Numbers of examples and classes that there are steps for. */
export interface Sizes {
  rows: readonly number[];
  classes: readonly number[];
}

/** Added to the logits of classes that do not exist. */
export const ABSENT = -1e9;
const MIN = 1e-6; // by which features are divided at least
const STATES = ["w", "b", "w_mean", "b_mean", "w_square", "b_square"];

/** The learning rate of a step, which are counted from 0. */
export function rateOf(step: number, { learning_rate, steps }: HeadFields): number {
  return learning_rate * 0.5 * (1 + Math.cos((Math.PI * step) / steps));
}

/**
 * Trains a head. Features are centred, and divided by one number so that their mean square is 1;
 * the result is for features as they are.
 * @throws InputError if there are fewer than two labels with examples, or too many, or numbers are
 *   not finite
 */
export async function fit(
  examples: Examples,
  fields: HeadFields,
  sizes: Sizes,
  run: Step,
): Promise<Head> {
  const { length, size, labels } = examples;
  if (labels.length < 2 || examples.counts().some((n) => !n))
    throw new InputError(
      "a head needs examples of two labels or more",
      "personalize",
      'Add examples of something else, or use method: "knn".',
    );
  const rows = fitting(length, sizes.rows, "examples");
  const classes = fitting(labels.length, sizes.classes, "labels");
  const { x, mean, scale } = prepared(examples, rows);
  const weights = examples.weights(fields.class_weight);
  const total = weights.reduce((a, b) => a + b, 0);
  const targets = new Float32Array(rows * classes);
  weights.forEach((w, i) => {
    targets[i * classes + examples.classes[i]!] = w / total;
  });
  const mask = new Float32Array(classes).fill(ABSENT, labels.length);
  const feeds: Record<string, TaskTensor> = {
    x: floats([rows, size], x),
    targets: floats([rows, classes], targets),
    mask: floats([classes], mask),
    penalty: floats([], [1 / (fields.c * total)]),
  };
  for (const name of STATES) {
    const dims = name.startsWith("w") ? [size, classes] : [classes];
    feeds[name] = floats(dims, new Float32Array(dims.reduce((a, b) => a * b, 1)));
  }
  const losses: number[] = [];
  for (let step = 0; step < fields.steps; step++) {
    feeds.rate = floats([], [rateOf(step, fields)]);
    const count = new BigInt64Array([BigInt(step + 1)]);
    feeds.step = { type: "int64", dims: [], data: new Uint8Array(count.buffer) };
    const made = await run(feeds);
    for (const name of STATES) feeds[name] = made[`new_${name}`]!;
    losses.push(numbers(made.loss!).data[0]!);
  }
  if (!Number.isFinite(losses.at(-1)))
    throw new InputError("the loss is not finite", "personalize", "Give a lower learning_rate.");
  const [w, b] = [numbers(feeds.w!).data, numbers(feeds.b!).data];
  return { labels: [...labels], ...folded(w, b, labels.length, mean, scale), losses };
}

function fitting(count: number, sizes: readonly number[], what: string): number {
  const found = sizes.find((n) => n >= count);
  if (found !== undefined) return found;
  throw new InputError(
    `there are ${count} ${what}, at most ${sizes.at(-1)} can be taught in a page`,
    "personalize",
    "Teach fewer, or teach the model in Python.",
  );
}

/** A tensor of numbers. */
export function floats(dims: number[], values: ArrayLike<number>): TaskTensor {
  const data = values instanceof Float32Array ? values : Float32Array.from(values);
  return {
    type: "float32",
    dims,
    data: new Uint8Array(data.buffer as ArrayBuffer, data.byteOffset, data.byteLength),
  };
}

/** Features that are centred and scaled, with rows of zeros; their mean; their scale. */
export function prepared(
  { rows: given, size, length }: Examples,
  rows: number,
): { x: Float32Array; mean: Float64Array; scale: number } {
  const mean = new Float64Array(size);
  for (const row of given) for (let i = 0; i < size; i++) mean[i]! += row[i]! / length;
  let square = 0;
  for (const row of given)
    for (let i = 0; i < size; i++) square += (row[i]! - mean[i]!) ** 2 / (length * size);
  const scale = 1 / Math.max(Math.sqrt(square), MIN);
  if (!Number.isFinite(square))
    throw new InputError("they are not finite", "features", "Check the examples and the model.");
  const x = new Float32Array(rows * size);
  given.forEach((row, r) => {
    for (let i = 0; i < size; i++) x[r * size + i] = (row[i]! - mean[i]!) * scale;
  });
  return { x, mean, scale };
}

/** The head for features that are neither centred nor scaled. */
function folded(
  w: Float32Array,
  b: Float32Array,
  labels: number,
  mean: Float64Array,
  scale: number,
): Pick<Head, "weight" | "bias"> {
  const classes = b.length;
  const weight = new Float32Array(mean.length * labels);
  const bias = new Float32Array(labels);
  for (let c = 0; c < labels; c++) {
    let sum = 0;
    mean.forEach((m, i) => {
      const value = w[i * classes + c]! * scale;
      weight[i * labels + c] = value;
      sum += value * m;
    });
    bias[c] = b[c]! - sum;
  }
  return { weight, bias };
}

/** The logits of features. */
export function logitsOf({ weight, bias, labels }: Head, features: Float32Array): number[] {
  return labels.map((_, c) => {
    let sum = bias[c]!;
    for (let i = 0; i < features.length; i++) sum += features[i]! * weight[i * labels.length + c]!;
    return sum;
  });
}
