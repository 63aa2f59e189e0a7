// The call of a generation: logic/generation with a decoder of this worker.
// python/edgewise/host/text/generate.py is the same for Python.

import { model_defaults } from "../../logic/generation/arguments.ts";
import { Configuration, of_file } from "../../logic/generation/config.ts";
import * as rules from "../../logic/generation/generate.ts";
import type { GenerationFields } from "../../protocol/generation.ts";
import { InputError } from "../../shared/errors.ts";
import { GenerationHost } from "./host.ts";
import type { Decoder, GenerateOutput, GenerationOptions } from "./types.ts";

/**
 * Generates continuations of token ids. Yields to the event loop between tokens, so that an abort
 * is noticed.
 * @param decoder computes logits
 * @param input_ids token ids of a prompt, or a list of prompts, which are generated one by one
 * @param config values that are not set come from `decoder.generation_config`
 * @param options see {@link GenerationOptions}
 * @returns the sequences; with `return_dict_in_generate` a GenerateOutput
 * @throws UnsupportedField, InputError, EngineError, Aborted
 */
export async function generate<S>(
  decoder: Decoder<S>,
  input_ids: ArrayLike<number> | ArrayLike<number>[],
  config: Configuration | GenerationFields = {},
  options: GenerationOptions = {},
): Promise<number[][] | GenerateOutput> {
  const given = config instanceof Configuration ? config : new Configuration(config, "generate");
  const { fields = {}, tokenizer } = options;
  const decode = tokenizer
    ? (ids: number[]) => tokenizer.decode(ids, { skip_special_tokens: false })
    : null;
  const host = new GenerationHost(decoder, options);
  const inputs = promptsOf(input_ids);
  const job = rules.prepared(host, defaultsOf(decoder), given, fields, inputs, decode);
  const warn = options.warn ?? ((message: string) => console.warn(`edgewise: ${message}`));
  job.warnings.forEach(warn);
  const output = await host.run(rules.generate(host, job));
  return job.config.get("return_dict_in_generate") ? output : output.sequences;
}

/** The sum of the logarithms of the probabilities of tokens after a prompt. */
export function logProbabilityOf<S>(
  decoder: Decoder<S>,
  prompt: number[],
  tokens: readonly number[],
  fields: GenerationFields,
): Promise<number> {
  const host = new GenerationHost(decoder);
  const config = rules.resolved(defaultsOf(decoder), null, fields);
  return host.run(rules.log_probability_of(host, config, prompt, tokens));
}

type Described = Pick<Decoder, "config" | "generation_config">;

const defaultsOf = ({ config, generation_config }: Described): Record<string, unknown> =>
  model_defaults(generation_config ?? null, config ?? null);

/** The model's own configuration. */
export const modelDefaults = (decoder: Described): Configuration => of_file(defaultsOf(decoder));

function promptsOf(input: ArrayLike<number> | ArrayLike<number>[]): number[][] {
  if (typeof input !== "object" || input === null || !("length" in input))
    throw new InputError(
      "input_ids has to be a list of token ids",
      "generate",
      "Encode the text with the model's tokenizer first.",
    );
  const lists = (
    typeof input[0] === "object" ? Array.from(input as ArrayLike<number>[]) : [input]
  ) as ArrayLike<number>[];
  return lists.map((list) => Array.from(list, Number));
}
