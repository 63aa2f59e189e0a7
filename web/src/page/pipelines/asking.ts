// image-text-to-text and audio-text-to-text in a page: their pictures and sounds go to the worker
// beside messages and texts.

import type {
  FinishReason,
  GenerationFields,
  ResponseFormat,
  Without,
} from "../../protocol/generation.ts";
import type { TaskAsk, TaskPicture, TaskSound } from "../../protocol/tasks.ts";
import type { Tensor } from "../tensor.ts";
import type { TextStreamer } from "../text-generation.ts";
import type { PairAdapterMethods } from "../training/adapter-methods.ts";
import type { CallOptions, PipelineBase } from "./base-types.ts";
import { type ImageInput, sendable } from "./pictures.ts";
import { type SoundInput, sendableSound } from "./sounds.ts";

/** A part of a message: a text, a picture in `image` or `url`, or a video. */
export interface ChatPart {
  type: "text" | "image" | "image_url" | "video";
  text?: string;
  image?: ImageInput;
  /** Frames of a video, for models that see some. */
  video?: readonly ImageInput[];
  /** Frames per second; by default all of a video are taken. */
  fps?: number;
  url?: string;
  image_url?: string | { url: string };
}

/** A message with pictures, as in transformers. */
export interface PictureMessage {
  role: string;
  content: string | ChatPart[];
  [field: string]: unknown;
}

/** A text with pictures, whose placeholders it has: the model's own token, such as `<image>`. */
export interface PictureText {
  /** One, or several; of several texts a list for each. */
  images?: ImageInput | readonly (ImageInput | readonly ImageInput[])[];
  text: string | string[] | PictureMessage[] | PictureMessage[][];
}

/** Options of `processor`. */
export interface PromptOptions extends CallOptions {
  /** Open the answer. Default: unless the last message is continued. */
  add_generation_prompt?: boolean;
  /** As of a call. */
  continue_final_message?: boolean;
  /** The same. */
  add_special_tokens?: boolean;
}

/** Options of image-text-to-text. */
export interface PictureTextOptions extends CallOptions, GenerationFields {
  /** Pictures for the parts of messages that have none. */
  images?: PictureText["images"];
  /** Include the input in the result. Default: true. */
  return_full_text?: boolean;
  /** Return `generated_token_ids`, prompt included, instead of text. */
  return_tensors?: boolean;
  /** Default: true. */
  skip_special_tokens?: boolean;
  /** Default: as the tokenizer's configuration. */
  clean_up_tokenization_spaces?: boolean;
  /** Continue the last message. Default: true if its role is `assistant`. */
  continue_final_message?: boolean;
  /** Default: unless the chat template has written the first one. */
  add_special_tokens?: boolean;
  /** What the answer has to be, as of text generation. */
  response_format?: ResponseFormat | null;
  /** Text whose first token ends the generation. */
  stop_sequence?: string;
  /** More fields of GenerationConfig. */
  generate_kwargs?: GenerationFields;
  /** Receives the text while it is generated; for one input, without beams. */
  streamer?: TextStreamer | ((text: string) => void);
}

/** An answer. */
export interface PictureTextResult {
  input_text: string | PictureMessage[];
  /** The new text; of a chat with `return_full_text` the messages with the answer. */
  generated_text?: string | PictureMessage[];
  generated_token_ids?: number[];
  /** With `return_dict_in_generate`: why generation ended, as of text generation. */
  finish_reasons?: FinishReason;
}

/** Answers questions about pictures. Learns from pairs, see {@link fineTune}. */
export interface ImageTextToTextPipeline extends PipelineBase, PairAdapterMethods {
  (
    input: PictureMessage[] | PictureText | string,
    options?: PictureTextOptions,
  ): Promise<PictureTextResult[]>;
  (input: PictureMessage[][], options?: PictureTextOptions): Promise<PictureTextResult[][]>;
  /**
   * The token ids of a prompt, [1, tokens], with those that stand for pictures: it may be longer
   * than `info.capacity`.
   * @throws InputError as a call
   */
  processor(
    input: PictureMessage[] | PictureText | string,
    options?: PromptOptions,
  ): Promise<{ input_ids: Tensor }>;
}

/** A part of a message: a text, or a sound in `audio` or `url`. */
export interface SoundPart {
  type: "text" | "audio";
  text?: string;
  audio?: SoundInput;
  url?: string;
}

/** A message with sounds, as in transformers. */
export interface SoundMessage {
  role: string;
  content: string | SoundPart[];
  [field: string]: unknown;
}

