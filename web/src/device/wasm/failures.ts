// The engine's error codes as errors.

import { KERNELS } from "../../gen/kernels.ts";
import {
  Aborted,
  EngineError,
  InputError,
  OutOfMemory,
  PackageError,
  PlanError,
  type EdgewiseError,
} from "../../shared/errors.ts";

const CODES = [
  "OK",
  "MEMORY",
  "FORMAT",
  "TABLE",
  "KERNEL",
  "PARAM",
  "BOUNDS",
  "ALIAS",
  "READONLY",
  "UNBOUND",
  "REGISTER",
  "INDEX",
  "ARGUMENT",
  "ABSENT",
  "STOPPED",
] as const;
const WORDS: Record<number, string> = {
  1: "there is not enough memory",
  2: "it is not a plan, or it is cut off",
  3: "it was made for another version of the engine",
  4: "it calls a kernel that the engine does not have",
  5: "a parameter of a step breaks a rule of its kernel",
  6: "a step reaches outside of its buffers",
  7: "a step writes over what it reads",
  8: "a step writes to constants or weights",
  9: "a slot has nothing bound to it",
  10: "a register was given a value outside of its range",
  11: "an index that came from the data is out of range",
  12: "a call has a wrong argument",
  13: "the engine was made without a kernel",
  14: "the run was stopped",
};

/** @param why the fuller engine is of no help */
export function lacking(kernels: readonly string[], where: string, why = ""): EngineError {
  return new EngineError(
    `it needs ${kernels.map((k) => `'${k}'`).join(", ")}, which this engine was made without${why && `; the full engine could not be had: ${why}`}`,
    where,
    "Serve edgewise-simd128-full.wasm and edgewise-relaxed-threads-full.wasm in " +
      "env.engineUrl, too, or make an engine for this model: edgewise build MODEL --engine.",
  );
}

/** Where a call failed; -1 where it is not known. `detail` depends on the code. */
export interface FailurePlace {
  step: number;
  operand: number;
  kernel: number;
  detail: bigint;
}

/** The error for a code that a call returned. @param loading the call loaded a plan */
export function failureOf(
  code: number,
  where: string,
  loading: boolean,
  { step, operand, kernel, detail }: FailurePlace,
): EdgewiseError {
  const place = [
    where,
    step >= 0 && `step ${step}`,
    operand >= 0 && `operand ${operand}`,
    kernel >= 0 && step >= 0 && `kernel ${kernel}`,
  ]
    .filter(Boolean)
    .join(", ");
  const what = `${WORDS[code] ?? "the engine refused"} (${CODES[code] ?? code}, detail ${detail})`;
  if (code === 1)
    return new OutOfMemory(
      what,
      place,
      "Use a smaller or a more strongly quantized model, or close other tabs.",
    );
  if (code === 3)
    return new PackageError(
      what,
      place,
      "Build the package again with the same version of Edgewise as the page's.",
    );
  if (code === 11)
    return new InputError(
      what,
      place,
      "A token id lies outside of the model's vocabulary; do model and tokenizer belong " +
        "together?",
    );
  if (code === 7 && step < 0) {
    const other =
      detail === -1n ? "the engine's arena" : detail === -2n ? "the plan" : `slot ${detail}`;
    return new PlanError(
      `slot ${operand} lies in the same memory as ${other}, and one of them is written`,
      place,
      "The package is damaged: build it again, or clear the site's data if it came from " +
        "the cache.",
    );
  }
  if (code === 14)
    return new Aborted(
      what,
      place,
      "What the run was to write has no defined contents; the engine can be used again.",
    );
  if (code === 13)
    return lacking(
      [
        (KERNELS[kernel]?.[0] ?? String(kernel)) +
          (detail < 0n ? "" : ` with the value ${detail} of a parameter`),
      ],
      place,
    );
  if (loading)
    return new PlanError(
      what,
      place,
      "The plan is damaged: build the package again, or clear the site's data if it came " +
        "from the cache.",
    );
  return new EngineError(
    what,
    place,
    "This is a mistake in Edgewise or in the package; please report it with the model.",
  );
}
