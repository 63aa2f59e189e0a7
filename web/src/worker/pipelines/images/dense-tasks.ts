// Tasks whose results are places in a picture, or numbers for its parts. Names and options are
// those of transformers.js, results and defaults those of python/edgewise/host/pipelines/images.

import { MAX_PIXELS, type Size, split_of } from "../../../logic/images/geometry.ts";
import { label_of } from "../../../logic/post/classification.ts";
import { choose_instances, choose_queries } from "../../../logic/post/segmentation.ts";
import {
  check_one_plane,
  count_planes,
  DEPTHS,
  detected,
  detecting,
  feature_outputs,
  kept_size,
  masks_of,
  PAINTED,
  painted_channels,
  part_shown,
  query_boxes,
  type Segmenting,
  segmenting,
  size_compared,
  wrong_shape,
  yolo_boxes,
} from "../../../logic/tasks/pictures.ts";
import type { TaskImageResult } from "../../../protocol/tasks.ts";
import { InputError } from "../../../shared/errors.ts";
import type { TaskHost } from "../host.ts";
import { described } from "../inputs.ts";
import type { Options } from "../options.ts";
import { type Numbers, output } from "../outputs.ts";
import type { TaskRunner } from "../runner.ts";
import { depthMap } from "./depth.ts";
import { featuresSeen, imageOf, look, type Seen, see, seen as seenOf } from "./image-tasks.ts";
import { Interpolation } from "./interpolation.ts";
import {
  classPlanes,
  foreground,
  instanceMap,
  maskOf,
  type Shown,
  segmentMap,
  semanticMap,
} from "./segmentation.ts";
import { windowPlanes } from "./windows.ts";

type Labels = Parameters<typeof label_of>[0];

const sizeOf = ({ image }: Seen): Size => [image.height, image.width];

const labelsOf = (host: TaskHost): Labels =>
  (host.processor.labels ?? host.config().id2label ?? {}) as Labels;

/** `pipe(pictures, {threshold, percentage, iou, agnostic_nms})` */
export const objectDetection: TaskRunner = {
  options: ["threshold", "percentage", "iou", "agnostic_nms"],
  prepare(host, { given }) {
    const how = detecting(given);
    const isYolo = described(host, "image").type === "YoloImageProcessor";
    return async (input, ending) => {
      const seen = await see(host, input, ending);
      const [size, { outputs, done }] = [sizeOf(seen), seen];
      const [logits, boxes] = isYolo
        ? [Object.values(outputs)[0]!]
        : ["logits", "pred_boxes"].map((name) => output(host, outputs, name));
      const found = boxes
        ? query_boxes(logits!, boxes, host.config(), how.threshold, size, host.task)
        : yolo_boxes(logits!, how, [done.height, done.width], size, host.task);
      return detected(found, labelsOf(host) as Record<string, string>, size, how.percentage);
    };
  },
};

/** Planes [count, height, width], without what a package's frame added. */
interface Planes {
  data: Float32Array;
  count: number;
  size: Size;
}

function planesOf(host: TaskHost, values: Numbers, { done }: Seen): Planes {
  const [height, width] = values.dims.slice(-2) as Size;
  const count = count_planes(values.dims, host.task);
  const [rows, columns] = kept_size(height, width, done);
  if (rows === height && columns === width)
    return { data: values.data, count, size: [height, width] };
  const data = new Float32Array(count * rows * columns);
  for (let row = 0; row < count * rows; row++) {
    const from = (Math.floor(row / rows) * height + (row % rows)) * width;
    data.set(values.data.subarray(from, from + columns), row * columns);
  }
  return { data, count, size: [rows, columns] };
}

/** Planes at another size. */
function enlarged({ data, count, size }: Planes, to: Size): Planes {
  const [from, pixels] = [size[0] * size[1], to[0] * to[1]];
  const large = new Float32Array(count * pixels);
  const enlarge = Interpolation.of("linear", ...size, ...to);
  for (let i = 0; i < count; i++)
    enlarge.run(data, i * from, large.subarray(i * pixels, (i + 1) * pixels));
  return { data: large, count, size: to };
}

const isSize = (x: unknown): x is Size =>
  Array.isArray(x) &&
  x.length === 2 &&
  x.every((n) => Number.isInteger(n) && n > 0) &&
  x[0] * x[1] <= MAX_PIXELS;

/** The option `target_sizes`. */
function targetSizes({ given }: Options): Size[] | undefined {
  const sizes = given.target_sizes ?? undefined;
  if (sizes === undefined || (Array.isArray(sizes) && sizes.length && sizes.every(isSize)))
    return sizes as Size[] | undefined;
  throw new InputError(
    `they are ${String(sizes) || "none"}`,
    "options.target_sizes",
    `Give [[height, width], ...], of at most ${MAX_PIXELS} pixels each.`,
  );
}

/**
 * `pipe(pictures, {subtask, threshold, mask_threshold, overlap_mask_area_threshold,
 * label_ids_to_fuse, target_sizes})`
 */
