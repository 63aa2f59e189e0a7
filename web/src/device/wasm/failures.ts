// The engine's error codes as errors.

import { EngineError } from "../../shared/errors.ts";

export const CODES = [
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
export const WORDS: Record<number, string> = {
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
