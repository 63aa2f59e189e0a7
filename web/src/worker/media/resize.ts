// Resampling of pictures and sound in the engine (core/media/media.h). The source is passed in
// pieces of about 1 MB. Mirrors python/edgewise/processors/media.py, with the same results.

import type { Device, Host } from "../../device/device.ts";
import { EngineError, InputError, OutOfMemory } from "../../shared/errors.ts";

/** Names of filters, by Pillow's numbers. */
export const FILTERS = ["nearest", "lanczos", "bilinear", "bicubic", "box", "hamming"] as const;
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

const LARGEST = 2 ** 20;
const LARGEST_RATIO = 256;
const PIECE = 2 ** 20;
const ARGUMENT = -12;
const MEMORY = -1;

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

/**
 * Changes the sampling rate of sound by a windowed sinc, without delay. Frequencies up to 0.9 of
 * the lower rate's Nyquist frequency keep their amplitude; those above that frequency are
 * attenuated by more than 80 dB.
 * @param samples one channel
 * @param rate Hz, 1 to 2^20
 * @param toRate Hz, at most 256 times higher or lower
 * @returns ceil(samples.length * toRate / rate) samples
 * @throws InputError
 */
export function resampleAudio(
  device: Pick<Device, "host">,
  samples: Float32Array,
  rate: number,
  toRate: number,
): Float32Array<ArrayBuffer> {
  if (rate === toRate) return samples.slice();
  const stream = new Resampler(device, rate, toRate);
  try {
    const pieces = [stream.feed(samples), stream.end()] as const;
    const out = new Float32Array(pieces[0].length + pieces[1].length);
    out.set(pieces[0]);
    out.set(pieces[1], pieces[0].length);
    return out;
  } finally {
    stream.close();
  }
}

/**
 * {@link resampleAudio} for sound that arrives in pieces. Its result does not depend on how the
 * sound is divided.
 */
export class Resampler {
  private readonly host: Host;
  private readonly memory: Memory;
  private readonly work: number;
  private readonly input: number;

  constructor(
    device: Pick<Device, "host">,
    readonly rate: number,
    readonly toRate: number,
  ) {
    checkRates(rate, toRate);
    this.host = device.host;
    this.memory = new Memory(this.host);
    this.work = this.memory.alloc(checked(this.host, "ew_resample_bytes", rate, toRate));
    this.input = this.memory.alloc(PIECE);
    checked(this.host, "ew_resample_open", this.work, rate, toRate);
  }

  /** The samples that are complete after these. */
  feed(samples: Float32Array): Float32Array<ArrayBuffer> {
    const pieces: Float32Array[] = [];
    for (let at = 0; at < samples.length; at += PIECE / 4) {
      const piece = samples.subarray(at, at + PIECE / 4);
      this.host.write(this.input, bytesOf(piece));
      pieces.push(this.run(this.input, piece.length));
    }
    const out = new Float32Array(pieces.reduce((sum, { length }) => sum + length, 0));
    let at = 0;
    for (const piece of pieces) {
      out.set(piece, at);
      at += piece.length;
    }
    return out;
  }

  /** The samples that were waiting for later ones. Call it once, after the last piece. */
  end(): Float32Array<ArrayBuffer> {
    return this.run(0, 0);
  }

  private run(address: number, count: number): Float32Array<ArrayBuffer> {
    const most = checked(this.host, "ew_resample_most", this.work, count);
    const memory = new Memory(this.host);
    try {
      const out = memory.alloc(4 * most);
      const done = checked(this.host, "ew_resample_feed", this.work, address, count, out, most);
      return new Float32Array(this.host.read(out, 4 * done).buffer);
    } finally {
      memory.free();
    }
  }

  /** Frees its memory. */
  close(): void {
    this.memory.free();
  }
}

/** Engine memory that is freed together. */
class Memory {
  private readonly addresses: number[] = [];

  constructor(private readonly host: Host) {}

  alloc(bytes: number): number {
    const address = this.host.alloc(Math.max(bytes, 1));
    this.addresses.push(address);
    return address;
  }

  free(): void {
    for (const address of this.addresses.splice(0)) this.host.free(address);
  }
}

/** Calls a function of core/media. Returns its int32; throws for negative ones. */
function checked(host: Host, name: string, ...args: number[]): number {
  const code = host.call(name, ...args) | 0;
  if (code >= 0) return code;
  if (code === MEMORY)
    throw new OutOfMemory(
      "the picture needs more than 2 GB",
      "resize",
      "Resize it in two steps, or crop it.",
    );
  if (code === ARGUMENT)
    throw new InputError("the sizes are not allowed", name, "Check the sizes and the box.");
  throw new EngineError(`error ${code}`, name, "This is a bug in Edgewise.");
}

function bytesOf(values: Float32Array | Uint8Array | Uint8ClampedArray): Uint8Array {
  return new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
}

function checkRates(rate: number, toRate: number): void {
  for (const [value, where] of [
    [rate, "rate"],
    [toRate, "to_rate"],
  ] as const)
    if (!Number.isInteger(value) || value < 1 || value > LARGEST)
      throw new InputError(
        `the sampling rate ${value} is not a whole number of Hz from 1 to ${LARGEST}`,
        where,
        "Give the rate at which the sound was recorded.",
      );
  if (Math.max(rate, toRate) > LARGEST_RATIO * Math.min(rate, toRate))
    throw new InputError(
      `the rates ${rate} and ${toRate} differ by more than ${LARGEST_RATIO} times`,
      "resample_audio",
      "Give the sampling rate of the sound.",
    );
}

/** The contents of the C struct ew_resize; throws for what the engine would refuse. */
function specOf(sizes: Required<ResizeSizes>, filter: Filter, box: Box, isFloat: boolean) {
  const { height, width, channels, outHeight, outWidth } = sizes;
  const numbers = [height, width, channels, outHeight, outWidth];
  const names = ["height", "width", "channels", "out_height", "out_width"];
  numbers.forEach((size, i) => {
    const most = i === 2 ? 1024 : LARGEST;
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
