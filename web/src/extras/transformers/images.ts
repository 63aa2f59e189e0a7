// The methods that transformers.js' RawImage has beside those of pipelines' pictures. Importing
// this module adds them to RawImage, so that pictures that pipelines return have them, too.

import {
  RawImage as Base,
  InputError,
  InputTypeError,
  Tensor as TensorBase,
} from "../../page/index.ts";
import { permuted, type Tensor } from "./tensor-methods.ts";

type Data = Uint8ClampedArray;
type Channels = 1 | 2 | 3 | 4;
type Canvas = HTMLCanvasElement | OffscreenCanvas;

/** Methods with the names, arguments and results of transformers.js. */
export interface RawImageMethods {
  /** A copy. */
  clone(): RawImage;
  /** With one channel; the picture itself is changed, as in the next four. */
  grayscale(): RawImage;
  /** With three channels. */
  rgb(): RawImage;
  /** With four channels. */
  rgba(): RawImage;
  /** With another number of channels. */
  convert(channels: number): RawImage;
  /** With a mask of one channel as its transparency. */
  putAlpha(mask: Base): RawImage;
  /** In another size, drawn by the browser; null keeps the ratio of width and height. */
  resize(width: number | null, height: number | null, options?: object): Promise<RawImage>;
  /** A part, by its first and last columns and rows. */
  crop(
    box: readonly [x_min: number, y_min: number, x_max: number, y_max: number],
  ): Promise<RawImage>;
  /** The middle, or with black around it where it is smaller. */
  center_crop(width: number, height: number): Promise<RawImage>;
  /** With black around it. */
  pad(
    sides: readonly [left: number, right: number, top: number, bottom: number],
  ): Promise<RawImage>;
  /** One picture for each channel. */
  split(): RawImage[];
  /** uint8 [channels, height, width], or [height, width, channels]. */
  toTensor(channel_format?: "CHW" | "HWC"): Tensor;
  /** Downloads a file with the picture. */
  save(path: string): Promise<void>;
}

/** A picture with the methods of transformers.js. */
export type RawImage = Base & RawImageMethods;

/** What makes pictures, as in transformers.js. */
export interface RawImageStatic {
  new (data: Uint8Array | Data, width: number, height: number, channels: Channels): RawImage;
  readonly prototype: RawImage;
  /** A picture of an address, a file, a canvas, or the picture itself. */
  read(input: Base | string | URL | Blob | Canvas): Promise<RawImage>;
  /** @throws InputError if there is no picture at the address */
  fromURL(url: string | URL): Promise<RawImage>;
  /** @throws InputError if the browser cannot decode it */
  fromBlob(blob: Blob): Promise<RawImage>;
  /** The pixels of a canvas, with four channels. */
  fromCanvas(canvas: Canvas): RawImage;
  /** A picture of uint8 [channels, height, width], or [height, width, channels]. */
  fromTensor(tensor: Tensor, channel_format?: "CHW" | "HWC"): RawImage;
}

const made = (data: Uint8Array | Data, width: number, height: number, channels: number): RawImage =>
  new Base(data, width, height, channels as 1) as RawImage;

function context(width: number, height: number): OffscreenCanvasRenderingContext2D {
  Base.needCanvas("RawImage");
  return new OffscreenCanvas(width, height).getContext("2d")!;
}

function pixelsOf(drawn: OffscreenCanvasRenderingContext2D, channels: number): RawImage {
  const { width, height } = drawn.canvas;
  return made(drawn.getImageData(0, 0, width, height).data, width, height, 4).convert(channels);
}

/** Changes the picture: each pixel of `channels` values is written by `put`. */
function changed(
  image: Base,
  channels: number,
  put: (out: Data, to: number, from: number, data: ArrayLike<number>) => void,
): RawImage {
  const { data, width, height, channels: had } = image;
  if (had === channels) return image as RawImage;
  const out = new Uint8ClampedArray(width * height * channels);
  for (let i = 0; i < width * height; i++) put(out, i * channels, i * had, data);
  return Object.assign(image, { data: out, channels }) as unknown as RawImage;
}

