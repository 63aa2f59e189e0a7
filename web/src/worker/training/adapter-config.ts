// Names and configurations of adapters.

import {
  check_plain,
  has_patterns,
  is_rank,
  rank_in,
  read_config,
  scaling_in,
} from "../../logic/training/lora.ts";
import { InputError, ModelError } from "../../shared/errors.ts";
import { written } from "../../shared/native.ts";
import type { LoraInfo, ProgramInfo } from "../package/manifest.ts";

/** @throws InputError if it is not a string of 1 to 100 characters without slashes */
export function checkAdapterName(name: unknown): asserts name is string {
  if (
    typeof name !== "string" ||
    !name.trim() ||
    name.length > 100 ||
    [...name].some((c) => c < " " || c === "/" || c === "\\")
  )
    throw new InputError(
      `${JSON.stringify(name)?.slice(0, 120)} is not a valid adapter name`,
      "name",
      "Give a short name without slashes.",
    );
}

/**
 * Parses an adapter_config.json and checks it against the program.
 * @throws InputError, ModelError, UnsupportedField
 */
export async function configOf(
  program: ProgramInfo,
  json: { name: string; blob: Blob } | undefined,
  where: string,
): Promise<LoraInfo> {
  const own = program.lora!;
  if (!json)
    throw new InputError(
      "there is no adapter_config.json",
      where,
      "Give it along with adapter_model.safetensors: it says how the adapter is scaled.",
    );
  let config: unknown;
  try {
    config = JSON.parse(await json.blob.text());
  } catch {
    throw new ModelError("it is not valid JSON", json.name, "Copy the file again.");
  }
  const fields = read_config(config, json.name) as Record<string, unknown>;
  check_plain(fields, json.name);
  const { r = 8, lora_alpha = 8 } = fields as Partial<LoraInfo>; // as in PEFT
  const { use_rslora = false, use_dora = false } = fields as Partial<LoraInfo>;
  const rank = has_patterns(fields) || has_patterns(own) ? { r } : ranked(own, r, json.name);
  const patterns = { rank_pattern: {}, alpha_pattern: {} };
  return { ...own, ...patterns, ...fields, ...rank, lora_alpha, use_rslora, use_dora };
}

/** Whether the scaling of a program's adapters is that of each module, or fixed by their norms. */
export function scaledByModule(program: ProgramInfo, lora: LoraInfo): boolean {
  return has_patterns(program.lora!) || has_patterns(lora) || lora.use_dora === true;
}

/**
 * The factors that turn B of each module into one with the scaling that the program was compiled
 * with, and the configuration of the result.
 */
export function rescaled(
  program: ProgramInfo,
  lora: LoraInfo,
  modules: readonly string[],
): { factors: Map<string, number>; lora: LoraInfo } {
  const own = program.lora!;
  const factors = new Map<string, number>();
  const alphas: Record<string, number> = {};
  for (const module of modules) {
    const factor = scaling_in(lora, module) / scaling_in(own, module);
    if (Math.abs(factor - 1) < 1e-12) continue;
    factors.set(module, factor);
    const rank = rank_in(lora, module);
    alphas[module] = scaling_in(own, module) * (lora.use_rslora ? Math.sqrt(rank) : rank);
  }
  const kept = (lora.alpha_pattern ?? {}) as Record<string, number>;
  return { factors, lora: { ...lora, alpha_pattern: { ...alphas, ...kept, ...alphas } } };
}

/**
 * A rank of the program's adapters.
 * @throws InputError if it is invalid, or exceeds the program's
 */
export function ranked(own: LoraInfo, r: unknown, where: string): { r: number } {
  if (!is_rank(r)) throw new InputError(`r is ${written(r)}`, where, "Give a positive integer.");
  if ((r as number) > own.r)
    throw new InputError(
      `r is ${r}, and the model was compiled for ranks up to ${own.r}`,
      where,
      `Use an adapter of a rank up to ${own.r}, or compile the model with r=${r}.`,
    );
  return { r: r as number };
}