export const imageSegmentation: TaskRunner = {
  options: [
    "subtask",
    "threshold",
    "mask_threshold",
    "overlap_mask_area_threshold",
    "label_ids_to_fuse",
    "target_sizes",
  ],
  prepare(host, options) {
    const how = segmenting(options.given);
    const sizes = targetSizes(options);
    let at = 0;
    return async (input, ending) => {
      const image = await imageOf(host, input, ending);
      const own: Size = [image.height, image.width];
      const to = sizes ? (sizes[at++] ?? sizes.at(-1)!) : own;
      const split = split_of(described(host, "image").steps, ...own);
      if (split) {
        const { planes, count } = await windowPlanes(host, image, split, how, ending);
        return classMasks(host, semanticMap(planes, count, [split.height, split.width], to), to);
      }
      const seen = seenOf(await look(host, image, ending));
      const { outputs } = seen;
      const {
        form,
        logits: name,
        masks,
      } = masks_of(...[how, Object.keys(outputs), host.task, host.config()]);
      const logits = outputs[name]!;
      if (form === "classes") {
        const { data, count, size } = planesOf(host, logits, seen);
        return classMasks(host, semanticMap(data, count, size, to), to);
      }
      const large = form.startsWith("enlarged");
      const planes = large
        ? planesOf(host, outputs[masks]!, seen)
        : comparedPlanes(host, seen, masks);
      const classes = logits.dims.at(-1)!;
      if (planes.count * classes !== logits.data.length) throw wrong_shape(logits.dims, host.task);
      if (form !== "planes") {
        const part = large ? part_shown(seen.done, own) : undefined;
        const shown = part && { whole: [seen.done.height, seen.done.width] as Size, part };
        return segmentMasks(host, logits.data, classes, planes, to, how, form, shown);
      }
      const [height, width] = planes.size;
      const all = classPlanes(logits.data, planes.data, classes, height * width);
      return classMasks(host, semanticMap(all, classes - 1, planes.size, to), to);
    };
  },
};

/** The masks that are compared. */
function comparedPlanes(host: TaskHost, seen: Seen, name: string): Planes {
  const planes = planesOf(host, seen.outputs[name]!, seen);
  const size = size_compared(host.config(), [seen.done.height, seen.done.width]);
  return size ? enlarged(planes, size) : planes;
}

interface Mask {
  score: number | null;
  label: string;
  mask: TaskImageResult;
}

const gray = (data: Uint8Array<ArrayBuffer>, [height, width]: Size): TaskImageResult => ({
  ...{ data, width, height },
  channels: 1,
});

function classMasks(host: TaskHost, map: Uint16Array, size: Size): Mask[] {
  return [...new Set(map)]
    .sort((a, b) => a - b)
    .map((label) => ({
      score: null,
      label: label_of(labelsOf(host), label),
      mask: gray(maskOf(map, label), size),
    }));
}

function segmentMasks(
  host: TaskHost,
  logits: Float32Array,
  classes: number,
  { data, size }: Planes,
  to: Size,
  how: Segmenting,
  form: string,
  shown?: Shown,
): Mask[] {
  const { threshold } = how;
  const { map, segments } = form.endsWith("instances")
    ? instanceMap(choose_instances(logits, classes, !!shown, threshold), data, size, to, how, shown)
    : segmentMap(choose_queries(logits, classes, threshold), data, size, to, how, shown);
  return segments.map(({ id, label_id, score }) => ({
    score,
    label: label_of(labelsOf(host), label_id),
    mask: gray(maskOf(map, id), to),
  }));
}

/** `pipe(pictures)` */
export const backgroundRemoval: TaskRunner = {
  options: [],
  prepare(host) {
    return async (input, ending): Promise<TaskImageResult> => {
      const seen = await see(host, input, ending);
      const made = Object.values(seen.outputs)[0]!;
      check_one_plane(made.dims, host.task);
      const { data, size } = planesOf(host, made, seen);
      const [height, width] = sizeOf(seen);
      const alpha = foreground(data, size, [height, width]);
      const pixels = Uint8Array.from(seen.image.data);
      for (let i = 0; i < alpha.length; i++) pixels[4 * i + 3] = alpha[i]!;
      return { data: pixels, width, height, channels: 4 };
    };
  },
};

/** `pipe(pictures)` */
export const depthEstimation: TaskRunner = {
  options: [],
  prepare(host) {
    return async (input, ending) => {
      const seen = await see(host, input, ending);
      const made = output(host, seen.outputs, ...DEPTHS);
      check_one_plane(made.dims, host.task);
      const { data, size } = planesOf(host, made, seen);
      const to = sizeOf(seen);
      const { depth, picture } = depthMap(data, size, to);
      return { predicted_depth: { data: depth, dims: to }, depth: gray(picture, to) };
    };
  },
};

/** `pipe(pictures)` */
export const imageToImage: TaskRunner = {
  options: [],
  prepare(host) {
    return async (input, ending): Promise<TaskImageResult> => {
      const seen = await see(host, input, ending);
      const made = output(host, seen.outputs, PAINTED);
      const channels = painted_channels(made.dims, host.task);
      const { data, size } = planesOf(host, made, seen);
      const [height, width] = size;
      const pixels = new Uint8ClampedArray(channels * height * width);
      for (let c = 0; c < channels; c++)
        for (let i = 0; i < height * width; i++)
          pixels[channels * i + c] = 255 * Math.min(data[c * height * width + i]!, 1);
      return { data: new Uint8Array(pixels.buffer), width, height, channels: channels as 1 | 3 };
    };
  },
};

/** `pipe(pictures, {pool})` */
export const imageFeatureExtraction: TaskRunner = {
  options: ["pool"],
  prepare(host, { given }) {
    const names = feature_outputs(given);
    return async (input, ending): Promise<Numbers> => {
      const { outputs } = await see(host, input, ending);
      const { dims, data } = output(host, outputs, ...names);
      return { dims, data: data.slice() };
    };
  },
  features: featuresSeen,
};
