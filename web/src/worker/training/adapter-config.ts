// Names and configurations of adapters.

import { InputError, ModelError, UnsupportedField } from "../../shared/errors.ts";
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
  let config: Record<string, unknown>;
  try {
    config = JSON.parse(await json.blob.text()) as Record<string, unknown>;
    if (typeof config !== "object" || config === null) throw new Error();
  } catch {
    throw new ModelError("it is not valid JSON", json.name, "Copy the file again.");
  }
  if (config.peft_type !== undefined && config.peft_type !== "LORA")
    throw new UnsupportedField(
      `its kind is ${JSON.stringify(config.peft_type)?.slice(0, 40)}`,
      json.name,
      "Edgewise reads LoRA adapters.",
    );
  for (const field of ["rank_pattern", "alpha_pattern"])
    if (Object.keys((config[field] as object | undefined) ?? {}).length)
      throw new UnsupportedField(
        `it has a ${field}`,
        json.name,
        "Adapters with one rank and one scaling are understood in a page.",
      );
  if (config.use_dora === true)
    throw new UnsupportedField("it is a DoRA adapter", json.name, "Edgewise reads plain LoRA.");
  return withRank(own, config.r, config.lora_alpha, config.use_rslora === true, json.name, config);
}

/**
 * The program's LoRA configuration with another rank and alpha.
 * @throws InputError if they are invalid, or the rank exceeds the program's
 */
export function withRank(
  own: LoraInfo,
  r: unknown,
  alpha: unknown,
  rslora: boolean,
  where: string,
  fields: Record<string, unknown> = {},
): LoraInfo {
  if (typeof r !== "number" || !Number.isInteger(r) || r < 1)
    throw new InputError(
      `r is ${JSON.stringify(r)?.slice(0, 40)}`,
      where,
      "Give a positive integer.",
    );
  if (r > own.r)
    throw new InputError(
      `r is ${r}, and the model was compiled for ranks up to ${own.r}`,
      where,
      `Use an adapter of a rank up to ${own.r}, or compile the model with r=${r}.`,
    );
  if (typeof alpha !== "number" || !(alpha > 0))
    throw new InputError(
      `lora_alpha is ${JSON.stringify(alpha)?.slice(0, 40)}`,
      where,
      "Give a number above 0.",
    );
  return { ...own, ...fields, r, lora_alpha: alpha, use_rslora: rslora };
}
