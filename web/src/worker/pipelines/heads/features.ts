// The features of a pipeline's inputs, as its package describes them (task_package/personal.py).

import type { TaskInput } from "../../../protocol/tasks.ts";
import { InputError } from "../../../shared/errors.ts";
import type { Ending, TaskHost } from "../host.ts";
import { type Numbers, output } from "../outputs.ts";
import { runnerOf } from "../tasks.ts";

/** `processor.features` of a manifest. */
export interface FeaturesInfo {
  /** Name of an output of the graph "model". */
  output: string;
  pooling: "none" | "mean" | "first" | "own";
  /** Numbers of an input's features. */
  size: number;
  /** Digest of the model. */
  model: string;
}

/**
 * What a package says of its features.
 * @throws InputError if it was built without them
 */
export function featuresInfo(host: TaskHost): FeaturesInfo {
  const found = host.processor.features as Partial<FeaturesInfo> | undefined;
  const { output: name, pooling, size, model } = found ?? {};
  if (
    typeof name === "string" &&
    typeof pooling === "string" &&
    typeof model === "string" &&
    Number.isInteger(size) &&
    size! > 0 &&
    host.has("head")
  )
    return { output: name, pooling, size: size!, model };
  throw new InputError(
    "the pipeline was not made for it",
    "personalize",
    "Load it with {personalize: true}; build packages with `edgewise build --task ... " +
      "--personalize`.",
  );
}

/**
 * The features of an input.
 * @throws InputError
 */
export async function featuresOf(
  host: TaskHost,
  input: TaskInput,
  ending: Ending,
): Promise<Float32Array> {
  const { output: name, pooling, size } = featuresInfo(host);
  const found = await vectorOf(host, input, name, pooling, ending);
  const made = Float32Array.from(found);
  if (!areFinite(made))
    throw new InputError("they are not finite", "features", "Check the input and the model.");
  if (made.length === size) return made;
  throw new InputError(
    `the features have ${made.length} numbers, not ${size}`,
    host.task,
    "Build the package again with this version.",
  );
}

async function vectorOf(
  host: TaskHost,
  input: TaskInput,
  name: string,
  pooling: FeaturesInfo["pooling"],
  ending: Ending,
): Promise<number[] | Float32Array> {
  const runner = await runnerOf(host);
  const pick = (outputs: Record<string, Numbers>) => pooledOf(output(host, outputs, name), pooling);
  return runner.features!(host, input, pick, ending);
}

/** Whether all numbers are finite. */
export function areFinite(numbers: Float32Array): boolean {
  return numbers.every(Number.isFinite);
}

/** A vector of states of positions. */
export function pooledOf(
  { dims, data }: Numbers,
  pooling: FeaturesInfo["pooling"],
): number[] | Float32Array {
  if (dims.length === 2) return data;
  if (dims.length === 4) {
    const area = dims[2]! * dims[3]!; // channels come first
    return Array.from({ length: dims[1]! }, (_, c) =>
      mean(data.subarray(c * area, (c + 1) * area), 0, 1),
    );
  }
  const size = dims.at(-1)!;
  if (pooling === "first") return data.subarray(0, size);
  return Array.from({ length: size }, (_, i) => mean(data, i, size));
}

function mean(data: Float32Array, first: number, step: number): number {
  let sum = 0;
  let count = 0;
  for (let i = first; i < data.length; i += step, count++) sum += data[i]!;
  return sum / count;
}
