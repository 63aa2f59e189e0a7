// Messages of text generation.

import type { ModelInfo } from "./loading.ts";

/** A chat message, as transformers' chat templates take it. */
export interface Message {
  /** `system`, `user`, `assistant`, or another role that the model's template supports. */
  role: string;
  /** Text of the message. */
  content: string;
  /** Further fields for the template. */
  [field: string]: unknown;
}

/** Why a sequence ended. */
export type FinishReason = "eos" | "length" | "stop_string" | "max_time" | "stopping_criteria";

/** Fields of transformers' GenerationConfig that cannot change the tokens; they have no effect. */
export type NeutralField =
  | "assistant_lookbehind"
  | "cache_config"
  | "cache_implementation"
  | "compile_config"
  | "decoder_start_token_id"
  | "disable_compile"
  | "is_assistant"
  | "low_memory"
  | "max_matching_ngram_size"
  | "num_assistant_tokens_schedule"
  | "prefill_chunk_size"
  | "return_legacy_cache"
  | "target_lookbehind"
  | "transformers_version";

/**
 * Generation options as passed by a caller, with the names of transformers' GenerationConfig. Names
 * that do not exist throw UnsupportedField.
 */
export interface GenerationFields extends Partial<Record<NeutralField, unknown>> {
  /**
   * Maximum number of tokens, prompt included; `max_new_tokens` takes precedence. Default: the
   * prompt's length plus 20. A value of 20 that is not a field of the call itself means this
   * default as well.
   */
  max_length?: number | null;
  /** Maximum number of new tokens. Default: null, so that `max_length` applies; `pipeline`: 256. */
  max_new_tokens?: number | null;
  /**
   * Minimum number of tokens, prompt included: end-of-sequence is not chosen before;
   * `min_new_tokens` takes precedence. Default: 0.
   */
  min_length?: number | null;
  /** Minimum number of new tokens. Default: null (none). */
  min_new_tokens?: number | null;
  /**
   * Beam search: stop with `num_beams` finished beams (true), when a better one is unlikely (false,
   * the default), or only when no better one is possible ("never").
   */
  early_stopping?: boolean | "never" | null;
  /**
   * Seconds after which no further token is started; time in which it waits for calls of a higher
   * priority counts. Default: null (unlimited).
   */
  max_time?: number | null;
  /** Strings that end the generation. Default: null (none). */
  stop_strings?: string | string[] | null;
  /**
   * Sample instead of choosing the most likely token. Default: false; `pipeline`: true.
   */
  do_sample?: boolean | null;
  /** Number of beams of beam search. Default: 1 (no beam search). */
  num_beams?: number | null;
  /**
   * Use the key/value cache; false recomputes it for each token, with the same result. Default:
   * true.
   */
  use_cache?: boolean | null;
  /**
   * Tokens that are read ahead at once, as those that followed the last ones before: texts that
   * repeat parts of the prompt are written faster, and are the same up to rounding. Default: null
   * (none).
   */
  prompt_lookup_num_tokens?: number | null;
  /** With a smaller model that guesses: tokens that it guesses at once. Default: 20. */
  num_assistant_tokens?: number | null;
  /** The same: it guesses until a token is less likely than this. Default: 0.4. */
  assistant_confidence_threshold?: number | null;
  /** Divisor of the logits before sampling. Default: 1; `pipeline`: 0.7. */
  temperature?: number | null;
  /** Sample from this many most likely tokens; 0: from all. Default: 50. */
  top_k?: number | null;
  /** Sample from the smallest set of tokens whose probabilities sum to this. Default: 1 (all). */
  top_p?: number | null;
  /**
   * Sample from tokens with at least this fraction of the highest probability. Default: null (all).
   */
  min_p?: number | null;
  /**
   * Sample from the tokens whose information is closest to the expected information, up to this
   * total probability (locally typical sampling, Meister et al. 2022). Default: 1 (all).
   */
  typical_p?: number | null;
  /** Sample from tokens of at least this probability. Default: 0 (all). */
  epsilon_cutoff?: number | null;
  /** As epsilon_cutoff, scaled by the entropy (Hewitt et al. 2022). Default: 0 (all). */
  eta_cutoff?: number | null;
  /**
   * Penalty of tokens that occurred before, prompt included: positive logits are divided by it,
   * negative ones multiplied (Keskar et al. 2019). Default: 1 (off).
   */
  repetition_penalty?: number | null;
  /** Subtracted once from the logit of each generated token, as in OpenAI's API and vLLM. */
  presence_penalty?: number | null;
  /** Subtracted from the logit of each token as often as it was generated. */
  frequency_penalty?: number | null;
  /** Added to the logits of the given token ids. */
  logit_bias?: Record<string, number> | null;
  /** 64-bit seed; equal seeds give equal tokens. Default: random. */
  seed?: number | bigint | null;
  /**
   * Beam search: exponent of the length by which a finished beam's score is divided. Default: 1.
   */
  length_penalty?: number | null;
  /** Size of n-grams that must not occur twice. Default: 0 (off). */
  no_repeat_ngram_size?: number | null;
  /** As repetition_penalty, raising the tokens of the encoder's input. Default: 1 (off). */
  encoder_repetition_penalty?: number | null;
  /** Size of n-grams of the encoder's input that must not be generated. Default: 0 (off). */
  encoder_no_repeat_ngram_size?: number | null;
  /** Whisper: generate times, by its rules. Default: false. */
  return_timestamps?: boolean | null;
  /** Whisper: id of `<|notimestamps|>`, after which times begin. Default: the model's. */
  no_timestamps_token_id?: number | null;
  /** Whisper: highest first time, in units of 0.02 s. Default: the model's. */
  max_initial_timestamp_index?: number | null;
  /** Sequences of token ids that must not be generated. Default: null (none). */
  bad_words_ids?: number[][] | null;
  /** Normalize scores to log-probabilities after all processors. Default: false. */
  renormalize_logits?: boolean | null;
  /** First token after a prompt of one token. Default: null (any). */
  forced_bos_token_id?: number | null;
  /** Token at the maximum length; of several, the best. Default: null (any). */
  forced_eos_token_id?: number | number[] | null;
  /** Replace NaN and infinite logits, which otherwise throw EngineError. Default: false. */
  remove_invalid_values?: boolean | null;
  /**
   * [number of tokens after which it starts, factor by which the end-of-sequence score grows with
   * each further token]. Default: null (off).
   */
  exponential_decay_length_penalty?: [number, number] | null;
  /** Token ids that must not be generated. Default: null (none). */
  suppress_tokens?: number[] | null;
  /** Token ids that must not be generated first. Default: null (none). */
  begin_suppress_tokens?: number[] | null;
  /**
   * [token ids, bias of the last one's logit if it follows the others]. Default: null (none).
   */
  sequence_bias?: [number[], number][] | null;
  /** Results per input; more than 1 requires sampling or beams. Default: 1. */
  num_return_sequences?: number | null;
  /**
   * Record the processed scores of each step. Not supported by pipelines, whose results do not
   * contain them. Default: false.
   */
  output_scores?: boolean | null;
  /** Record the logits of each step; as `output_scores`. Default: null (off). */
  output_logits?: boolean | null;
  /** Results include why generation ended and the beam scores. Default: false. */
  return_dict_in_generate?: boolean | null;
  /** Accepted without effect, since nothing is padded. */
  pad_token_id?: number | null;
  /** Prompt if none is given. Default: the model's. */
  bos_token_id?: number | null;
  /** Token ids that end the generation. Default: the model's. */
  eos_token_id?: number | number[] | null;
  /**
   * What the new text has to be. Results of JSON have its value as `parsed`. Default: null (any
   * text).
   */
  response_format?: ResponseFormat | null;
}

