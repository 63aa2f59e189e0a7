// Pictures as tensors and back, as `Tensor.fromImage`, `toImageData` and `toDataURL` of ONNX
// Runtime Web.

import { InputError, InputTypeError } from "../shared/errors.ts";
import { checkCanvas, fetched, optionsOf } from "../shared/inputs.ts";
import { message } from "../shared/words.ts";
import { full } from "./env.ts";

/** Order of the channels. */
export type ChannelOrder = "RGB" | "RGBA" | "BGR" | "RBG";

/** Numbers that change values: one for all channels, or one for each. */
type PerChannel = number | readonly number[];

/** Options of `Tensor.fromImage`. */
export interface FromImageOptions {
  /** Channels of the tensor. Default: "RGB"; of elements of the page "RGBA", as there. */
  tensorFormat?: ChannelOrder;
  /** Size of the tensor, to which the picture is scaled. Default: that of the picture. */
  resizedWidth?: number;
  resizedHeight?: number;
  /** Values become (value + bias) / mean. Default: mean 255, bias 0. */
  norm?: { mean?: PerChannel; bias?: PerChannel };
  [other: string]: unknown;
}

/** Options of `toImageData` and `toDataURL`. */
export interface ToImageOptions {
  /** Channels of the tensor. Default: "RGB", of four channels "RGBA". */
  format?: ChannelOrder;
  /** Default: "NCHW". */
  tensorLayout?: "NCHW" | "NHWC";
  /** Values become (value - bias) * mean. Default: mean 255, bias 0. */
  norm?: { mean?: PerChannel; bias?: PerChannel };
}

/** A picture of the page. */
export type PictureSource = string | ImageData | ImageBitmap | HTMLImageElement;

const PIXEL = "RGBA";

function perChannel(given: PerChannel | undefined, otherwise: number): number[] {
  return typeof given === "object"
    ? Array.from(PIXEL, (_, c) => given[c] ?? otherwise)
    : new Array<number>(PIXEL.length).fill(given ?? otherwise);
}

/** The place of each channel of a picture in a tensor; undefined: it has none. */
function placesOf(order: string): (number | undefined)[] {
  return Array.from(PIXEL, (channel) => {
    const at = order.indexOf(channel);
    return at < 0 ? undefined : at;
  });
}

async function drawable(image: unknown): Promise<ImageData | ImageBitmap | HTMLImageElement> {
  const is = (name: string): boolean => {
    const type = (globalThis as Record<string, unknown>)[name];
    return typeof type === "function" && image instanceof type;
  };
  if (typeof image === "string") {
    const file = await fetched(full(image), undefined);
    try {
      return await createImageBitmap(file);
    } catch (e) {
      throw new InputError(`the file is no picture (${message(e)})`, image.slice(0, 200));
    }
  }
  if (is("ImageData") || is("ImageBitmap") || is("HTMLImageElement")) return image as ImageData;
  throw new InputTypeError(
    "it is no picture",
    "Tensor.fromImage",
    "Give an address, ImageData, an ImageBitmap or an image of the page.",
  );
}

/** The elements and the shape of the tensor of a picture. */
export async function tensorOfImage(
  image: PictureSource,
  options?: FromImageOptions,
): Promise<{ data: Float32Array<ArrayBuffer>; dims: number[] }> {
  checkCanvas("Tensor.fromImage");
  options = optionsOf(options);
  const source = await drawable(image);
  const { resizedWidth: width = source.width, resizedHeight: height = source.height } = options;
  const drawn = new OffscreenCanvas(width, height).getContext("2d")!;
  const bitmap = source instanceof ImageData ? await createImageBitmap(source) : source;
  drawn.drawImage(bitmap, 0, 0, width, height);
  const pixels =
    source instanceof ImageData && width === source.width && height === source.height
      ? source.data // a canvas would change colors that are not opaque
      : drawn.getImageData(0, 0, width, height).data;
  const element = typeof image === "object" && "naturalWidth" in image;
  const order = options.tensorFormat ?? (element ? "RGBA" : "RGB");
  const [mean, bias] = [perChannel(options.norm?.mean, 255), perChannel(options.norm?.bias, 0)];
  const area = width * height;
  const data = new Float32Array(order.length * area);
  placesOf(order).forEach((place, c) => {
    if (place === undefined) return;
    for (let i = 0; i < area; i++)
      data[place * area + i] = (pixels[4 * i + c]! + bias[c]!) / mean[c]!;
  });
  return { data, dims: [1, order.length, height, width] };
}

/** The picture of a tensor. @throws InputError if its shape is that of no picture */
export function imageOfTensor(
  data: ArrayLike<unknown>,
  dims: readonly number[],
  options?: ToImageOptions,
): ImageData {
  options = optionsOf(options);
  const last = options.tensorLayout === "NHWC";
  const [count = 0, a = 0, b = 0, c = 0] = dims;
  const [channels, height, width] = last ? [c, a, b] : [a, b, c];
  const order = options.format ?? (channels === 4 ? "RGBA" : "RGB");
  if (dims.length !== 4 || count !== 1 || channels !== order.length) {
    const n = order.length;
    throw new InputError(
      `its shape is [${dims.join(", ")}]`,
      "Tensor.toImageData",
      `${order} is [1, ${last ? `height, width, ${n}` : `${n}, height, width`}].`,
    );
  }
  const [mean, bias] = [perChannel(options.norm?.mean, 255), perChannel(options.norm?.bias, 0)];
  if (!globalThis.ImageData)
    throw new InputError(
      "there is no ImageData here",
      "Tensor.toImageData",
      "Outside of browsers read the pixels from `data`.",
    );
  const image = new ImageData(width, height);
  const area = width * height;
  placesOf(order).forEach((place, k) => {
    for (let i = 0; i < area; i++)
      image.data[4 * i + k] =
        place === undefined
          ? 255
          : (Number(data[last ? i * channels + place : place * area + i]) - bias[k]!) * mean[k]!;
  });
  return image;
}

/** The same as the address of a PNG. @throws InputError where there is no document */
export function urlOfTensor(
  data: ArrayLike<unknown>,
  dims: readonly number[],
  options?: ToImageOptions,
): string {
  const image = imageOfTensor(data, dims, options);
  if (!globalThis.document)
    throw new InputError(
      "a worker has no canvas with addresses",
      "Tensor.toDataURL",
      "Use toImageData().",
    );
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [image.width, image.height];
  canvas.getContext("2d")!.putImageData(image, 0, 0);
  return canvas.toDataURL();
}
