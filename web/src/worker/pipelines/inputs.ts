// Inputs of graphs that read tokens.

import type { Processor } from "../../gen/schema.ts";
import { tokens_fed } from "../../logic/tasks/inputs.ts";
import { fitting_size } from "../../logic/tasks/lengths.ts";
import type { TaskTensor } from "../../protocol/tasks.ts";
import { InputError, PackageError } from "../../shared/errors.ts";
import type { InferencePlan } from "../inference/manifest.ts";
import type { TaskHost } from "./host.ts";

/** The length that plans take for `n` tokens: the next one for which there is a plan. */
export function planLength(plans: readonly InferencePlan[], n: number): number {
  const sizes = plans.flatMap(({ register, registers, inputs }) => {
    const size = inputs.get("input_ids")?.shape[1];
    if (size === undefined) return [];
    const dim = typeof size === "number" ? [size] : [size[0], size[1], size[2] ?? 0];
    return [{ dim, registers: register ? [register, ...registers] : [] }];
  });
  return fitting_size(sizes, n);
}

/** A tensor [1, count] of whole numbers. */
export function integers(type: string, at: readonly number[]): TaskTensor {
  const array =
    type === "int64"
      ? BigInt64Array.from(at, BigInt)
      : type === "int32"
        ? Int32Array.from(at)
        : type === "bool"
          ? Uint8Array.from(at)
          : Float32Array.from(at);
  return { type, dims: [1, at.length], data: new Uint8Array(array.buffer) };
}

/**
 * The inputs of a graph for a text, padded to a length for which there is a plan.
 * @param ids its tokens
 * @param pad the token that fills it up
 * @returns those of the graph's inputs that are known
 */
export function textFeeds(
  { inputs, plans }: Pick<ReturnType<TaskHost["graph"]>, "inputs" | "plans">,
  ids: number[],
  pad: number,
): Record<string, TaskTensor> {
  const length = planLength(plans, ids.length);
  const found = inputs.flatMap(({ name, dtype }) => {
    const fed = tokens_fed(name, ids, [], length, pad, 0);
    return fed ? [[name, integers(dtype, fed)] as const] : [];
  });
  return Object.fromEntries(found);
}

/**
 * What a package says of a kind of input. The reader of manifests has checked its fields.
 * @throws PackageError if it does not say it
 */
export function described<K extends keyof Processor>(
  host: Pick<TaskHost, "processor" | "task">,
  kind: K,
): NonNullable<Processor[K]> {
  const found = host.processor[kind];
  if (found) return found;
  throw new PackageError(
    `its processor has no description of ${kind}`,
    host.task,
    "Build the package again with this version: `edgewise build --task`.",
  );
}

/** @throws InputError for an input of a graph that its pipeline does not know */
export function unknownInput(name: string, task: string): never {
  throw new InputError(
    `the graph has an input '${name}', which this pipeline does not feed`,
    task,
    "Export the model for this task.",
  );
}