const RED = 0.2989;
const GREEN = 0.587;
const BLUE = 0.114;
const gray = ({ channels }: Base): boolean => channels < 3;

const methods: RawImageMethods & ThisType<RawImage> = {
  clone() {
    return made(this.data.slice(), this.width, this.height, this.channels);
  },
  grayscale() {
    return changed(this, 1, (out, to, from, data) => {
      out[to] = Math.round(RED * data[from]! + GREEN * data[from + 1]! + BLUE * data[from + 2]!);
    });
  },
  rgb() {
    const one = gray(this);
    return changed(this, 3, (out, to, from, data) => {
      for (let c = 0; c < 3; c++) out[to + c] = data[from + (one ? 0 : c)]!;
    });
  },
  rgba() {
    const one = gray(this);
    return changed(this, 4, (out, to, from, data) => {
      for (let c = 0; c < 3; c++) out[to + c] = data[from + (one ? 0 : c)]!;
      out[to + 3] = 255;
    });
  },
  convert(channels) {
    if (channels === 1) return this.grayscale();
    if (channels === 3) return this.rgb();
    if (channels === 4) return this.rgba();
    throw new InputError(`there are ${channels} channels`, "RawImage", "Give 1, 3 or 4.");
  },
  putAlpha(mask) {
    if (mask.width !== this.width || mask.height !== this.height || mask.channels !== 1)
      throw new InputError(
        `the mask has ${mask.channels} channels of ${mask.size.join(" x ")}`,
        "RawImage.putAlpha",
        `Give one channel of ${this.size.join(" x ")}.`,
      );
    const image = this.rgba();
    for (let i = 0; i < mask.data.length; i++) image.data[4 * i + 3] = mask.data[i]!;
    return image;
  },
  async resize(width, height) {
    const [w, h] = [width || ((height || 0) / this.height) * this.width, height || 0];
    const [to, high] = [Math.trunc(w), Math.trunc(h || (w / this.width) * this.height)];
    if (!to || (to === this.width && high === this.height)) return this;
    const drawn = context(to, high);
    drawn.drawImage(this.toCanvas(), 0, 0, to, high);
    return pixelsOf(drawn, this.channels);
  },
  async crop([x_min, y_min, x_max, y_max]) {
    const [x, y] = [Math.max(x_min, 0), Math.max(y_min, 0)];
    const width = Math.min(x_max, this.width - 1) - x + 1;
    const height = Math.min(y_max, this.height - 1) - y + 1;
    if (width === this.width && height === this.height) return this;
    const drawn = context(width, height);
    drawn.drawImage(this.toCanvas(), x, y, width, height, 0, 0, width, height);
    return pixelsOf(drawn, this.channels);
  },
  async center_crop(width, height) {
    if (width === this.width && height === this.height) return this;
    const [x, y] = [(this.width - width) / 2, (this.height - height) / 2];
    const drawn = context(width, height);
    const at = [Math.max(x, 0), Math.max(y, 0), Math.max(-x, 0), Math.max(-y, 0)] as const;
    drawn.drawImage(this.toCanvas(), at[0], at[1], width, height, at[2], at[3], width, height);
    return pixelsOf(drawn, this.channels);
  },
  async pad(sides) {
    const [left, right, top, bottom] = sides.map((side) => Math.max(side, 0)) as number[];
    if (!left && !right && !top && !bottom) return this;
    const drawn = context(this.width + left! + right!, this.height + top! + bottom!);
    drawn.drawImage(this.toCanvas(), left!, top!);
    return pixelsOf(drawn, this.channels);
  },
  split() {
    const { data, width, height, channels } = this;
    return Array.from({ length: channels }, (_, c) =>
      made(
        new Uint8ClampedArray(width * height).map((_, i) => data[i * channels + c]!),
        width,
        height,
        1,
      ),
    );
  },
  toTensor(channel_format = "CHW") {
    const { data, width, height, channels } = this;
    const bytes = new Uint8Array(data.buffer as ArrayBuffer, data.byteOffset, data.length);
    const t = new TensorBase("uint8", bytes, [height, width, channels]) as Tensor;
    return channel_format === "HWC" ? t : permuted(t, [2, 0, 1]);
  },
  async save(path) {
    if (!globalThis.document)
      throw new InputError(
        "files can be downloaded in a page only",
        "RawImage.save",
        "Use toBlob(), or write the pixels of `data` with a library such as sharp.",
      );
    const type = /\.jpe?g$/i.test(path)
      ? "image/jpeg"
      : /\.webp$/i.test(path)
        ? "image/webp"
        : "image/png";
    const link = document.createElement("a");
    link.href = URL.createObjectURL(await this.toBlob(type));
    link.download = path.split("/").pop()!;
    link.click();
    URL.revokeObjectURL(link.href);
  },
};

