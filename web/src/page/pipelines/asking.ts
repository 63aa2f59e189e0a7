// image-text-to-text in a page: its pictures go to the worker beside messages and texts.

import type { GenerationFields } from "../../protocol/generation.ts";
import type { TaskAsk, TaskPicture } from "../../protocol/tasks.ts";
import type { TextStreamer } from "../text-generation.ts";
import type { CallOptions, PipelineBase } from "./base-types.ts";
import { type ImageInput, sendable } from "./pictures.ts";

/** A part of a message: a text, or a picture in `image` or `url`. */
export interface ChatPart {
  type: "text" | "image" | "image_url";
  text?: string;
  image?: ImageInput;
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
}

/** Answers questions about pictures. */
export interface ImageTextToTextPipeline extends PipelineBase {
  (
    input: PictureMessage[] | PictureText | string,
    options?: PictureTextOptions,
  ): Promise<PictureTextResult[]>;
  (input: PictureMessage[][], options?: PictureTextOptions): Promise<PictureTextResult[][]>;
}

type Fields = Record<string, unknown>;

const isObject = (x: unknown): x is Fields => typeof x === "object" && x !== null;
const isMessage = (x: unknown): x is Fields => isObject(x) && "role" in x && "content" in x;

/** The input of a call for the worker, and what puts its pictures into the results. */
export interface Asked {
  ask: TaskAsk;
  revived<T>(results: T): T;
}

/**
 * Takes the pictures of a call out of its messages.
 * @param input messages, a text, or {images, text}
 * @param images of the options
 * @throws InputError if something is no picture
 */
export async function askOf(input: unknown, images: unknown): Promise<Asked> {
  const given: unknown[] = [];
  const mark = (picture: unknown) => ({ picture: given.push(picture) - 1 });
  const whole = isObject(input) && !Array.isArray(input) && "text" in input ? input : undefined;
  const shown = whole ? (whole.images ?? whole.image ?? images) : images;
  const ask = {
    text: textOf(whole ? whole.text : input, mark),
    images: shown === undefined || shown === null ? null : imagesOf(shown, mark),
  };
  const pictures: TaskPicture[] = [];
  for (const one of given) pictures.push(await sendable(one as ImageInput));
  const revived = (x: unknown): unknown => {
    if (Array.isArray(x)) return x.map(revived);
    if (!isObject(x) || ArrayBuffer.isView(x)) return x;
    if (Object.keys(x).join() === "picture") return given[x.picture as number];
    return Object.fromEntries(Object.entries(x).map(([name, value]) => [name, revived(value)]));
  };
  return { ask: { ...ask, pictures }, revived: revived as Asked["revived"] };
}

type Mark = (picture: unknown) => unknown;

function imagesOf(x: unknown, mark: Mark): unknown {
  return Array.isArray(x) ? x.map((one) => imagesOf(one, mark)) : mark(x);
}

function textOf(x: unknown, mark: Mark): unknown {
  if (Array.isArray(x)) return x.map((one) => textOf(one, mark));
  if (!isMessage(x) || !Array.isArray(x.content)) return x;
  return { ...x, content: x.content.map((part) => partOf(part, mark)) };
}

function partOf(part: unknown, mark: Mark): unknown {
  if (!isObject(part)) return part;
  const { image, url, image_url: address, ...rest } = part;
  const picture = image ?? url ?? (isObject(address) ? address.url : address) ?? null;
  if (picture === null || part.type === "text") return part;
  return { ...rest, type: "image", image: mark(picture) };
}
