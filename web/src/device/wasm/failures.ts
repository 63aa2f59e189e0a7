// Conversion of the engine's error codes to errors.

import { KERNELS } from "../../gen/kernels.ts";
import { ALIAS, ERRORS } from "../../gen/plan_format.ts";
import {
  Aborted,
  type EdgewiseError,
  EngineError,
  InputError,
  OutOfMemory,
  PackageError,
  PlanError,
} from "../../shared/errors.ts";
import { tooManyTrips } from "../../shared/trips.ts";

/** Error codes by name. */
const CODE = Object.fromEntries(
  Object.entries(ERRORS).map(([code, [name]]) => [name, Number(code)]),
) as Readonly<Record<string, number>>;

/**
 * The error for kernels that the engine does not contain.
 * @param why why the build with all kernels cannot be used either
 * @param remedy what to do about that
 */
export function lacking(
  kernels: readonly string[],
  where: string,
  why = "",
  remedy = "Serve the files edgewise-*-full.wasm in env.engineUrl, too, or make an engine for " +
    "this model: edgewise build MODEL --engine.",
): EngineError {
  return new EngineError(
    `it needs ${kernels.map((k) => `'${k}'`).join(", ")}, which this engine was built without` +
      (why && `; the full engine could not be loaded: ${why}`),
    where,
    remedy,
  );
}

/** Where a call failed; -1 if unknown. The meaning of `detail` depends on the code. */
export interface FailurePlace {
  step: number;
  operand: number;
  kernel: number;
  detail: bigint;
}

/**
 * The error for a code that a call returned.
 * @param loading whether the call loaded a plan
 */
export function failureOf(
  code: number,
  where: string,
  loading: boolean,
  at: FailurePlace,
): EdgewiseError {
  const { step, operand, kernel, detail } = at;
  const place = placeOf(where, at);
  const [name, text] = ERRORS[code] ?? [String(code), "the engine refused"];
  const what = `${text} (${name}, detail ${detail})`;
  if (code === CODE.MEMORY)
    return new OutOfMemory(
      what,
      place,
      "Use a smaller or a more strongly quantized model, or close other tabs.",
    );
  if (code === CODE.TABLE)
    return new PackageError(
      what,
      place,
      "Build the package again with the same version of Edgewise as the page's.",
    );
  if (code === CODE.INDEX)
    return new InputError(
      what,
      place,
      "A token id lies outside of the model's vocabulary; do model and tokenizer belong " +
        "together?",
    );
  if (code === CODE.ALIAS && step < 0) return sharedMemory(operand, detail, place);
  if (code === CODE.STOPPED)
    return new Aborted(what, place, "Its outputs are undefined; the engine can be used again.");
  if (code === CODE.TRIPS) return tooManyTrips(detail, where);
  if (code === CODE.ABSENT) return absentKernel(kernel, detail, place);
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
    "This is a bug in Edgewise or in the package; please report it with the model.",
  );
}

function placeOf(where: string, { step, operand, kernel }: FailurePlace): string {
  return [
    where,
    step >= 0 && `step ${step}`,
    operand >= 0 && `operand ${operand}`,
    kernel >= 0 && step >= 0 && `kernel ${kernel}`,
  ]
    .filter(Boolean)
    .join(", ");
}

/** The error for a writable slot that overlaps other memory. */
function sharedMemory(slot: number, detail: bigint, place: string): PlanError {
  const other =
    detail === BigInt(ALIAS.ARENA)
      ? "the engine's arena"
      : detail === BigInt(ALIAS.PLAN)
        ? "the plan"
        : `slot ${detail}`;
  return new PlanError(
    `slot ${slot} lies in the same memory as ${other}, and one of them is written`,
    place,
    "The package is damaged: build it again, or clear the site's data if it came from " +
      "the cache.",
  );
}

/** The error for a kernel, or a value of its parameter, that this build does not contain. */
function absentKernel(kernel: number, detail: bigint, place: string): EngineError {
  const name = KERNELS[kernel]?.[0] ?? String(kernel);
  return lacking([name + (detail < 0n ? "" : ` with the value ${detail} of a parameter`)], place);
}
