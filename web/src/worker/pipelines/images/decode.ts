// Decodes the pictures of pipelines.

import { MAX_PIXELS } from "../../../logic/images/geometry.ts";
import type { TaskPicture } from "../../../protocol/tasks.ts";
import { InputError } from "../../../shared/errors.ts";
import { checkCanvas, fetched, inputName } from "../../../shared/inputs.ts";
import { message } from "../../../shared/words.ts";

/** A picture: RGBA, 4 bytes a pixel, row by row. */
export interface TaskImage {
  width: number;
  height: number;
  data: Uint8Array | Uint8ClampedArray;
}

function checkSize(width: number, height: number, name: string): void {
  const valid = [width, height].every((n) => Number.isInteger(n) && n > 0);
  if (valid && width * height <= MAX_PIXELS) return;
  throw new InputError(
    `the picture has ${width} x ${height} pixels`,
    name,
    `Give one of at least one and at most ${MAX_PIXELS} pixels.`,
  );
}

/**
 * Decodes a picture.
 * @throws InputError, which names the picture; Aborted
 */
export async function readImage(
  input: TaskPicture,
  signal: AbortSignal | undefined,
): Promise<TaskImage> {
  const name = inputName(input, "picture");
  if (typeof input === "string") return decode(await fetched(input, signal), name);
  if (input instanceof Blob) return decode(input, name);
  return "data" in input ? fromPixels(input, name) : draw(input, name);
}

async function decode(file: Blob, name: string): Promise<TaskImage> {
  checkCanvas(name);
  const [width, height] = await declaredSize(file);
  if (width !== undefined) checkSize(width, height!, name);
  let bitmap: ImageBitmap;
  try {
    bitmap = await createImageBitmap(file, {
      imageOrientation: "from-image",
      premultiplyAlpha: "none",
      colorSpaceConversion: "default",
    });
  } catch (e) {
    throw new InputError(
      `the picture cannot be decoded (${message(e)})`,
      name,
      "Give a file of a format that the browser shows, such as PNG, JPEG or WebP.",
    );
  }
  return draw(bitmap, name);
}

/** The size that a file declares, so that a huge one is refused before it is decoded. */
async function declaredSize(file: Blob): Promise<[number?, number?]> {
  const view = new DataView(await file.slice(0, 1 << 16).arrayBuffer());
  const at = (i: number, bytes: 2 | 4, little = false): number =>
    i + bytes > view.byteLength
      ? 0
      : bytes === 2
        ? view.getUint16(i, little)
        : view.getUint32(i, little);
  const magic = at(0, 4);
  if (magic === 0x89504e47) return [at(16, 4), at(20, 4)]; // PNG
  if (magic === 0x47494638) return [at(6, 2, true), at(8, 2, true)]; // GIF
  if (magic === 0x52494646 && at(12, 4) === 0x56503858)
    return [1 + (at(24, 4, true) & 0xffffff), 1 + (at(27, 4, true) & 0xffffff)]; // WebP, extended
  if (magic >>> 8 === 0xffd8ff)
    for (let i = 2; i + 9 < view.byteLength && view.getUint8(i) === 0xff; i += 2 + at(i + 2, 2)) {
      const marker = view.getUint8(i + 1);
      if (marker >= 0xc0 && marker <= 0xcf && ![0xc4, 0xc8, 0xcc].includes(marker))
        return [at(i + 7, 2), at(i + 5, 2)]; // JPEG, start of frame
    }
  return [];
}

/** Pixels of a bitmap, which is closed. */
function draw(bitmap: ImageBitmap, name: string): TaskImage {
  const { width, height } = bitmap;
  try {
    checkSize(width, height, name);
    const context = new OffscreenCanvas(width, height).getContext("2d", {
      willReadFrequently: true,
    })!;
    context.drawImage(bitmap, 0, 0);
    return { width, height, data: context.getImageData(0, 0, width, height).data };
  } finally {
    bitmap.close();
  }
}

function fromPixels(
  input: Exclude<TaskPicture, string | Blob | ImageBitmap>,
  name: string,
): TaskImage {
  const { data, width, height } = input;
  const channels = "channels" in input ? input.channels : 4;
  checkSize(width, height, name);
  const size = width * height * channels;
  // Floats would lose their fraction. A plain array has no size of elements.
  const bytes = data?.length * (data?.BYTES_PER_ELEMENT ?? 1);
  if (![1, 3, 4].includes(channels) || data?.length !== size || bytes !== size)
    throw new InputError(
      `${bytes} bytes do not match ${width} x ${height} pixels of ${channels} channels`,
      name,
      "Give {data, width, height, channels} with 1, 3 or 4 channels of a byte.",
    );
  if (channels === 4) return { width, height, data };
  const made = new Uint8ClampedArray(4 * width * height);
  for (let i = 0; i < width * height; i++) {
    for (let c = 0; c < 3; c++) made[4 * i + c] = data[channels * i + (channels === 1 ? 0 : c)]!;
    made[4 * i + 3] = 255;
  }
  return { width, height, data: made };
}
