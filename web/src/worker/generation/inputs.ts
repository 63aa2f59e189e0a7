// Configuration, prompts and length limit of a generation.

import { BEAMS_ONLY, SAMPLING_ONLY } from "../../gen/sampling.ts";
import { InputError } from "../../shared/errors.ts";
import { GenerationConfig } from "./config.ts";
import type { Decoder } from "./types.ts";

/**
 * The contents of generation_config.json; without one, the special tokens of config.json, as in
 * transformers.
 */
export function modelDefaults(
  decoder: Pick<Decoder, "config" | "generation_config">,
): Record<string, unknown> {
  if (decoder.generation_config && Object.keys(decoder.generation_config).length)
    return decoder.generation_config;
  const config = decoder.config ?? {};
  return Object.fromEntries(
    ["bos_token_id", "eos_token_id", "pad_token_id"]
      .filter((n) => config[n] != null)
      .map((n) => [n, config[n]]),
  );
}

export function resolve(
  decoder: Pick<Decoder, "config" | "generation_config">,
  given: GenerationConfig,
  fields: GenerationConfig,
  warn: (message: string) => void,
): GenerationConfig {
  const config = GenerationConfig.fromJson(modelDefaults(decoder)).merged(given);
  config.validate();
  const idle = [
    [SAMPLING_ONLY, !config.get("do_sample"), "do_sample: true"],
    [BEAMS_ONLY, config.get("num_beams") === 1, "num_beams > 1"],
  ] as const;
  for (const [names, without, need] of idle)
    for (const name of names)
      if (without && fields.isSet(name) && fields.get(name) !== null)
        warn(`${name} has an effect only with ${need}`);
  return config;
}

export function promptsOf(
  input: ArrayLike<number> | ArrayLike<number>[],
  config: GenerationConfig,
  vocab: number,
): number[][] {
  if (typeof input !== "object" || input === null || !("length" in input))
    throw new InputError(
      "input_ids has to be a list of token ids",
      "generate",
      "Encode the text with the model's tokenizer first.",
    );
  const first = input[0];
  const lists = (
    typeof first === "object" ? Array.from(input as ArrayLike<number>[]) : [input]
  ) as ArrayLike<number>[];
  return lists.map((list) => {
    const prompt = Array.from(list, Number);
    if (!prompt.length) {
      const bos = config.get("bos_token_id");
      if (bos === null)
        throw new InputError(
          "the prompt is empty and there is no bos_token_id to begin with",
          "generate",
          "Give at least one token.",
        );
      prompt.push(bos);
    }
    for (const id of prompt)
      if (!(Number.isInteger(id) && id >= 0 && id < vocab))
        throw new InputError(
          `the prompt contains the token id ${id}, and the vocabulary has ${vocab}`,
          "generate",
          "The tokenizer and the model do not belong together.",
        );
    return prompt;
  });
}

/**
 * Maximum length of this prompt's sequence, as in transformers: max_new_tokens takes precedence,
 * and the default means 20 new tokens unless it is a field of the call itself. Limited to the
 * capacity of the cache, with a warning if more was requested.
 */
export function lengthLimit(
  config: GenerationConfig,
  fields: GenerationConfig,
  prompt: number,
  capacity: number,
  warn: (message: string) => void,
): number {
  const [more, whole] = [config.get("max_new_tokens"), config.get("max_length")];
  const asked =
    more !== null ||
    (whole !== null &&
      (whole !== 20 || (fields.isSet("max_length") && fields.get("max_length") !== null)));
  const limit = more !== null ? prompt + more : asked ? whole! : prompt + 20;
  if (prompt >= capacity)
    throw new InputError(
      `the prompt has ${prompt} tokens, and the model's cache holds ${capacity}`,
      "generate",
      "Shorten the prompt, or load the model with a larger max_length.",
    );
  if (prompt >= limit)
    throw new InputError(
      `the prompt has ${prompt} tokens, but max_length is ${limit}`,
      "generate",
      "Raise max_length, or set max_new_tokens.",
    );
  if (limit > capacity && asked)
    warn(
      `generation ends at ${capacity} tokens, which is what the model's cache holds; ` +
        `${limit} were allowed`,
    );
  return Math.min(limit, capacity);
}
