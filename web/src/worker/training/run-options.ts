// The options of a run: defaults and checks.

import type { TrainingFields } from "../../protocol/training.ts";
import { InputError } from "../../shared/errors.ts";
import type { Model } from "../model/model.ts";
import type { LoraInfo, ProgramInfo } from "../package/manifest.ts";
import { withRank } from "./adapter-config.ts";
import { rankAxis } from "./adapter-tensors.ts";
import type { Session } from "./session.ts";

export function whole(
  value: number | undefined,
  name: string,
  least: number,
  otherwise: number,
): number {
  if (value === undefined) return otherwise;
  if (!Number.isSafeInteger(value) || value < least)
    throw new InputError(
      `it is ${String(value)}`,
      `options.${name}`,
      `Give a whole number from ${least} on.`,
    );
  return value;
}

export function choose(model: Model, adapter: unknown): ProgramInfo {
  const programs = [...model.programs.values()];
  if (!programs.length)
    throw new InputError(
      "this model was compiled without training",
      model.where,
      "Load the .onnx model with the option training, or build the package with `edgewise " +
        "build --train`.",
    );
  if (adapter !== undefined && adapter !== "lora" && adapter !== "full")
    throw new InputError(
      `it is ${JSON.stringify(adapter)?.slice(0, 60)}`,
      "options.adapter",
      "Give 'lora' or 'full'.",
    );
  const found =
    adapter === undefined
      ? (programs.find((p) => p.lora) ?? programs[0])
      : programs.find((p) => (p.lora !== null) === (adapter === "lora"));
  if (!found)
    throw new InputError(
      "this model was compiled for training " +
        `'${programs.map((p) => (p.lora ? "lora" : "full")).join("', '")}'`,
      "options.adapter",
      "Choose that, or compile the model for the other.",
    );
  return found;
}

export function seedOf(seed: number | bigint | undefined): bigint {
  if (seed === undefined) return 0n;
  if (
    typeof seed === "bigint"
      ? seed < 0n || seed >= 1n << 63n
      : !(Number.isSafeInteger(seed) && seed >= 0)
  )
    throw new InputError(
      `it is ${String(seed)}`,
      "options.seed",
      "Give a whole number from 0 on (above 2^53 as a BigInt).",
    );
  return BigInt(seed);
}

export function loraOf(
  program: ProgramInfo,
  { r, lora_alpha: alpha }: TrainingFields,
): LoraInfo | undefined {
  const own = program.lora;
  if (!own) {
    if (r !== undefined || alpha !== undefined)
      throw new InputError(
        "r and lora_alpha are of adapters",
        "options",
        "Leave them out when all parameters are trained.",
      );
    return undefined;
  }
  return withRank(
    own,
    r ?? own.r,
    alpha ?? (own.lora_alpha * (r ?? own.r)) / own.r,
    own.use_rslora,
    "options",
  );
}

/**
 * Rows of A beyond the rank are zeros, as B's columns are from the beginning: gradients of both are
 * zero, and they stay so.
 */
export function lowerRank(session: Session, r: number): void {
  for (const state of session.results) {
    const axis = rankAxis(state.name);
    if (axis === undefined) continue;
    const [rows, row] = [state.shape[0]!, state.bytes / state.shape[0]!];
    const rest = axis === 0 ? (rows - r) * row : row - (r * row) / state.shape[1]!;
    const zeros = new Uint8Array(rest);
    if (axis === 0) session.writeState(state, zeros, r * row);
    else for (let i = 1; i <= rows; i++) session.writeState(state, zeros, i * row - rest);
  }
}

export function freshName(model: Model, base: string): string {
  for (let n = 1; ; n++) {
    const name = n === 1 ? base : `${base} ${n}`;
    if (!model.adapters.has(name)) return name;
  }
}

export function compare(
  mine: Record<string, unknown>,
  theirs: Record<string, unknown>,
  name: string,
): void {
  const differ = Object.keys(mine).filter(
    (key) => JSON.stringify(mine[key]) !== JSON.stringify(theirs[key]),
  );
  if (!differ.length) return;
  const words = differ
    .slice(0, 3)
    .map((key) =>
      ["texts", "model"].includes(key)
        ? `other ${key}`
        : `${key} ${JSON.stringify(theirs[key])?.slice(0, 60)} and not ` +
          `${JSON.stringify(mine[key])?.slice(0, 60)}`,
    );
  throw new InputError(
    `it was made with ${words.join(", ")}`,
    `checkpoint '${name}'`,
    "Resume with the same texts and options, or start anew with resume: false.",
  );
}
