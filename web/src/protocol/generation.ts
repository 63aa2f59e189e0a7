// Messages about generating text.

import type { ModelInfo } from "./loading.ts";

/** A message of a chat, as transformers' chat templates take it. */
export interface Message {
  /** `system`, `user`, `assistant`, or what the model's template knows besides. */
  role: string;
  /** Its text. */
  content: string;
  /** Further fields, for the template. */
  [field: string]: unknown;
}

/** Fields as a caller writes them, with transformers' names. */
export interface GenerationFields {
  /**
   * Most tokens, prompt included; `max_new_tokens` wins. Default: 20 more than the prompt has,
   * which 20 means as well where it is not a call's own field.
   */
  max_length?: number | null;
  /** Most tokens to write. Default: null, so that `max_length` counts; `pipeline` has 256. */
  max_new_tokens?: number | null;
  /**
   * Fewest tokens, prompt included: until then the end of text is not chosen; `min_new_tokens`
   * wins. Default: 0.
   */
  min_length?: number | null;
  /** Fewest tokens to write. Default: null (none). */
  min_new_tokens?: number | null;
  /**
   * Of beams: end with `num_beams` finished ones (true), when no better one is likely (false, the
   * default), or only when none can come ("never").
   */
  early_stopping?: boolean | "never" | null;
  /** Seconds after which no further token is begun. Default: null (any). */
  max_time?: number | null;
  /** Texts behind which to end. Default: null (none). */
  stop_strings?: string | string[] | null;
  /**
   * Draw from the distribution instead of taking the most likely token. Default: false; `pipeline`
   * has true.
   */
  do_sample?: boolean | null;
  /** Beams of a beam search. Default: 1 (none). */
  num_beams?: number | null;
  /**
   * Keep keys and values of earlier tokens; false computes them again for each, with the same
   * result. Default: true.
   */
  use_cache?: boolean | null;
  /** Divides the logits before drawing. Default: 1; `pipeline` has 0.7. */
  temperature?: number | null;
  /** Draw from so many most likely tokens; 0: all. Default: 50. */
  top_k?: number | null;
  /** Draw from the fewest tokens that together have this probability. Default: 1 (all). */
  top_p?: number | null;
  /**
   * Draw from tokens of at least this share of the likeliest one's probability. Default: null
   * (all).
   */
  min_p?: number | null;
  /**
   * Draw from the tokens nearest to the expected information that together have this probability
   * (Meister et al. 2022). Default: 1 (all).
   */
  typical_p?: number | null;
  /** Draw from tokens of at least this probability. Default: 0 (all). */
  epsilon_cutoff?: number | null;
  /** The same with a bound that falls with the entropy (Hewitt et al. 2022). Default: 0 (all). */
  eta_cutoff?: number | null;
  /**
   * Logits of tokens that were there, prompt included, are divided by it where positive, else
   * multiplied (Keskar et al. 2019). Default: 1 (off).
   */
  repetition_penalty?: number | null;
  /** OpenAI's and vLLM's: subtracted once from the logit of each token that was generated. */
  presence_penalty?: number | null;
  /** Likewise, as often as it was generated. */
  frequency_penalty?: number | null;
  /** Added to the logits of token ids. */
  logit_bias?: Record<string, number> | null;
  /** 64 bits; the same seed gives the same tokens. Random where it is not given. */
  seed?: number | bigint | null;
  /** Of beams: a finished one's score is divided by its length to this power. Default: 1. */
  length_penalty?: number | null;
  /** No so many tokens in a row come twice. Default: 0 (off). */
  no_repeat_ngram_size?: number | null;
  /** Sequences of token ids that are not written. Default: null (none). */
  bad_words_ids?: number[][] | null;
  /** Scores become log-probabilities again after all else was done to them. Default: false. */
  renormalize_logits?: boolean | null;
  /** First token behind a prompt of one token. Default: null (any). */
  forced_bos_token_id?: number | null;
  /** Token, or one of those, at the greatest length. Default: null (any). */
  forced_eos_token_id?: number | number[] | null;
  /** Replace NaN and infinite logits, which otherwise end with EngineError. Default: false. */
  remove_invalid_values?: boolean | null;
  /**
   * [tokens before it sets in, factor by which the end of text then becomes likelier with each].
   * Default: null (off).
   */
  exponential_decay_length_penalty?: [number, number] | null;
  /** Token ids that are not written. Default: null (none). */
  suppress_tokens?: number[] | null;
  /** Token ids that are not written first. Default: null (none). */
  begin_suppress_tokens?: number[] | null;
  /**
   * [token ids, what is added to the logit of the last one where the others stand before it].
   * Default: null (none).
   */
  sequence_bias?: [number[], number][] | null;
  /** Results for each input, with `do_sample` or beams. Default: 1. */
  num_return_sequences?: number | null;
  /**
   * Record the processed scores of each step. Not for pipelines, whose results do not hold them.
   * Default: false.
   */
  output_scores?: boolean | null;
  /** Record the logits of each step; as `output_scores`. Default: null (no). */
  output_logits?: boolean | null;
  /** Results say why they ended, and their scores as beams. Default: false. */
  return_dict_in_generate?: boolean | null;
  /** Accepted without effect: nothing is padded. */
  pad_token_id?: number | null;
  /** The prompt where there is none. Default: the model's. */
  bos_token_id?: number | null;
  /** Token ids that end a text. Default: the model's. */
  eos_token_id?: number | number[] | null;
  /** Fields that cannot change the tokens are accepted, the others raise UnsupportedField. */
  [name: string]: unknown;
}

/** What a call decides besides the fields of GenerationConfig. */
export interface TextOptions {
  /** The prompt and what was written (the default), or only what was written. */
  return_full_text?: boolean;
  /** Results are `{generated_token_ids}`, prompt included, instead of texts. */
  return_tensors?: boolean;
  /** Whether the tokenizer adds tokens like `<s>` to a text. Default: true. */
  add_special_tokens?: boolean;
  /** Leave tokens like `<|endoftext|>` out of the result. Default: true. */
  skip_special_tokens?: boolean;
  /** Default: as tokenizer_config.json says. */
  clean_up_tokenization_spaces?: boolean;
  /** Go on with the last message of a chat. Default: true where it is the assistant's. */
  continue_final_message?: boolean;
}

/** A call of a pipeline. */
export interface GenerateRequest {
  model: number;
  input: string | Message[] | (string | Message[])[];
  fields: Record<string, unknown>;
  options: TextOptions;
  /** Text is decoded as it comes, and sent as events. */
  stream:
    | {
        skip_prompt: boolean;
        decode: { skip_special_tokens?: boolean; clean_up_tokenization_spaces?: boolean };
      }
    | undefined;
  /** Token ids are sent as events. */
  tokens: boolean;
}
/** What a generation gave. */
export interface Generated {
  /** TextGenerationOutput[], or a list of them for several inputs. */
  output: unknown;
  /** As of now: its memory grows. */
  info: ModelInfo;
  /** Tokens given to the model and made by it, and milliseconds spent on each. */
  stats: { prompt_tokens: number; new_tokens: number; prefill_ms: number; decode_ms: number };
}
