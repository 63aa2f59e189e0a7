// Types of text-generation pipelines, and the text streamer.

import type { TokenScore } from "../logic/openai/answers.ts";
import type {
  FinishReason,
  GenerationFields,
  Message,
  Prompt,
  TextOptions,
  Without,
} from "../protocol/generation.ts";
import type { CacheDType, DType, ModelInfo, ProgressEvent } from "../protocol/loading.ts";
import type { Flavour } from "../shared/platform.ts";
import type { Priority } from "../shared/priority.ts";
import type { DeviceChoice } from "./device.ts";
import type { Codec } from "./pipelines/codec.ts";
import type { SpeakerVerificationPipeline } from "./pipelines/sound-types.ts";
import type { Profile } from "./profile.ts";
import type { StoppingCriteria } from "./stopping.ts";
import type { AdapterMethods } from "./training/adapter-methods.ts";

/** Options of {@link pipeline}. */
export interface PipelineOptions extends DeviceChoice {
  /**
   * Precision of the model file, as in transformers.js. `auto` takes the first available of q8, q4,
   * fp32, fp16, q4f16. For tasks with several files also by their names: `{encoder_model: "fp32",
   * decoder_model_merged: "q8"}`. Default: `auto`.
   */
  dtype?: DType | Record<string, DType>;
  /**
   * Receives progress events as in transformers.js (`initiate`, `download`, `progress`, `done`,
   * `ready`), plus `compile` and `warning`.
   */
  progress_callback?: (event: ProgressEvent) => void;
  /** Cancels loading: the promise rejects with {@link Aborted}. */
  signal?: AbortSignal;
  /** Build of the engine. Default: `env.flavour`, which is `auto`. */
  flavour?: Flavour | "auto";
  /**
   * Number of compute threads, 1 to 64; 1 starts none. Ignored where the page cannot use threads;
   * `info.whyNotThreads` then has the reason. Default: `env.threads`, else by the number of
   * processors.
   */
  threads?: number;
  /**
   * How soon its calls get processors where other pipelines and sessions of the page compute, too.
   * Default: "user-visible".
   */
  priority?: Priority;
  /** Branch, tag or commit of a model on the hub. Default: `main`. */
  revision?: string;
  /** Folder of the .onnx file in the model's repository. Default: `onnx`. */
  subfolder?: string;
  /** Name of the .onnx file without precision suffix and extension. Default: `model`. */
  model_file_name?: string;
  /**
   * Maximum number of tokens of a sequence, prompt included, if the model is compiled in the page.
   * Default: the model's own context, as its configuration says. Caches grow with a sequence, so
   * that a short one takes the memory of a short one.
   */
  capacity?: number;
  /**
   * Element type of the key/value cache if the model is compiled in the page; `float16` halves its
   * memory, `int8` and `int4` (on the processor) take 8.5 and 4.5 bits a number. A package has a
   * fixed type; requesting another one throws InputError. Default: `float16` if the model declares
   * its cache inputs so, else `float32`.
   */
  cache_dtype?: CacheDType;
  /**
   * Maximum number of tokens of a text, if the model is compiled in the page; for tasks that
   * generate text the same as `capacity`. Default: the model's maximum, of texts at most 512.
   */
  max_length?: number;
  /**
   * Whether {@link personalize} can teach the pipeline labels of its user. For packages it has no
   * effect: build them with `edgewise build --task ... --personalize`. With `lora` it can train
   * adapters of the model, too (`--train lora`): true, or their rank (default: 8) and alpha (16).
   * Default: false.
   */
  personalize?: boolean | { lora: boolean | { rank?: number; alpha?: number } };
  /**
   * Compile the .onnx model for training as well: `true` for LoRA of rank 8 on all linear layers,
   * or {@link TrainingPrograms}. Packages contain the training programs that they were built with.
   * The script that trains is then loaded with the model, otherwise when training begins.
   * Default: false.
   */
  training?: boolean | TrainingPrograms;
  /**
   * Memory in bytes that the states of earlier conversations of text generation may take. The least
   * recently used one goes first. Default: 256 MB, or one sequence of any size; 0: none are kept.
   */
  cache_bytes?: number;
  /**
   * Of text generation with a mixture of experts: memory in bytes that their weights may take, at
   * least one expert of each layer. The others are read from the stored package, or from the file
   * that the user chose, when a token needs them. Default: all, or as many as memory holds.
   */
  expert_bytes?: number;
  /**
   * Of text generation: a smaller model with the same tokenizer. It guesses tokens that the model
   * then reads at once, where that saves time by what was measured. Texts and the samples of a seed
   * are those without, but for rounding. It is loaded with the same device, threads and caching.
   */
  assistant_model?: ModelSource;
  /**
   * Of text-to-speech with a language model: the codec of its tokens, made by `codec`, or what it
   * is made of.
   */
  codec?: Codec | ModelSource;
  /**
   * Of the same: which tokens are codes: "orpheus", "outetts", or {tokens: "<a_{}>" (or one of each
   * token of a frame), streams: [codebook of each token of a frame], size: codes of a codebook,
   * first: number of the code 0, step: of it from token to token, end: [tokens]}. Default: by the
   * vocabulary.
   */
  audio_tokens?: string | Record<string, unknown>;
  /** Of SpeechT5 without decoder_postnet_and_vocoder.onnx: the model that has its vocoder. */
  vocoder?: ModelSource;
  /**
   * Of speaker-diarization: the model of voices: a pipeline of speaker-verification, or what it is
   * made of. Without one a recording may not be longer than the model's window.
   */
  embedding?: SpeakerVerificationPipeline | ModelSource;
  /** Of audio-to-audio: Hz. Default: as in preprocessor_config.json or config.json. */
  sampling_rate?: number;
  /** Keep the compiled model for the next visit. Default: `env.cachePlans`. */
  cache?: boolean;
  /** Keep downloaded files for the next visit. Default: `env.cacheFiles`. */
  cache_files?: boolean | "auto";
  /**
   * Expected SHA-256 of the model file (64 hexadecimal digits, or `sha256-` and base64), or one
   * digest per file name. Files of a hub are compared with its digests without this option.
   */
  integrity?: string | Record<string, string>;
  /** Options passed to `fetch` for the model's files: `headers`, `credentials`, ... */
  fetch_options?: Pick<
    RequestInit,
    "headers" | "credentials" | "cache" | "mode" | "referrerPolicy"
  >;
}