/**
 * A form of generated text: OpenAI's `json_schema` and `json_object`, `regex`, `grammar`
 * (llama.cpp's GBNF, or Lark's syntax), `choices`, or a bare JSON schema. JSON has no white space
 * unless `whitespace` is `flexible`.
 */
export type ResponseFormat =
  | { type: "json_schema"; json_schema: JsonSchemaForm; whitespace?: Whitespace }
  | { type: "json_object"; whitespace?: Whitespace }
  | { type: "regex"; regex: string }
  | { type: "grammar"; grammar: string; syntax?: "gbnf" | "lark" }
  | { type: "choices"; choices: readonly string[] }
  | { type: "text" }
  | JsonSchema;

/** A schema as OpenAI's API takes it. Results always follow it, so that `strict` has no effect. */
export interface JsonSchemaForm {
  schema: JsonSchema;
  name?: string;
  strict?: boolean | null;
}

/** JSON Schema 2020-12. */
export type JsonSchema = { readonly [keyword: string]: unknown };

type Whitespace = "flexible" | "compact";

/** A type without some of its properties. `Omit` loses those beside an index signature. */
export type Without<T, Names extends PropertyKey> = {
  [Name in keyof T as Name extends Names ? never : Name]: T[Name];
};

/** Options of a call besides the fields of GenerationConfig. */
export interface TextOptions {
  /** Include the prompt in the result. Default: true. */
  return_full_text?: boolean;
  /** Return `{generated_token_ids}`, prompt included, instead of text. */
  return_tensors?: boolean;
  /** Whether the tokenizer adds tokens such as `<s>` to the prompt. Default: true. */
  add_special_tokens?: boolean;
  /** Omit special tokens such as `<|endoftext|>` from the result. Default: true. */
  skip_special_tokens?: boolean;
  /** Default: as in tokenizer_config.json. */
  clean_up_tokenization_spaces?: boolean;
  /** Continue the last message of a chat. Default: true if its role is `assistant`. */
  continue_final_message?: boolean;
  /**
   * Shorten prompts that are longer than a sequence of the model, so that `max_new_tokens` have
   * room, but at most half of it; otherwise they are refused. Of chats the earliest turns are left
   * out, but not messages before the first of the user. Default: false.
   */
  truncation?: boolean | "longest_first" | "only_first" | "do_not_truncate";
  /** Of other prompts, the end that is cut. Default: "left". */
  truncation_side?: "left" | "right";
  /**
   * Continue from the states of an earlier call that begins with the same tokens, such as those of
   * the same conversation, and keep these states for later calls. The results are those without.
   * Default: true.
   */
  cache?: boolean;
  /**
   * Tell the log-probabilities of tokens to `onScores`, and those of so many of the likeliest
   * tokens in their place. Default: none are told.
   */
  logprobs?: number;
  /**
   * Of chats: what the answer may call: `{name, description, parameters}`, with a JSON schema, or
   * OpenAI's `{type: "function", function}`. The answer's message then has `tool_calls` and
   * `reasoning_content` beside `content`, if it has such parts. Arguments satisfy the schemas of
   * tools with `strict: true`. Default: nothing.
   */
  tools?: ToolDefinition[];
  /**
   * `"auto"`; `"none"`: no calls; `"required"`: calls alone, or a function: of this tool; both with
   * arguments of its schema. Default: `"auto"`.
   */
  tool_choice?: "auto" | "none" | "required" | { type: "function"; function: { name: string } };
  /** Whether an answer may have several calls. Default: true. */
  parallel_tool_calls?: boolean;
}

