// The dictionaries of https://webmachinelearning.github.io/prompt-api

import type {
  LanguageModelToolCall,
  LanguageModelToolError,
  LanguageModelToolSuccess,
} from "./content.ts";

/** A prompt: the text of the user, or messages. */
export type LanguageModelPrompt = string | LanguageModelMessage[];

/** A message of a {@link LanguageModelPrompt}. */
export interface LanguageModelMessage {
  /** `system` is for the first message of a session. */
  role: "system" | "user" | "assistant";
  content: string | LanguageModelMessageContent[];
  /** Of the last message, if it is the assistant's: whether the answer continues it. */
  prefix?: boolean;
}

/**
 * A part of a message: a text; a picture (`Blob`, buffer, `ImageData`, `ImageBitmap`, canvas,
 * element, frame); a sound (`Blob`, buffer, `AudioBuffer`); a call of a tool, or its result.
 */
export type LanguageModelMessageContent =
  | { type: "text"; value: string }
  | { type: "image"; value: BufferSource | ImageBitmapSource }
  | { type: "audio"; value: BufferSource | Blob | AudioBuffer }
  | { type: "tool-call"; value: LanguageModelToolCall }
  | { type: "tool-response"; value: LanguageModelToolSuccess | LanguageModelToolError };

/** What goes into a session, or comes out of it. */
export interface LanguageModelExpected {
  /**
   * Models of text generation take and write `text`, and call tools; others take `image` or
   * `audio`.
   */
  type: "text" | "image" | "audio" | "tool-call" | "tool-response";
  /** Tags of BCP 47. The model is not asked which ones it knows. */
  languages?: string[];
}

/** A function that the model may call. */
export interface LanguageModelTool {
  name: string;
  description: string;
  /** JSON schema of the arguments, of type `object`. */
  inputSchema: object;
  /**
   * Is called with the arguments. The model reads its result. Without it, and with `tool-call`
   * among `expectedOutputs`, calls are in the answer, which is a list of parts then.
   */
  execute?(input: Record<string, unknown>): unknown;
}

/** From the model's most likely words to the least. */
export type LanguageModelSamplingMode =
  | "most-predictable"
  | "predictable"
  | "slightly-predictable"
  | "balanced"
  | "slightly-creative"
  | "creative"
  | "most-creative";

/** What a session is for. */
export interface LanguageModelCreateCoreOptions {
  /** Default: `balanced`, which is how the pipeline samples. */
  samplingMode?: LanguageModelSamplingMode;
  /** Without `samplingMode`. */
  temperature?: number;
  /** The same. */
  topK?: number;
  expectedInputs?: LanguageModelExpected[];
  expectedOutputs?: LanguageModelExpected[];
  tools?: LanguageModelTool[];
}

/** Options of `LanguageModel.create`. */
export interface LanguageModelCreateOptions extends LanguageModelCreateCoreOptions {
  /** Messages that stay when the context overflows. */
  initialPrompts?: LanguageModelMessage[];
  /** Ends the session. */
  signal?: AbortSignal;
  /** Receives the target of the events `downloadprogress`. */
  monitor?: (target: EventTarget) => void;
}

/** Options of a prompt. */
export interface LanguageModelPromptOptions {
  /** A JSON schema, or an expression, that the answer follows. */
  responseConstraint?: object | null;
  /** Whether the model does not read a schema. */
  omitResponseConstraintInput?: boolean;
  signal?: AbortSignal;
}