/** How a model that is compiled in the page can be trained. Names follow PEFT and PyTorch. */
export interface TrainingPrograms {
  /** Train LoRA adapters, all parameters, or compile for both. Default: `lora`. */
  adapter?: "lora" | "full" | ("lora" | "full")[];
  /** Sequences per batch. Default: 4. */
  batch_size?: number;
  /** Tokens per sequence. Default: 128. */
  sequence_length?: number;
  /** Rank of the LoRA matrices. Default: 8. */
  r?: number;
  /** LoRA scaling: the adapter's output is multiplied by `lora_alpha / r`. Default: 16. */
  lora_alpha?: number;
  /** Dropout probability of the adapter's input during training. Default: 0. */
  lora_dropout?: number;
  /**
   * Layers to adapt: suffixes of their names, or one regular expression that must match the whole
   * name. Default: all linear layers except the output head.
   */
  target_modules?: string | string[];
  /** Scale by `lora_alpha / sqrt(r)` instead (rsLoRA). Default: false. */
  use_rslora?: boolean;
  /** DoRA: the norms of the rows of weights are trained by themselves. Default: false. */
  use_dora?: boolean;
  /** Ranks of modules that differ, by the names of modules or the ends of them. */
  rank_pattern?: Record<string, number>;
  /** `lora_alpha` of modules that differ, likewise. */
  alpha_pattern?: Record<string, number>;
  /** Modules that are trained as a whole, and kept in the adapter. Default: none. */
  modules_to_save?: string[];
  /** Biases that are trained: none, all, or those of adapted layers. Default: `none`. */
  bias?: "none" | "all" | "lora_only";
  /**
   * Optimizer: `"AdamW"`, `"Adam"`, `"AdamW8bit"`, `"SGD"`, `"Adagrad"`, `"RMSprop"`, `"Lion"`, or
   * an object with PyTorch's argument names: `{ type: "SGD", lr: 0.01, momentum: 0.9 }`. Default:
   * AdamW.
   */
  optimizer?: string | { type: string; lr?: number; [field: string]: unknown };
  /** LoRA+: the learning rate of B is so many times that of A. Default: the same rate. */
  loraplus_lr_ratio?: number;
  /**
   * Averages of the weights (EMA) are made after each update, with this weight of the average
   * before. Evaluations are of them, and at the end of a run they become the weights. Default: no
   * averages.
   */
  ema_decay?: number;
  /**
   * Of mixtures of experts: factor of the loss that spreads tokens over experts (Mixtral's is
   * 0.02). Default: 0.
   */
  router_aux_loss_coef?: number;
  /**
   * Rows have several documents (records, texts), as many as fit, which do not see each other: less
   * padding is computed. Default: false.
   */
  packing?: boolean;
  /**
   * The model learns from a teacher's probabilities: of each learned token of a record, `teacher`
   * has the most probable tokens, `[[id, log_probability], ...]`, of which `top_k` are taken
   * (default 8). The loss is `alpha` (0.5) times `temperature` (1) squared times the divergence
   * from them, plus the rest of cross entropy. Default: there is no teacher.
   */
  distillation?: { top_k?: number; temperature?: number; alpha?: number };
  /** Maximum norm of the gradient (clipping); null: no clipping. Default: 1. */
  max_grad_norm?: number | null;
  /**
   * Recompute activations in the backward pass, which trades time for memory. A number enables it
   * only if more than that many bytes would be needed. Default: false.
   */
  checkpointing?: boolean | number;
  /**
   * `auto` recomputes activations, and then takes fewer rows in a batch and more batches in an
   * update, where training would take more than `memory`. Default: batches stay as they are.
   */
  fit?: "auto";
  /**
   * Maximum bytes of training, weights included. Activations are recomputed if that is needed.
   * Default: no limit; with `fit`, 3/4 of 4 GB, or of the device's memory if that is less.
   */
  memory?: number;
}

