// From a decoded picture to the inputs of a model: the operations on its size, then the graph
// "pre". Mirrors python/edgewise/host/media/pictures.py.

import type { Device } from "../../../device/device.ts";
import type { Processor } from "../../../gen/schema.ts";
import { pixel_batches } from "../../../logic/images/batches.ts";
import {
  type Box,
  type Layout,
  layout,
  type Resize,
  type Step,
  type Warp,
  type Window,
} from "../../../logic/images/geometry.ts";
import { OWN, type Filter as Own, straight, taps } from "../../../logic/images/taps.ts";
import type { TaskTensor } from "../../../protocol/tasks.ts";
import { type Filter, resizeImage } from "../../media/resize.ts";
import type { Ending, TaskHost } from "../host.ts";
import { described } from "../inputs.ts";
import type { TaskImage } from "./decode.ts";
import { type Rows, resampled } from "./interpolation.ts";

type ImageFields = NonNullable<Processor["image"]>;
type Host = Pick<TaskHost, "task" | "device" | "processor" | "graph" | "run">;

/** RGB, 3 bytes a pixel, row by row. */
export interface Picture {
  height: number;
  width: number;
  pixels: Uint8Array<ArrayBuffer>;
}

/**
 * The inputs of a model for one picture.
 * @param box the part of the picture that it sees
 * @returns `values`: `pixel_values` and, if the model has it, `pixel_mask`; and what was done
 * @throws InputError if the picture is too large or becomes empty
 */
export async function pixelValues(
  host: Host,
  image: TaskImage,
  ending: Ending,
  box?: Box,
): Promise<Prepared> {
  return prepared(host, described(host, "image"), "pre", pictureOf(image), ending, box);
}

/** The inputs of a model, and what was done to the picture. */
export interface Prepared {
  values: Record<string, TaskTensor>;
  done: Layout;
}

/** A picture without its opacity. */
export function pictureOf({ width, height, data }: TaskImage): Picture {
  const pixels = new Uint8Array(3 * width * height);
  for (let i = 0, j = 0; i < data.length; i += 4, j += 3) {
    pixels[j] = data[i]!;
    pixels[j + 1] = data[i + 1]!;
    pixels[j + 2] = data[i + 2]!;
  }
  return { height, width, pixels };
}

/**
 * As `pixelValues`, of one of several models.
 * @param fields what happens to its pictures
 * @param pre name of the graph for the arithmetic
 */
export async function prepared(
  host: Host,
  fields: ImageFields,
  pre: string,
  given: Picture,
  ending: Ending,
  box?: Box,
): Promise<Prepared> {
  const done = layout(fields.steps, given.height, given.width, box ?? null);
  let picture = given;
  for (const step of done.steps) picture = applied(host.device, picture, step);
  const feeds: Record<string, TaskTensor> = {
    pixels: { type: "uint8", dims: [picture.height, picture.width, 3], data: picture.pixels },
    valid: {
      type: "int64",
      dims: [4],
      data: new Uint8Array(BigInt64Array.from(done.valid, BigInt).buffer),
    },
  };
  if (host.graph(pre).plans[0]!.register)
    return { values: await byPixels(host, fields, pre, picture, ending), done };
  const inputs = host.graph(pre).inputs.map((input) => [input.name, feeds[input.name]!]);
  const values = await host.run(pre, Object.fromEntries(inputs) as typeof feeds, ending);
  return { values, done };
}

/** The inputs of a model for a picture of any size: `pre` takes so many pixels at once. */
async function byPixels(
  host: Host,
  { mask }: ImageFields,
  pre: string,
  { height, width, pixels }: Picture,
  ending: Ending,
): Promise<Record<string, TaskTensor>> {
  const whole = new Float32Array(pixels.length);
  for (const { first, dims, stretches } of pixel_batches(height * width)) {
    const count = dims[1]!;
    const data = pixels.subarray(3 * first, 3 * (first + count));
    const given: TaskTensor = { type: "uint8", dims: [count, 1, 3], data };
    const { data: made } = (await host.run(pre, { pixels: given }, ending)).pixel_values!;
    const numbers = new Float32Array(made.slice().buffer);
    for (const { source, target, count: length } of stretches)
      whole.set(numbers.subarray(source, source + length), target);
  }
  const data = new Uint8Array(whole.buffer);
  const values: Record<string, TaskTensor> = {
    pixel_values: { type: "float32", dims: [1, 3, height, width], data },
  };
  if (mask) {
    const ones = new Uint8Array(new BigInt64Array(height * width).fill(1n).buffer);
    values.pixel_mask = { type: "int64", dims: [1, height, width], data: ones };
  }
  return values;
}

/** A picture after an operation on its size. */
export function applied(device: Device, picture: Picture, step: Step): Picture {
  if (step.op === "rotate") return rotated(picture);
  const { height, width } = step;
  if (step.op === "window") return { height, width, pixels: windowOf(picture, step) };
  const own = ownTaps(picture, step);
  if (own) return { height, width, pixels: resampled(own[0], own[1], picture.pixels) };
  const sizes = {
    ...{ height: picture.height, width: picture.width, channels: 3 },
    ...{ outHeight: height, outWidth: width },
  };
  const { filter } = step as Resize;
  return { height, width, pixels: resizeImage(device, picture.pixels, sizes, filter as Filter) };
}

/** What rows and columns are computed from, where that is no filter of the engine. */
function ownTaps({ height, width }: Picture, step: Resize | Warp): [Rows, Rows] | undefined {
  if (step.op === "warp")
    return [
      { size: height, taps: straight(step.top, step.down, height, step.height) },
      { size: width, taps: straight(step.left, step.across, width, step.width) },
    ];
  const filter = step.filter as Own;
  if (!OWN.includes(filter)) return undefined;
  return [
    { size: height, taps: taps(filter, height, step.height) },
    { size: width, taps: taps(filter, width, step.width) },
  ];
}

/** A part of a picture, or more than the picture. */
export function windowOf(
  { height: rows, width: columns, pixels: source }: Picture,
  { top, left, height, width, color }: Omit<Window, "op">,
): Uint8Array<ArrayBuffer> {
  const pixels = new Uint8Array(3 * height * width);
  const mirrored = (i: number, size: number): number => {
    const at = ((i % (2 * size)) + 2 * size) % (2 * size);
    return at < size ? at : 2 * size - 1 - at;
  };
  for (let y = 0; y < height; y++)
    for (let x = 0; x < width; x++) {
      let [row, column] = [top + y, left + x];
      if (color === "symmetric") {
        row = mirrored(row, rows);
        column = mirrored(column, columns);
      }
      const inside = row >= 0 && row < rows && column >= 0 && column < columns;
      const at = 3 * (row * columns + column);
      for (let c = 0; c < 3; c++)
        pixels[3 * (y * width + x) + c] = inside ? source[at + c]! : Number(color[c]);
    }
  return pixels;
}

/** A quarter turn clockwise: a column from the bottom up becomes a row. */
export function rotated({ height, width, pixels: source }: Picture): Picture {
  const pixels = new Uint8Array(source.length);
  for (let y = 0; y < height; y++)
    for (let x = 0; x < width; x++)
      for (let c = 0; c < 3; c++)
        pixels[3 * (x * height + height - 1 - y) + c] = source[3 * (y * width + x) + c]!;
  return { height: width, width: height, pixels };
}
