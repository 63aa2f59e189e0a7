// Options of tasks that generate text: their own, and the fields of GenerationConfig.

import { start_ids } from "../../../logic/generation/arguments.ts";
import { GENERATION_FIELDS } from "../../../logic/generation/fields.ts";
import type { GenerationFields } from "../../../protocol/generation.ts";
import { InputError } from "../../../shared/errors.ts";
import type { Options } from "../options.ts";
import type { Seq2SeqModel } from "./model.ts";

/** Names of the fields, and `generate_kwargs`, which has more of them. */
export const FIELD_NAMES: readonly string[] = [...GENERATION_FIELDS.keys(), "generate_kwargs"];

/**
 * The fields among the options of a call, except those that the task reads itself.
 * @throws InputError if generate_kwargs has others
 */
export function fieldsOf(options: Options, own: readonly string[]): GenerationFields {
  const fields: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(options.given))
    if (GENERATION_FIELDS.has(name) && !own.includes(name)) fields[name] = value;
  return fields as GenerationFields;
}

/** The options of a call with those in `generate_kwargs` spread. */
export function spread(given: Readonly<Record<string, unknown>>): Record<string, unknown> {
  const { generate_kwargs: more, ...rest } = given;
  if (more !== undefined && more !== null && typeof more !== "object")
    throw new InputError("it is no object", "options.generate_kwargs", "Give {field: value}.");
  return { ...(more as object | null | undefined), ...rest };
}

/** The first tokens of a sequence. */
export const startIds = (model: Pick<Seq2SeqModel, "config" | "generation_config">): number[] =>
  start_ids(model.generation_config, model.config);
