// The arguments of run() after the feeds. Follows InferenceSession.run of onnxruntime-common.

import { InputRangeError, InputTypeError } from "../../shared/errors.ts";
import { isTensor } from "../tensor.ts";

/**
 * Outputs to compute: a list of names, or an object with names as keys and null as values (or
 * tensors, whose contents are ignored).
 */
export type Fetches = readonly string[] | Readonly<Record<string, unknown>>;

/**
 * Resolves `run(feeds, options)` and `run(feeds, fetches, options)`: an object is `fetches` if the
 * value of some output's name in it is null or a tensor; else it is `options`, and all outputs are
 * computed. Unlike there, the name of an unknown output with such a value is an error.
 * @param names names of the model's outputs
 * @param what name of the method, for errors
 * @throws InputTypeError if an argument has another type, or no output is requested
 * @throws InputRangeError if an output is unknown
 */
export function fetchesAndOptions<O extends object>(
  names: readonly string[],
  fetches: Fetches | O | undefined,
  options: O | undefined,
  what: string,
): { outputs: readonly string[]; options: Partial<O> } {
  const refuse = (text: string): never => {
    throw new InputTypeError(
      text,
      what,
      `Call ${what}(feeds), ${what}(feeds, options) or ${what}(feeds, fetches, options).`,
    );
  };
  if (fetches === undefined) return { outputs: names, options: checked(options, refuse) };
  if (typeof fetches !== "object" || fetches === null || isTensor(fetches))
    return refuse("the second argument is neither fetches nor options");
  if (Array.isArray(fetches)) {
    if (!fetches.length) refuse("fetches is an empty list");
    for (const name of fetches as unknown[]) checkFetchName(name, names);
    return { outputs: fetches as string[], options: checked(options, refuse) };
  }
  const outputs = Object.entries(fetches)
    .filter(([, value]) => value === null || isTensor(value))
    .map(([name]) => name);
  for (const name of outputs) checkFetchName(name, names);
  return outputs.length
    ? { outputs, options: checked(options, refuse) }
    : { outputs: names, options: fetches as O };
}

function checkFetchName(name: unknown, names: readonly string[]): void {
  if (!names.includes(name as string))
    throw new (typeof name === "string" ? InputRangeError : InputTypeError)(
      "the model has no such output",
      `fetch '${String(name).slice(0, 100)}'`,
      `It has ${names.join(", ")}.`,
    );
}

function checked<O extends object>(
  options: O | undefined,
  refuse: (text: string) => never,
): Partial<O> {
  if (options === undefined) return {};
  if (typeof options !== "object" || options === null) refuse("options is not an object");
  return options;
}