/** Options of {@link TextStreamer}, with the names of transformers.js. */
export interface StreamerOptions {
  /** Do not emit the prompt. Default: false. */
  skip_prompt?: boolean;
  /** Omit special tokens such as `<|endoftext|>`. Default: true. */
  skip_special_tokens?: boolean;
  /** Default: as in the tokenizer's config. */
  clean_up_tokenization_spaces?: boolean;
  /** Receives the text in whole words, as in transformers.js. Default: prints to the console. */
  callback_function?: (text: string) => void;
  /** Receives the token ids of each step, the prompt's first (unless `skip_prompt`). */
  token_callback_function?: (ids: number[]) => void;
}

/**
 * Streams text while it is generated; pass it as `streamer`. Mirrors transformers.js' TextStreamer.
 * Decoding happens in the worker, so `tokenizer` exists for compatibility only and is not used.
 */
export class TextStreamer {
  private prompted = false;

  constructor(
    readonly tokenizer?: unknown,
    readonly options: StreamerOptions = {},
  ) {}

  /** Called with each piece of text; `stream_end` is true for the last one. */
  on_finalized_text(text: string, stream_end: boolean): void {
    if (this.options.callback_function) {
      if (text) this.options.callback_function(text);
    } else if (text || stream_end) console.log(text);
  }

