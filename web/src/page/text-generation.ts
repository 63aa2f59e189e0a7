// The types of text-generation pipelines, and the streamer.

import type { GenerationFields, Message, TextOptions } from "../protocol/generation.ts";
import type { CacheDType, DType, ModelInfo, ProgressEvent } from "../protocol/loading.ts";
import type { Flavour } from "../shared/platform.ts";
import type { DeviceChoice } from "./device.ts";
import type { Profile } from "./profile.ts";
import type { AdapterMethods } from "./training/adapter-methods.ts";

/** Options of {@link pipeline}. */
export interface PipelineOptions extends DeviceChoice {
  /**
   * Which precision's file to take, as in transformers.js; `auto` (the default) takes the first of
   * q8, q4, fp32, fp16, q4f16 that is there.
   */
  dtype?: DType;
  /**
   * Gets progress as in transformers.js (`initiate`, `download`, `progress`, `done`, `ready`), and
   * `compile` and `warning`.
   */
  progress_callback?: (event: ProgressEvent) => void;
  /** Stops loading: the promise rejects with {@link Aborted}. */
  signal?: AbortSignal;
  /** The engine's build. Default: `env.flavour`, which is 'auto'. */
  flavour?: Flavour | "auto";
  /**
   * Threads that compute, 1 to 64; 1 starts none. Default: `env.threads`, or by the number of
   * processors. Ignored, and explained in `info.whyNotThreads`, where the page cannot have any.
   */
  threads?: number;
  /** Branch, tag or commit of a model on a hub. Default: `main`. */
  revision?: string;
  /** Folder of the .onnx file within the model. Default: `onnx`. */
  subfolder?: string;
  /** Name of the .onnx file without suffix and ending. Default: `model`. */
  model_file_name?: string;
  /**
   * Most tokens of a text, prompt included, when the model is compiled here. Default: the
   * compiler's, from the model's config.
   */
  capacity?: number;
  /**
   * What keys and values are kept as when the model is compiled here; `float16` takes half the
   * memory. Default: `float16` where the model declares its caches so, else `float32`. A package
   * was built with one; InputError where that is the other.
   */
  cache_dtype?: CacheDType;
  /**
   * Compile an .onnx model so that it can be trained, too: `true` for adapters of rank 8 on all
   * linear layers, or what {@link TrainingPrograms} says. Packages bring along what they were built
   * with. Default: false.
   */
  training?: boolean | TrainingPrograms;
  /** Keep the compiled model for the next visit. Default: `env.cachePlans`. */
  cache?: boolean;
  /** Keep the downloaded files for the next visit. Default: `env.cacheFiles`. */
  cache_files?: boolean;
  /**
   * SHA-256 that the model's file must have (64 hexadecimal digits, or `sha256-` and base64), or
   * one per file name.
   */
  integrity?: string | Record<string, string>;
  /** Passed to `fetch` for the model's files: `headers`, `credentials`, ... */
  fetch_options?: Pick<
    RequestInit,
    "headers" | "credentials" | "cache" | "mode" | "referrerPolicy"
  >;
}

/** How a model that is compiled in the page can be trained. */
export interface TrainingPrograms {
  /** Adapters, all parameters, or both ways. Default: `lora`. */
  adapter?: "lora" | "full" | ("lora" | "full")[];
  /** Rows of a batch. Default: 4. */
  batch_size?: number;
  /** Tokens of a row. Default: 128. */
  sequence_length?: number;
  /** Rank of LoRA, in PEFT's words as the four below. Default: 8. */
  r?: number;
  /** The adapter's output is scaled by `lora_alpha / r`. Default: 16. */
  lora_alpha?: number;
  /** Probability that a number of an adapter's input is dropped in training. Default: 0. */
  lora_dropout?: number;
  /**
   * Layers by the ends of their names, or one regular expression over the whole name. Default: all
   * linear ones but the output head.
   */
  target_modules?: string | string[];
  /** Scale by `lora_alpha / sqrt(r)` instead. Default: false. */
  use_rslora?: boolean;
  /**
   * `"AdamW"`, `"Adam"`, `"AdamW8bit"`, `"SGD"`, `"Adagrad"`, `"RMSprop"`, `"Lion"`, or with its
   * fields in PyTorch's words: `{ type: "SGD", lr: 0.01, momentum: 0.9 }`. Default: AdamW.
   */
  optimizer?: string | { type: string; lr?: number; [field: string]: unknown };
  /** Largest norm of the gradient; null: any. Default: 1. */
  max_grad_norm?: number | null;
  /**
   * Recompute activations in the backward pass, which takes less memory and more time; a number:
   * where more bytes than that would be needed. Default: false.
   */
  checkpointing?: boolean | number;
}

/** Options of {@link TextStreamer}, with transformers.js' names. */
export interface StreamerOptions {
  /** Do not give out the prompt. Default: false. */
  skip_prompt?: boolean;
  /** Leave out tokens like `<|endoftext|>`. Default: true. */
  skip_special_tokens?: boolean;
  /** As the tokenizer's config says where not given. */
  clean_up_tokenization_spaces?: boolean;
  /** Gets each piece of text, whole words as in transformers.js. Default: writes to the console. */
  callback_function?: (text: string) => void;
  /** Gets the ids of each step; the first time, the prompt's (unless `skip_prompt`). */
  token_callback_function?: (ids: number[]) => void;
}

/**
 * Shows a text while it is written: give it as `streamer`. As transformers.js' TextStreamer; the
 * decoding happens in the worker, so `tokenizer` is there for the likeness only.
 */
