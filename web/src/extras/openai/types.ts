// Types of OpenAI's API for text, as far as it is here, with the names of the openai package.

import type { Message, ToolFunction } from "../../protocol/generation.ts";

/** What both kinds of requests have. Other fields are refused by name. */
export interface CompletionFields {
  /** Name of a model, as given to `createClient`; of the only one it may be any text. */
  model: string;
  /** Most new tokens. Default: what the context has room for; of completions 16. */
  max_tokens?: number | null;
  /** 0 to 100; 0: the likeliest token. Default: the model's, else 0.7. */
  temperature?: number | null;
  /** Sample from the smallest set of tokens with this probability. */
  top_p?: number | null;
  /** Sample from this many tokens; -1: all. */
  top_k?: number | null;
  /** Sample from tokens with at least this fraction of the highest probability. */
  min_p?: number | null;
  /** -2 to 2. */
  presence_penalty?: number | null;
  /** -2 to 2. */
  frequency_penalty?: number | null;
  /** Divides the logits of tokens that occurred. */
  repetition_penalty?: number | null;
  /** Equal seeds give equal text. */
  seed?: number | null;
  /** Texts that end a sequence, and are not part of it: at most 16. */
  stop?: string | string[] | null;
  /** Added to the logits of token ids. */
  logit_bias?: Record<string, number> | null;
  /** Sequences: 1 to 16. */
  n?: number | null;
  /** Whether the answer is an async iterator of chunks. */
  stream?: boolean | null;
  /** `include_usage`: whether a last chunk has the counts of tokens. */
  stream_options?: { include_usage?: boolean } | null;
  [field: string]: unknown;
}

/** A request to `chat.completions.create`. */
export interface ChatCompletionCreateParams extends CompletionFields {
  /**
   * The chat. Contents are texts, or lists of parts of type `text`; of the assistant's message with
   * `tool_calls` also null. Results have the role `tool` and the `tool_call_id`.
   */
  messages: ChatMessage[];
  /** What the answer may call. */
  tools?: { type: "function"; function: ToolFunction }[] | null;
  /** "auto", "none", "required", or a function: of this tool. Default: "auto". */
  tool_choice?:
    | "auto"
    | "none"
    | "required"
    | { type: "function"; function: { name: string } }
    | null;
  /** Whether an answer may have several calls. Default: true. */
  parallel_tool_calls?: boolean | null;
  /** As `max_tokens`, which it replaces. */
  max_completion_tokens?: number | null;
  /** Whether the answer has log-probabilities. */
  logprobs?: boolean | null;
  /** How many of the likeliest tokens are told for each: 0 to 20. */
  top_logprobs?: number | null;
  /** The form of the answer, as `response_format` of the pipeline. Default: plain text. */
  response_format?: Record<string, unknown> | null;
  /** Continue the last message. Default: if it is the assistant's. */
  continue_final_message?: boolean | null;
}

/** A message of a chat, as {@link Message}. */
export type ChatMessage = Omit<Message, "content"> & {
  content?: string | { type: string; text?: string }[] | null;
  reasoning_content?: string | null;
  tool_calls?: ChatToolCall[];
  tool_call_id?: string;
  name?: string;
};

/** A call of a tool. */
export interface ChatToolCall {
  /** Unique in its chat. */
  id: string;
  type: "function";
  /** `arguments` is JSON. */
  function: { name: string; arguments: string };
}

/** A request to `completions.create`. */
export interface CompletionCreateParams extends CompletionFields {
  /** Texts or token ids. */
  prompt: string | string[] | number[] | number[][];
  /** How many of the likeliest tokens are told for each: 0 to 20. */
  logprobs?: number | null;
}

