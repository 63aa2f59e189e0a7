// Resampling of pictures in the engine (core/media/media.h). The source is passed in pieces of
// about 1 MB. Mirrors python/edgewise/host/media/resampling.py, with the same results.

import type { Device, Host } from "../../device/device.ts";
import { FILTERS, MAX_CHANNELS, MAX_SIDE, PIECE } from "../../gen/resampling.ts";
import { InputError } from "../../shared/errors.ts";
import { bytesOf, checked, Memory } from "./memory.ts";

/** The name of a filter. */
export type Filter = (typeof FILTERS)[number];
/** Left, top, right and bottom of a part of a picture, in pixels. */
export type Box = readonly [number, number, number, number];

/** Sizes of a resize. */
export interface ResizeSizes {
  height: number;
  width: number;
  /** Default: 1 */
  channels?: number;
  outHeight: number;
  outWidth: number;
}

/**
 * Resizes a picture of bytes: the same bytes as Pillow's `Image.resize` of modes L, RGB and CMYK,
 * with independent channels.
 * @param pixels [height, width, channels] in row-major order
 * @param box the part that becomes the result. Default: everything
 * @returns [outHeight, outWidth, channels]
 * @throws InputError, OutOfMemory
 */
export function resizeImage(
  device: Pick<Device, "host">,
  pixels: Uint8Array | Uint8ClampedArray,
  sizes: ResizeSizes,
  filter: Filter,
  box?: Box,
): Uint8Array<ArrayBuffer> {
  return resize(device.host, pixels, sizes, filter, box, 1);
}

/**
 * Resizes float32 values, such as a mask: Pillow's `Image.resize` of mode F.
 * @param values [height, width, channels] in row-major order
 * @param box the part that becomes the result. Default: everything
 * @returns [outHeight, outWidth, channels]
 * @throws InputError, OutOfMemory
 */
export function resizeFloat(
  device: Pick<Device, "host">,
  values: Float32Array,
  sizes: ResizeSizes,
  filter: Filter,
  box?: Box,
): Float32Array<ArrayBuffer> {
  return new Float32Array(resize(device.host, values, sizes, filter, box, 4).buffer);
}

/** The contents of the C struct ew_resize; throws for what the engine would refuse. */
function specOf(sizes: Required<ResizeSizes>, filter: Filter, box: Box, isFloat: boolean) {
  const { height, width, channels, outHeight, outWidth } = sizes;
  const numbers = [height, width, channels, outHeight, outWidth];
  const names = ["height", "width", "channels", "out_height", "out_width"];
  numbers.forEach((size, i) => {
    const most = i === 2 ? MAX_CHANNELS : MAX_SIDE;
    if (!Number.isInteger(size) || size < 1 || size > most)
      throw new InputError(
        `${names[i]} is ${size}`,
        "resize",
        `It must be an integer from 1 to ${most}.`,
      );
  });
  const [left, top, right, bottom] = box;
  if (
    !(left >= 0 && left < right && right <= width && top >= 0 && top < bottom && bottom <= height)
  )
    throw new InputError(
      `the box (${box.join(", ")}) is empty or not inside of ${width} x ${height} pixels`,
      "resize",
      "Give left, top, right and bottom in pixels.",
    );
  const number = FILTERS.indexOf(filter);
  if (number < 0)
    throw new InputError(`there is no filter '${filter}'`, "resize", `Use ${FILTERS.join(", ")}.`);
  const spec = new DataView(new ArrayBuffer(44));
  for (const [i, value] of [...numbers, number, Number(isFloat)].entries())
    spec.setUint32(4 * i, value, true);
  for (const [i, value] of box.entries()) spec.setFloat32(28 + 4 * i, value, true);
  return new Uint8Array(spec.buffer);
}

/** See resizeImage and resizeFloat. valueBytes: 1 for uint8, 4 for float32. */
function resize(
  host: Host,
  values: Uint8Array | Uint8ClampedArray | Float32Array,
  given: ResizeSizes,
  filter: Filter,
  box: Box | undefined,
  valueBytes: 1 | 4,
): Uint8Array<ArrayBuffer> {
  const sizes = { channels: 1, ...given };
  const { height, width, channels, outHeight, outWidth } = sizes;
  const spec = specOf(sizes, filter, box ?? [0, 0, width, height], valueBytes === 4);
  const data = bytesOf(values);
  const row = valueBytes * width * channels;
  if (data.length !== row * height)
    throw new InputError(
      `${data.length} bytes for ${height} x ${width} pixels of ${channels} channels, which take ` +
        `${row * height}`,
      "resize",
      "Pass as many bytes as the sizes need.",
    );
  const memory = new Memory(host);
  try {
    const specAt = memory.alloc(spec.length);
    host.write(specAt, spec);
    const work = memory.alloc(checked(host, "ew_resize_bytes", specAt));
    const rows = Math.max(1, Math.min(height, Math.floor(PIECE / row)));
    const piece = memory.alloc(rows * row);
    const outBytes = valueBytes * outHeight * outWidth * channels;
    const out = memory.alloc(outBytes);
    checked(host, "ew_resize_open", specAt, work);
    for (let first = 0, done = 0; done < outHeight; first += rows) {
      const count = Math.min(rows, height - first);
      host.write(piece, data.subarray(first * row, (first + count) * row));
      done = checked(host, "ew_resize_feed", work, piece, count, out);
    }
    return host.read(out, outBytes);
  } finally {
    memory.free();
  }
}