export class TextStreamer {
  private prompted = false;

  constructor(
    readonly tokenizer?: unknown,
    readonly options: StreamerOptions = {},
  ) {}

  /** Called with each piece of text. */
  on_finalized_text(text: string, stream_end: boolean): void {
    if (this.options.callback_function) {
      if (text) this.options.callback_function(text);
    } else if (text || stream_end) console.log(text);
  }

  /** Called with each step's ids, first with the prompt's. */
  put(ids: number[]): void {
    const prompt = !this.prompted;
    this.prompted = true;
    if (!(prompt && this.options.skip_prompt)) this.options.token_callback_function?.(ids);
  }

  /** Called after the last token. */
  end(): void {
    this.prompted = false;
  }
}

/**
 * Anything that follows a generation by its token ids: `put` with the prompt's, then with each
 * step's, then `end`.
 */
export interface TokenStreamer {
  /** Gets the prompt's ids first, then each new token's. */
  put(ids: number[]): void;
  /** Called after the last token, and when the generation failed. */
  end(): void;
}

/**
 * Options of one generation: fields of transformers' GenerationConfig, and these. A field that is
 * not supported raises UnsupportedField.
 */
export interface GenerateOptions extends TextOptions, GenerationFields {
  /** Most tokens to write. Default: from the model's generation_config.json, else 256. */
  max_new_tokens?: number | null;
  /**
   * Draw from the distribution instead of taking the most likely token. Default: from the model's
   * generation_config.json, else true.
   */
  do_sample?: boolean | null;
  /** Same seed, same text. Default: random. */
  seed?: number | bigint | null;
  /**
   * {@link TextStreamer}, any {@link TokenStreamer}, or a function that gets the pieces of new
   * text.
   */
  streamer?: TextStreamer | TokenStreamer | ((text: string) => void);
  /** Stops the generation: the promise rejects with {@link Aborted}. */
  signal?: AbortSignal;
}

/** One result: the text; for messages, the messages and the answer. */
export interface TextGenerationOutput {
  /**
   * Prompt and continuation, or only the latter with `return_full_text: false`; of messages, all of
   * them and the assistant's answer.
   */
  generated_text: string | Message[];
  /** Instead of the text, with `return_tensors`. */
  generated_token_ids?: number[];
  /**
   * With `return_dict_in_generate`, why it ended: `eos`, `length`, `stop_string`, `max_time` or
   * `stopping_criteria`.
   */
  finish_reasons?: string;
  /**
   * With `return_dict_in_generate` and `num_beams` above 1: sum of log-probabilities / length **
   * length_penalty.
   */
  sequences_scores?: number;
}

/** How long the last generation took. */
export interface Stats {
  /** Tokens of the prompt. */
  prompt_tokens: number;
  /** Tokens written. */
  new_tokens: number;
  /** Milliseconds to the first new token. */
  prefill_ms: number;
  /** Milliseconds from the first new token to the last. */
  decode_ms: number;
}

/** A loaded model. Call it with a text, with messages, or with a list of either. */
export interface TextGenerationPipeline extends AdapterMethods {
  /**
   * Generates. A list gives a list of lists.
   * @throws UnsupportedField for a field that would change the result and is not supported;
   *   InputError for values that cannot be and prompts that do not fit into `info.capacity`;
   *   OutOfMemory; EngineError; Aborted, with the tokens so far in `sequences`
   */
  (input: string | Message[], options?: GenerateOptions): Promise<TextGenerationOutput[]>;
  (input: (string | Message[])[], options?: GenerateOptions): Promise<TextGenerationOutput[][]>;
  /** As in transformers.js. */
  readonly task: "text-generation";
  /** What it runs on, its sizes and loading times. Memory is as of the last call. */
  readonly info: ModelInfo;
  /** Of the last generation. */
  readonly stats: Stats | undefined;
  /** The model's tokenizer; it lives in the worker, so everything is a promise. */
  readonly tokenizer: {
    /**
     * Token ids of a text; `add_special_tokens` (default true) puts in those like `<s>`. @throws
     * TokenizerError
     */
    encode(text: string, options?: { add_special_tokens?: boolean }): Promise<number[]>;
    /**
     * The text of token ids; `skip_special_tokens` (default false), `clean_up_tokenization_spaces`
     * (default: as tokenizer_config.json says).
     */
    decode(
      ids: ArrayLike<number>,
      options?: { skip_special_tokens?: boolean; clean_up_tokenization_spaces?: boolean },
    ): Promise<string>;
    /**
     * The text that the model gets for messages; `options` are variables of the template, such as
     * `add_generation_prompt`. @throws TokenizerError: there is no template, or it refuses them
     */
    apply_chat_template(messages: Message[], options?: Record<string, unknown>): Promise<string>;
  };
  /**
   * Where the time goes: of one call, or of whatever a function does with this pipeline, training
   * included. `console.log(String(await write.profile("Once upon a time", { max_new_tokens: 20
   * })))`
   * @throws what the call or the function throws
   */
  profile(work: string | Message[] | (() => unknown), options?: GenerateOptions): Promise<Profile>;
  /** Ends the worker and gives back all memory. Open calls reject with {@link Aborted}. */
  dispose(): Promise<void>;
}

/**
 * What a model can be: a hub's id (`org/name`), an address of a folder, an .onnx or an .edge file,
 * files that the visitor gave, or the bytes of an .edge file (which are not to be transferred while
 * they are read).
 */
export type ModelSource = string | URL | Blob | File[] | FileList | Uint8Array | ArrayBuffer;
