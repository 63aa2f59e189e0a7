// The pictures that a page passes to pipelines. The worker decodes them.

import type { TaskPicture } from "../../protocol/tasks.ts";
import { InputError } from "../../shared/errors.ts";
import { message } from "../../shared/words.ts";
import { full } from "../env.ts";

/** Pixels: `channels` bytes each (1: gray, 3: RGB, 4: RGBA), row by row. */
export interface RawImage {
  data: Uint8Array | Uint8ClampedArray;
  width: number;
  height: number;
  channels: 1 | 3 | 4;
}

/**
 * A picture: an address, a file, an element of the page, pixels. Files may be of any format that
 * the browser decodes; they are turned as their EXIF data says, and converted to sRGB. What is
 * transparent keeps its color.
 */
export type ImageInput = string | URL | Blob | ImageData | RawImage | CanvasImageSource;

/**
 * A picture in a form that can be sent to the worker.
 * @throws InputError
 */
export async function sendable(input: ImageInput): Promise<TaskPicture> {
  if (typeof input === "string" || input instanceof URL) return full(String(input));
  if (input instanceof Blob) return input;
  if (typeof input === "object" && input !== null && "data" in input) {
    if (!("channels" in input)) return input;
    const { data, width, height, channels } = input;
    return { data, width, height, channels };
  }
  try {
    return await createImageBitmap(input as ImageBitmapSource);
  } catch (e) {
    throw new InputError(
      `the input is no picture (${message(e)})`,
      "the picture",
      "Give an address, a file, an image, a canvas, a video, ImageData or pixels.",
    );
  }
}
