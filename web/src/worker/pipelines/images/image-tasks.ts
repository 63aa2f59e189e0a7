// What tasks on pictures share, and image-classification. Names, options and results are those of
// transformers.js.

import type { Box, Layout } from "../../../logic/images/geometry.ts";
import type { TaskInput, TaskTensor } from "../../../protocol/tasks.ts";
import { InputError } from "../../../shared/errors.ts";
import type { Perceive } from "../candidates/zero-shot.ts";
import type { Ending, TaskHost } from "../host.ts";
import { unknownInput } from "../inputs.ts";
import { labeler, type Numbers, numbers, output, row } from "../outputs.ts";
import type { TaskRunner } from "../runner.ts";
import { readImage, type TaskImage } from "./decode.ts";
import { pixelValues } from "./pictures.ts";

/** A picture that a model has seen. */
interface Looked {
  image: TaskImage;
  /** What became of the picture before the model. */
  done: Layout;
  /** The outputs of the model. */
  tensors: Record<string, TaskTensor>;
}

/** The same with the outputs as numbers. */
export interface Seen extends Looked {
  outputs: Record<string, Numbers>;
}

/**
 * The picture of an input.
 * @throws InputError, which names the picture
 */
export function imageOf(host: TaskHost, input: TaskInput, ending: Ending): Promise<TaskImage> {
  if (typeof input === "object" && "image" in input) return readImage(input.image, ending);
  throw new InputError("the input is no picture", host.task, "Give a picture.");
}

/**
 * Runs the graph "model" on a picture.
 * @param box the part of the picture that it sees
 * @param further inputs of the graph
 */
export async function look(
  host: TaskHost,
  image: TaskImage,
  ending: Ending,
  box?: Box,
  further: Record<string, TaskTensor> = {},
): Promise<Looked> {
  const { values, done } = await pixelValues(host, image, ending, box);
  const feeds = Object.fromEntries(
    host.graph("model").inputs.map(({ name }, i) => {
      const value = values[name] ?? further[name] ?? (i === 0 ? values.pixel_values : undefined);
      return [name, value ?? unknownInput(name, host.task)];
    }),
  );
  return { image, done, tensors: await host.run("model", feeds, ending) };
}

/** Runs the graph "model" on the picture of an input. */
export const show = async (
  host: TaskHost,
  input: TaskInput,
  ending: Ending,
  further: Record<string, TaskTensor> = {},
): Promise<Looked> => look(host, await imageOf(host, input, ending), ending, undefined, further);

/** The outputs of the graph "model" for a picture. */
export const perceive = async (
  ...given: Parameters<Perceive>
): Promise<Record<string, TaskTensor>> => (await show(...given)).tensors;

/** The same with the outputs as numbers. */
export function seen(looked: Looked): Seen {
  const outputs = Object.entries(looked.tensors).map(([name, t]) => [name, numbers(t)]);
  return { ...looked, outputs: Object.fromEntries(outputs) };
}

/** As `show`; the outputs are numbers. */
export async function see(host: TaskHost, input: TaskInput, ending: Ending): Promise<Seen> {
  return seen(await show(host, input, ending));
}

/** The inputs of a model for a picture. */
export async function processed(
  host: TaskHost,
  input: TaskInput,
  ending: Ending,
): Promise<Record<string, TaskTensor>> {
  return (await pixelValues(host, await imageOf(host, input, ending), ending)).values;
}

/** `TaskRunner.features` of pictures. */
export const featuresSeen: TaskRunner["features"] = async (host, input, pooled, ending) =>
  pooled((await see(host, input, ending)).outputs);

/** `pipe(pictures, {top_k, function_to_apply})` */
export const imageClassification: TaskRunner = {
  options: ["top_k", "function_to_apply"],
  prepare(host, options) {
    const labels = labeler(host, options, 5);
    return async (input, ending) =>
      labels(row(output(host, (await see(host, input, ending)).outputs, "logits"), 0));
  },
  features: featuresSeen,
};
