// Configuration and prompts of a generation. Their rules are logic/generation's.

import { checked_prompt, model_defaults, warnings_of } from "../../logic/generation/arguments.ts";
import { type Configuration, of_file } from "../../logic/generation/config.ts";
import { InputError } from "../../shared/errors.ts";
import type { Decoder } from "./types.ts";

/** The model's own configuration. */
export function modelDefaults(
  decoder: Pick<Decoder, "config" | "generation_config">,
): Configuration {
  return of_file(model_defaults(decoder.generation_config ?? null, decoder.config ?? null));
}

/**
 * The configuration of a generation.
 * @param given takes precedence over the model's
 * @param fields of the call itself
 */
export function resolve(
  decoder: Pick<Decoder, "config" | "generation_config">,
  given: Configuration,
  fields: Configuration,
  warn: (message: string) => void,
): Configuration {
  const config = modelDefaults(decoder).merged(given);
  config.validate();
  for (const text of warnings_of(config, fields.values)) warn(text);
  return config;
}

export function promptsOf(
  input: ArrayLike<number> | ArrayLike<number>[],
  config: Configuration,
  vocab: number,
): number[][] {
  if (typeof input !== "object" || input === null || !("length" in input))
    throw new InputError(
      "input_ids has to be a list of token ids",
      "generate",
      "Encode the text with the model's tokenizer first.",
    );
  const lists = (
    typeof input[0] === "object" ? Array.from(input as ArrayLike<number>[]) : [input]
  ) as ArrayLike<number>[];
  const bos: number | null = config.get("bos_token_id");
  return lists.map((list) => checked_prompt(Array.from(list, Number), bos, vocab));
}
