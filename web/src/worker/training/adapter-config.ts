// Names and configurations of adapters.

import { is_rank, read_config } from "../../logic/training/lora.ts";
import { InputError, ModelError, UnsupportedField } from "../../shared/errors.ts";
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
  for (const field of ["rank_pattern", "alpha_pattern"])
    if (Object.keys((fields[field] as object | undefined) ?? {}).length)
      throw new UnsupportedField(
        `it has a ${field}`,
        json.name,
        "Adapters with one rank and one scaling are understood in a page.",
      );
  const { r = 8, lora_alpha = 8, use_rslora = false } = fields as Partial<LoraInfo>; // as in PEFT
  return { ...own, ...fields, ...ranked(own, r, json.name), lora_alpha, use_rslora };
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
