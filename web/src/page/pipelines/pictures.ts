// The pictures that a page passes to pipelines. The worker decodes them.

import type { TaskPicture } from "../../protocol/tasks.ts";
import { InputError } from "../../shared/errors.ts";
import { checkCanvas } from "../../shared/inputs.ts";
import { message } from "../../shared/words.ts";
import { full } from "../env.ts";

/** Pixels: `channels` bytes each (1: gray, 3: RGB, 4: RGBA), row by row. */
export interface Pixels {
  data: Uint8Array | Uint8ClampedArray;
  width: number;
  height: number;
  channels: 1 | 3 | 4;
}

/** A picture, as in transformers.js. */
export class RawImage implements Pixels {
  /**
   * @param data [height, width, channels], row by row
   * @param channels 1: gray, 3: RGB, 4: RGBA
   */
  constructor(
    readonly data: Uint8Array | Uint8ClampedArray,
    readonly width: number,
    readonly height: number,
    readonly channels: Pixels["channels"],
  ) {}

  /** Width and height. */
  get size(): [width: number, height: number] {
    return [this.width, this.height];
  }

  /**
   * @throws InputError where there is none
   * @internal
   */
  static needCanvas(where: string): void {
    checkCanvas(where);
  }

  /** A canvas with the picture. */
  toCanvas(): OffscreenCanvas {
    const { data, width, height, channels } = this;
    checkCanvas("RawImage");
    const canvas = new OffscreenCanvas(width, height);
    const image = new ImageData(width, height);
    for (let i = 0; i < width * height; i++) {
      for (let c = 0; c < 3; c++)
        image.data[4 * i + c] = data[channels * i + (channels === 1 ? 0 : c)]!;
      image.data[4 * i + 3] = channels === 4 ? data[4 * i + 3]! : 255;
    }
    canvas.getContext("2d")!.putImageData(image, 0, 0);
    return canvas;
  }

  /**
   * A file with the picture.
   * @param type MIME type; default: PNG
   * @param quality 0 to 1, of formats with losses
   * @throws InputError if `type` is no text
   */
  async toBlob(type = "image/png", quality = 1): Promise<Blob> {
    if (typeof type !== "string")
      throw new InputError("it is no MIME type", "type", 'Give one, such as "image/png".');
    return this.toCanvas().convertToBlob({ type, quality });
  }
}

/**
 * A picture: an address, a file, an element of the page, pixels. Files may be of any format that
 * the browser decodes; they are turned as their EXIF data says, and converted to sRGB. What is
 * transparent keeps its color.
 */
export type ImageInput = string | URL | Blob | ImageData | Pixels | CanvasImageSource;

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