/** A tool that answers may call. */
export type ToolDefinition = ToolFunction | { type: "function"; function: ToolFunction };

/** What a {@link ToolDefinition} says. */
export interface ToolFunction {
  /** Up to 64 letters, digits and `_ . -`. */
  name: string;
  /** For the model. */
  description?: string;
  /** JSON schema of the arguments. Default: none are taken. */
  parameters?: object;
  /** Whether arguments have to satisfy the schema, whenever the tool is called. */
  strict?: boolean | null;
}

/** A prompt of token ids, as `generate` of models takes it: nothing is added to it. */
export interface Prompt {
  input_ids: number[];
}

/**
 * The reason with which a page aborts a generation that is to end as if it were complete, with the
 * tokens so far.
 */
export const INTERRUPTED = "the stopping criteria interrupted it";

/** A call of a text-generation pipeline. */
export interface GenerateRequest {
  model: number;
  input: string | Message[] | Prompt | (string | Message[] | Prompt)[];
  fields: Record<string, unknown>;
  options: TextOptions;
  /** How to decode text for events while it is generated; undefined: no text events. */
  stream:
    | {
        skip_prompt: boolean;
        decode: { skip_special_tokens?: boolean; clean_up_tokenization_spaces?: boolean };
      }
    | undefined;
  /** Whether to send token ids as events. */
  tokens: boolean;
  /** Whether to send the value of JSON, as far as it is written, as events. */
  parsed: boolean;
  /** Whether to send the parts of an answer with tools as events. */
  deltas?: boolean;
}
/** A prefix that is to be saved. */
export interface PrefixRequest {
  model: number;
  input: string | Message[] | Prompt;
  options: Pick<TextOptions, "add_special_tokens" | "tools">;
}
/** Result of a generation. */
export interface Generated {
  /** TextGenerationOutput[], or a list of these for several inputs. */
  output: unknown;
  /** Updated info of the model: its memory grows. */
  info: ModelInfo;
  /**
   * Numbers of prompt tokens, of those that were kept of an earlier call, and of new tokens; and
   * the milliseconds spent on each.
   */
  stats: {
    prompt_tokens: number;
    cached_tokens: number;
    new_tokens: number;
    prefill_ms: number;
    decode_ms: number;
  };
}
