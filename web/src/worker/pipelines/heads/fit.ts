// Runs the training of a head for logic/personal/training.py, which has its steps. A step is a
// graph of the package (python/edgewise/compiler/heads/step.py).

import type { HeadFields } from "../../../logic/personal/options.ts";
import { check_trainable, head_feeds, head_steps } from "../../../logic/personal/training.ts";
import type { TaskTensor } from "../../../protocol/tasks.ts";
import { drive } from "../../../shared/drive.ts";
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

const MIN = 1e-6; // by which features are divided at least
const STATES = ["w", "b", "w_mean", "b_mean", "w_square", "b_square"];

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
  check_trainable(examples);
  const rows = fitting(length, sizes.rows, "examples");
  const classes = fitting(labels.length, sizes.classes, "labels");
  const { x, mean, scale } = prepared(examples, rows);
  const { targets, mask, penalty } = head_feeds(examples, fields, rows, classes);
  const feeds: Record<string, TaskTensor> = {
    x: floats([rows, size], x),
    targets: floats([rows, classes], targets),
    mask: floats([classes], mask),
    penalty: floats([], [penalty]),
  };
  for (const name of STATES) {
    const dims = name.startsWith("w") ? [size, classes] : [classes];
    feeds[name] = floats(dims, new Float32Array(dims.reduce((a, b) => a * b, 1)));
  }
  const losses = await drive(head_steps(fields), async ({ number, rate }) => {
    feeds.rate = floats([], [rate]);
    feeds.step = count(number);
    const made = await run(feeds);
    for (const name of STATES) feeds[name] = made[`new_${name}`]!;
    return numbers(made.loss!).data[0]!;
  });
  const [w, b] = [numbers(feeds.w!).data, numbers(feeds.b!).data];
  return { labels: [...labels], ...folded(w, b, labels.length, mean, scale), losses };
}

/** The number of a step. */
export function count(step: number): TaskTensor {
  const data = new Uint8Array(new BigInt64Array([BigInt(step)]).buffer);
  return { type: "int64", dims: [], data };
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