/** A request to `responses.create`. */
export interface ResponseCreateParams {
  /** Name of a model, as given to `createClient`; of the only one it may be any text. */
  model: string;
  /** A text of the user, or messages, calls (`function_call`) and their results. */
  input: string | Record<string, unknown>[];
  /** Put before the chat as the message of the system. */
  instructions?: string | null;
  /** Most new tokens. Default: what the context has room for. */
  max_output_tokens?: number | null;
  /** Functions that the answer may call: `{type: "function", name, description, parameters}`. */
  tools?: ({ type: "function" } & ToolFunction)[] | null;
  /** "auto", "none", "required", or a function: of this tool. Default: "auto". */
  tool_choice?: "auto" | "none" | "required" | { type: "function"; name: string } | null;
  /** Whether an answer may have several calls. Default: true. */
  parallel_tool_calls?: boolean | null;
  /** The form of the answer: `{format: {type: "json_schema", schema}}`. Default: plain text. */
  text?: { format?: Record<string, unknown> } | null;
  /** Whether the answer is an async iterator of events. */
  stream?: boolean | null;
  [field: string]: unknown;
}

/** An item of a response: a message, the reasoning, or a call. */
export interface ResponseItem {
  id: string;
  type: "message" | "reasoning" | "function_call";
  status: "in_progress" | "completed" | "incomplete";
  /** Of messages. */
  role?: "assistant";
  /** Of messages and the reasoning. */
  content?: { type: "output_text" | "reasoning_text"; text: string }[];
  /** Of calls: unique in their chat. */
  call_id?: string;
  /** Of calls: the tool. */
  name?: string;
  /** Of calls: JSON. */
  arguments?: string;
}

/** A response. */
export interface ResponseBody {
  id: string;
  object: "response";
  created_at: number;
  status: "in_progress" | "completed" | "incomplete";
  incomplete_details: { reason: "max_output_tokens" } | null;
  model: string;
  output: ResponseItem[];
  usage: {
    input_tokens: number;
    input_tokens_details: { cached_tokens: number };
    output_tokens: number;
    total_tokens: number;
  } | null;
  [field: string]: unknown;
}

/** An event of a response, with the types and fields of OpenAI's. */
export interface ResponseEvent {
  /** Such as `response.output_text.delta`. */
  type: string;
  sequence_number: number;
  /** New text. */
  delta?: string;
  /** The response so far. */
  response?: ResponseBody;
  [field: string]: unknown;
}

/** Counts of tokens. */
export interface CompletionUsage {
  prompt_tokens: number;
  completion_tokens: number;
  total_tokens: number;
  /** `cached_tokens`: tokens of the prompt that were kept of an earlier request. */
  prompt_tokens_details: { cached_tokens: number };
}

/** The log-probability of a token. */
export interface TokenLogprob {
  token: string;
  logprob: number;
  bytes: number[];
}

/** Log-probabilities of an answer to a chat. */
export interface ChatLogprobs {
  content: (TokenLogprob & { top_logprobs: TokenLogprob[] })[];
}

/** An answer to a chat. */
export interface ChatCompletion {
  id: string;
  object: "chat.completion";
  created: number;
  model: string;
  choices: {
    index: number;
    /** `content` is null if there are calls alone. */
    message: {
      role: "assistant";
      content: string | null;
      reasoning_content?: string;
      tool_calls?: ChatToolCall[];
    };
    logprobs: ChatLogprobs | null;
    finish_reason: "stop" | "length" | "tool_calls";
  }[];
  usage: CompletionUsage;
}

/** A part of an answer to a chat. */
export interface ChatCompletionChunk {
  id: string;
  object: "chat.completion.chunk";
  created: number;
  model: string;
  choices: {
    index: number;
    delta: {
      role?: "assistant";
      content?: string;
      reasoning_content?: string;
      tool_calls?: (ChatToolCall & { index: number })[];
    };
    logprobs: ChatLogprobs | null;
    finish_reason: "stop" | "length" | "tool_calls" | null;
  }[];
  usage?: CompletionUsage | null;
}

/** A continued text, or a part of one. */
export interface Completion {
  id: string;
  object: "text_completion";
  created: number;
  model: string;
  choices: {
    index: number;
    text: string;
    logprobs: {
      tokens: string[];
      token_logprobs: number[];
      top_logprobs: Record<string, number>[];
      text_offset: number[];
    } | null;
    finish_reason: "stop" | "length" | null;
  }[];
  usage?: CompletionUsage | null;
}

/** A model that the client has. */
export interface Model {
  id: string;
  object: "model";
  created: number;
  owned_by: string;
}

/** Options of a call. */
export interface RequestOptions {
  /** Ends the call, which throws {@link Aborted}. */
  signal?: AbortSignal | null;
}