  /** Called with the token ids of each step, the prompt's first. */
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
 * Receives the token ids of a generation: `put` is called with the prompt's ids, then with those of
 * each step; finally `end` is called.
 */
export interface TokenStreamer {
  /** Receives the prompt's ids first, then the ids of each step. */
  put(ids: number[]): void;
  /** Called after the last token, and when generation fails. */
  end(): void;
}

/**
 * Options of one generation: the fields of transformers' GenerationConfig, and those below. A field
 * that is not supported throws UnsupportedField.
 */
export interface GenerateOptions extends TextOptions, GenerationFields {
  /** Maximum number of new tokens. Default: from the model's generation_config.json, else 256. */
  max_new_tokens?: number | null;
  /**
   * Sample instead of choosing the most likely token. Default: from the model's
   * generation_config.json, else true.
   */
  do_sample?: boolean | null;
  /** Seed of the sampler; equal seeds give equal text. Default: random. */
  seed?: number | bigint | null;
  /** {@link TextStreamer}, any {@link TokenStreamer}, or a function that receives new text. */
  streamer?: TextStreamer | TokenStreamer | ((text: string) => void);
  /** Receives the log-probabilities of each token, with `logprobs`. For one sequence. */
  onScores?: (scores: TokenScore[]) => void;
  /** Cancels the generation: the promise rejects with {@link Aborted}. */
  signal?: AbortSignal;
  /** Priority of this call. Default: the pipeline's. */
  priority?: Priority;
  /**
   * Receives the value of `response_format` JSON, as far as it is written, whenever it has grown.
   */
  on_parsed?: (value: unknown) => void;
  /** Receives the parts of an answer with `tools` while they are written. For one sequence. */
  on_delta?: (delta: MessageDelta) => void;
  /** Ends the generation when it is interrupted: the promise resolves with what there is. */
  stopping_criteria?: StoppingCriteria;
}

/** A call of a tool in a message. */
export interface ToolCall {
  /** Unique in its chat. */
  id: string;
  type: "function";
  function: { name: string; arguments: Record<string, unknown> };
}

/** A part of an answer with tools. */
export interface MessageDelta {
  /** New text. */
  content?: string;
  /** New text of the reasoning. */
  reasoning_content?: string;
  /**
   * Parts of calls that are being written, as OpenAI's API has them.
   */
  tool_call_chunks?: ToolCallChunk[];
  /** Calls that are complete. Their chunks came before. */
  tool_calls?: ToolCall[];
}

/** A part of a call: the first one has `id`, `type` and the name. */
export interface ToolCallChunk {
  /** Number of the call in the answer. */
  index: number;
  id?: string;
  type?: "function";
  /** `arguments` is more of their JSON. */
  function: { name?: string; arguments: string };
}

/**
 * What a tool does. `signal` is aborted when its result is not waited for any more. The type is
 * that of a method, so that a function may say which arguments it takes.
 */
export type ToolExecute = {
  execute(input: Record<string, unknown>, options: { signal: AbortSignal }): unknown;
}["execute"];

/** A tool of {@link ToolRunOptions}. */
export interface Tool {
  /** For the model. */
  description?: string;
  /** JSON schema of the arguments. */
  parameters?: object;
  /** Whether arguments have to satisfy the schema. */
  strict?: boolean;
  /** Is called with the arguments. Returns a text or a value for JSON, or a promise of one. */
  execute: ToolExecute;
}

/** Options of `run`: those of a call, and these. */
export interface ToolRunOptions extends Without<GenerateOptions, "tools"> {
  /** Tools by name: {@link Tool}, or a function of any arguments. */
  tools: Record<string, Tool | ToolExecute>;
  /** Answers of the model. Default: 10. */
  max_rounds?: number;
  /** Seconds of a tool. Default: 60. */
  tool_timeout?: number;
  /** Seconds of all. Default: none. */
  time_limit?: number;
  /** Receives each answer of the model. */
  on_message?: (message: Message) => void;
}

/** How a conversation with tools went. */
export interface ToolRun {
  /** The messages with the answers and results. */
  generated_text: Message[];
  /** Answers of the model. */
  rounds: number;
  /** `answer`, or the limit: `rounds` or `time`. */
  ended: "answer" | "rounds" | "time";
}

/**
 * One generated sequence.
 * @typeParam Text - `string`, or `Message[]` for a chat
 */
export interface TextGenerationOutput<Text extends string | Message[] = string | Message[]> {
  /**
   * Prompt and continuation, or the continuation only with `return_full_text: false`. For a chat:
   * all messages, followed by the assistant's answer.
   */
  generated_text: Text;
  /** With a `response_format` of JSON: its value, as far as it is written. */
  parsed?: unknown;
  /** With `tools` and `return_full_text: false`: the answer's calls. */
  tool_calls?: ToolCall[];
  /** The same: its reasoning. */
  reasoning_content?: string;
  /** Token ids, in place of the text, with `return_tensors`. */
  generated_token_ids?: number[];
  /** With `return_dict_in_generate`: why generation ended. */
  finish_reasons?: FinishReason;
  /**
   * With `return_dict_in_generate` and `num_beams` > 1: sum of log-probabilities divided by
   * length ** length_penalty.
   */
  sequences_scores?: number;
}

/** The beginning of prompts. */
export type PrefixInput = string | Message[] | Prompt;
/** Options of `savePrefix`. */
export interface PrefixOptions extends Pick<TextOptions, "add_special_tokens" | "tools"> {
  /** Ends the reading: the promise rejects with {@link Aborted}. */
  signal?: AbortSignal;
}

/** Token counts and timing of the last generation. */
export interface Stats {
  /** Tokens in the prompt. */
  prompt_tokens: number;
  /** Tokens of the prompt that were kept of an earlier call, and not read again. */
  cached_tokens: number;
  /** Tokens generated. */
  new_tokens: number;
  /** Milliseconds to the first new token. */
  prefill_ms: number;
  /** Milliseconds from the first new token to the last. */
  decode_ms: number;
}

/** A loaded model. Call it with a text, with chat messages, or with a list of either. */
export interface TextGenerationPipeline extends AdapterMethods {
  /**
   * Generates text.
   * @param input a prompt, the messages of a chat, or a list of either
   * @param options see {@link GenerateOptions}
   * @returns one list of results; for a list of inputs, one list per input
   * @throws UnsupportedField for a field that would change the result and is not supported
   * @throws InputError for invalid values, and prompts that exceed `info.capacity`
   * @throws Aborted with the tokens generated so far in `sequences`
   * @throws OutOfMemory, EngineError
   */
  (input: string | Prompt, options?: GenerateOptions): Promise<TextGenerationOutput<string>[]>;
  (
    input: Message[],
    options: GenerateOptions & { return_full_text: false },
  ): Promise<TextGenerationOutput<string>[]>;
  (
    input: Message[],
    options?: GenerateOptions & { return_full_text?: true },
  ): Promise<TextGenerationOutput<Message[]>[]>;
  (input: string[], options?: GenerateOptions): Promise<TextGenerationOutput<string>[][]>;
  (input: string | Message[] | Prompt, options?: GenerateOptions): Promise<TextGenerationOutput[]>;
  (input: (string | Message[])[], options?: GenerateOptions): Promise<TextGenerationOutput[][]>;
  /**
   * Generates text as an async iterator: `for await (const piece of write.stream("Once"))`.
   * Leaving the loop ends the generation.
   * @param input a prompt or the messages of a chat
   * @param options see {@link GenerateOptions}
   * @returns pieces of the new text, in whole words; with `response_format` as they come
   * @throws as a call
   */
  stream(
    input: string | Message[] | Prompt,
    options?: Without<GenerateOptions, "streamer">,
  ): AsyncGenerator<string, void, undefined>;
  /**
   * Answers a chat, and calls tools as the model asks, until there is an answer without calls:
   * `await pipe.run(messages, { tools: { now: () => new Date().toISOString() } })`.
   *
   * The model reads what a tool returns: a text, or a value as JSON. It reads `{"error": ...}` if a
   * tool throws, takes too long, returns more than 100,000 characters or is not there; the
   * conversation goes on. The calls of an answer run at once.
   * @throws InputError if tools or limits are wrong; otherwise as a call
   */
  run(messages: Message[], options: ToolRunOptions): Promise<ToolRun>;
  /** The task, as in transformers.js. */
  readonly task: "text-generation";
  /** Device, sizes and loading times. Memory figures are as of the last call. */
  readonly info: ModelInfo;
  /** Statistics of the last generation. */
  readonly stats: Stats | undefined;
  /** The model's tokenizer. It runs in the worker, so its methods are asynchronous. */
  readonly tokenizer: {
    /**
     * Encodes a text. `add_special_tokens` (default true) adds tokens such as `<s>`.
     * @returns token ids
     * @throws TokenizerError
     */
    encode(text: string, options?: { add_special_tokens?: boolean }): Promise<number[]>;
    /**
     * Decodes token ids. `skip_special_tokens` defaults to false, `clean_up_tokenization_spaces` to
     * the value in tokenizer_config.json.
     */
    decode(
      ids: ArrayLike<number>,
      options?: { skip_special_tokens?: boolean; clean_up_tokenization_spaces?: boolean },
    ): Promise<string>;
    /**
     * Renders messages with the model's chat template. `options` are variables of the template,
     * such as `add_generation_prompt`. With `tokenize` the result is token ids; special tokens in
     * the messages are text there.
     * @throws TokenizerError if there is no template, or it rejects the messages
     */
    apply_chat_template(
      messages: Message[],
      options: Record<string, unknown> & { tokenize: true },
    ): Promise<number[]>;
    apply_chat_template(messages: Message[], options?: Record<string, unknown>): Promise<string>;
  };
  /** Frees the states of earlier conversations, which later calls would continue from. */
  clearCache(): Promise<void>;
  /**
   * Saves what the model has read after the beginning of prompts, such as a system prompt, tools
   * and documents. Saved are whole pieces of 128 tokens of those that every prompt has which begins
   * so.
   * @param input a text, the first messages of a chat, or token ids
   * @param options as of a call
   * @returns a safetensors file for `loadPrefix`, here and in Python
   * @throws InputError if there are fewer tokens than a piece, or more than a sequence has
   */
  savePrefix(input: PrefixInput, options?: PrefixOptions): Promise<Blob>;
  /**
   * Loads what `savePrefix` wrote: calls whose prompts begin with its tokens do not read them. It
   * is one of the states of `cache_bytes`, of which the least recently used go first.
   * @returns its tokens
   * @throws ModelError if the file is damaged; InputError if it was saved with another model, other
   *   options of it, another adapter or version, or `cache_bytes` has no room
   */
  loadPrefix(source: Blob | ArrayBuffer | Uint8Array<ArrayBuffer>): Promise<number>;
  /**
   * Profiles one call, or everything that a function does with this pipeline, training included:
   * `console.log(String(await write.profile("Once upon a time", { max_new_tokens: 20 })))`.
   * @param work the input of a call, or a function
   * @throws what the call or the function throws
   */
  profile(work: string | Message[] | (() => unknown), options?: GenerateOptions): Promise<Profile>;
  /** Ends the worker and frees all memory. Open calls reject with {@link Aborted}. */
  dispose(): Promise<void>;
}

/**
 * Sources of a model: a hub id (`org/name`); the address of a folder, an .onnx or an .edge file;
 * files chosen by the user; or the bytes of an .edge file, which must not be transferred while they
 * are being read.
 */
export type ModelSource = string | URL | Blob | File[] | FileList | Uint8Array | ArrayBuffer;