const makers: Pick<RawImageStatic, "read" | "fromURL" | "fromBlob" | "fromCanvas" | "fromTensor"> =
  {
    async read(input) {
      if (input instanceof Base) return input as RawImage;
      if (typeof input === "string" || input instanceof URL) return RawImage.fromURL(input);
      if (input instanceof Blob) return RawImage.fromBlob(input);
      if (typeof (input as Canvas | undefined)?.getContext === "function")
        return RawImage.fromCanvas(input);
      throw new InputTypeError(
        `it is ${typeof input}`,
        "RawImage.read",
        "Give an address, a file, a canvas or a RawImage.",
      );
    },
    async fromURL(url) {
      Base.needCanvas("RawImage.read");
      const answer = await fetch(url);
      if (!answer.ok)
        throw new InputError(
          `the picture cannot be read (status ${answer.status})`,
          String(url).slice(0, 200),
          "Check the address.",
        );
      return RawImage.fromBlob(await answer.blob());
    },
    async fromBlob(blob) {
      Base.needCanvas("RawImage.fromBlob");
      const bitmap = await createImageBitmap(blob).catch((e: unknown) =>
        Promise.reject(
          new InputError(`it cannot be decoded (${String(e)})`, "RawImage.fromBlob", "Check it."),
        ),
      );
      const drawn = context(bitmap.width, bitmap.height);
      drawn.drawImage(bitmap, 0, 0);
      bitmap.close();
      return pixelsOf(drawn, 4);
    },
    fromCanvas(canvas) {
      const drawn = canvas.getContext("2d") as OffscreenCanvasRenderingContext2D;
      const { width, height } = canvas;
      return made(drawn.getImageData(0, 0, width, height).data, width, height, 4);
    },
    fromTensor(tensor, channel_format = "CHW") {
      const t = channel_format === "CHW" ? permuted(tensor, [1, 2, 0]) : tensor;
      const [height = 0, width = 0, channels = 0] = t.dims;
      if (t.dims.length !== 3 || t.type !== "uint8" || channels > 4)
        throw new InputError(
          `it is ${tensor.type} [${tensor.dims.join(", ")}]`,
          "RawImage.fromTensor",
          "Give uint8 [channels, height, width] with 1 to 4 channels.",
        );
      return made(t.data as Uint8Array, width, height, channels);
    },
  };

const add = (to: object, all: object): void => {
  for (const [name, value] of Object.entries(all))
    Object.defineProperty(to, name, { value, writable: true, configurable: true });
};
add(Base.prototype, methods);
add(Base, makers);

/** The class of pictures: that of pipelines, with the methods of transformers.js. */
export const RawImage = Base as unknown as RawImageStatic;

/** Reads a picture, as `RawImage.read`. */
export const load_image = (input: Parameters<RawImageStatic["read"]>[0]): Promise<RawImage> =>
  RawImage.read(input);