/** A text with sounds, whose placeholders it has: the model's own token, such as `[AUDIO]`. */
export interface SoundText {
  /** One, or several; of several texts a list for each. */
  audio?: SoundInput | readonly (SoundInput | readonly SoundInput[])[];
  text: string | string[] | SoundMessage[] | SoundMessage[][];
}

/** Options of audio-text-to-text. */
export interface SoundTextOptions extends Without<PictureTextOptions, "images"> {
  /** Sounds for the parts of messages that have none. */
  audio?: SoundText["audio"];
}

/** An answer. */
export interface SoundTextResult {
  input_text: string | SoundMessage[];
  /** The new text; of a chat with `return_full_text` the messages with the answer. */
  generated_text?: string | SoundMessage[];
  generated_token_ids?: number[];
  /** As of image-text-to-text. */
  finish_reasons?: FinishReason;
}

/** Answers questions about sounds. */
export interface AudioTextToTextPipeline extends PipelineBase {
  (
    input: SoundMessage[] | SoundText | string,
    options?: SoundTextOptions,
  ): Promise<SoundTextResult[]>;
  (input: SoundMessage[][], options?: SoundTextOptions): Promise<SoundTextResult[][]>;
  /** The token ids of a prompt, as of {@link ImageTextToTextPipeline}. */
  processor(
    input: SoundMessage[] | SoundText | string,
    options?: PromptOptions,
  ): Promise<{ input_ids: Tensor }>;
}

type Fields = Record<string, unknown>;

const isObject = (x: unknown): x is Fields => typeof x === "object" && x !== null;
const isMessage = (x: unknown): x is Fields => isObject(x) && "role" in x && "content" in x;

/** The input of a call for the worker, and what puts its pictures into the results. */
export interface Asked {
  ask: TaskAsk;
  revived<T>(results: T): T;
}

/** What is asked about: the type of a part of a message, and the option of a call. */
const ABOUT = {
  "image-text-to-text": ["image", "images"],
  "audio-text-to-text": ["audio", "audio"],
} as const;

/**
 * Takes the pictures or sounds of a call out of its messages.
 * @param input messages, a text, or {images, text}, {audio, text}
 * @param options of the call; its pictures or sounds are left out of the result
 * @throws InputError if something is no picture, or no sound
 */
export async function askOf(
  task: string,
  input: unknown,
  options: Record<string, unknown>,
): Promise<Asked & { others: Record<string, unknown> }> {
  const [part, name] = ABOUT[task as keyof typeof ABOUT];
  const { [name]: more, ...others } = options;
  const given: unknown[] = [];
  const mark = (one: unknown) => ({ picture: given.push(one) - 1 });
  const whole = isObject(input) && !Array.isArray(input) && "text" in input ? input : undefined;
  const shown = whole ? (whole[name] ?? whole[part] ?? more) : more;
  const ask = {
    text: textOf(whole ? whole.text : input, part, mark),
    images: shown === undefined || shown === null ? null : allOf(shown, mark),
  };
  const pictures: TaskPicture[] = [];
  const sounds: TaskSound[] = [];
  for (const one of given)
    if (part === "image") pictures.push(await sendable(one as ImageInput));
    else sounds.push(await sendableSound(one as SoundInput, options.signal as AbortSignal));
  const revived = (x: unknown): unknown => {
    if (Array.isArray(x)) return x.map(revived);
    if (!isObject(x) || ArrayBuffer.isView(x)) return x;
    if (Object.keys(x).join() === "picture") return given[x.picture as number];
    return Object.fromEntries(Object.entries(x).map(([name, value]) => [name, revived(value)]));
  };
  return { ask: { ...ask, pictures, sounds }, others, revived: revived as Asked["revived"] };
}

type Mark = (picture: unknown) => unknown;

function allOf(x: unknown, mark: Mark): unknown {
  if (Array.isArray(x) && typeof x[0] !== "number") return x.map((one) => allOf(one, mark));
  return mark(x);
}

function textOf(x: unknown, kind: string, mark: Mark): unknown {
  if (Array.isArray(x)) return x.map((one) => textOf(one, kind, mark));
  if (!isMessage(x) || !Array.isArray(x.content)) return x;
  return { ...x, content: x.content.map((part) => partOf(part, kind, mark)) };
}

function partOf(part: unknown, kind: string, mark: Mark): unknown {
  if (!isObject(part)) return part;
  const { [kind]: own, url, image_url: address, ...rest } = part;
  if (part.type === "video" && kind === "image" && Array.isArray(part.video))
    return { ...part, video: part.video.map(mark) };
  const found = own ?? url ?? (isObject(address) ? address.url : address) ?? null;
  if (found === null || part.type === "text") return part;
  return { ...rest, type: kind, [kind]: mark(found) };
}
