// Tasks whose results are places in a picture, or numbers for its parts. Names and options are
// those of transformers.js, results and defaults those of python/edgewise/host/pipelines/images.

import { MAX_PIXELS, type Size } from "../../../logic/images/geometry.ts";
import { label_of } from "../../../logic/post/classification.ts";
import {
  type Detection,
  focal,
  named_box,
  set_prediction,
  unletterbox,
  yolo,
} from "../../../logic/post/detection.ts";
import { choose_queries } from "../../../logic/post/segmentation.ts";
import type { TaskImageResult } from "../../../protocol/tasks.ts";
import { InputError } from "../../../shared/errors.ts";
import type { TaskHost } from "../host.ts";
import { described } from "../inputs.ts";
import type { Options } from "../options.ts";
import { type Numbers, output } from "../outputs.ts";
import type { TaskRunner } from "../runner.ts";
import { depthMap } from "./depth.ts";
import { featuresSeen, type Seen, see } from "./image-tasks.ts";
import { Interpolation } from "./interpolation.ts";
import {
  classPlanes,
  foreground,
  maskOf,
  type SegmentOptions,
  segmentMap,
  semanticMap,
} from "./segmentation.ts";

/**
 * Models with independent scores of all classes: how many scores are considered (undefined: as many
 * as there are queries).
 */
const FOCAL = new Map<unknown, number | undefined>([
  ["conditional_detr", 100],
  ["deformable_detr", 100],
  ["d_fine", undefined],
  ["rt_detr", undefined],
  ["rt_detr_v2", undefined],
]);
const MAX = 300; // detections of YOLO models, as in ultralytics
const LOGITS = ["class_queries_logits", "logits"] as const;
const MASKS = ["masks_queries_logits", "pred_masks"] as const;

type Labels = Parameters<typeof label_of>[0];

const sizeOf = ({ image }: Seen): Size => [image.height, image.width];

function labelOf(host: TaskHost, label: number): string {
  return label_of((host.processor.labels ?? host.config().id2label ?? {}) as Labels, label);
}

/** @throws InputError if an output has not the dimensions of a task */
function refuse(host: TaskHost, { dims }: Numbers): never {
  throw new InputError(
    `an output of shape ${dims.join(" x ")} is not that of this task`,
    host.task,
    "The model was exported for another task: give a model of this one.",
  );
}

/** `pipe(pictures, {threshold, percentage, iou, agnostic_nms})` */
export const objectDetection: TaskRunner = {
  options: ["threshold", "percentage", "iou", "agnostic_nms"],
  prepare(host, options) {
    const threshold = options.number("threshold", 0.5, 0, 1);
    const percentage = options.flag("percentage", false);
    const iou = options.number("iou", 0.45, 0, 1);
    const agnostic = options.flag("agnostic_nms", false);
    const isYolo = described(host, "image").type === "YoloImageProcessor";
    return async (input, ending) => {
      const seen = await see(host, input, ending);
      const size = sizeOf(seen);
      const found = isYolo
        ? boxesOfYolo(host, seen, { threshold, iou, agnostic })
        : boxesOfQueries(host, seen, threshold);
      return found.map(([score, label, box]) => ({
        score,
        label: labelOf(host, label),
        box: named_box(box, ...size, percentage),
      }));
    };
  },
};

function boxesOfQueries(host: TaskHost, seen: Seen, threshold: number): Detection[] {
  const logits = output(host, seen.outputs, "logits");
  const boxes = output(host, seen.outputs, "pred_boxes");
  const classes = logits.dims.at(-1)!;
  if (boxes.dims.at(-1) !== 4 || boxes.data.length * classes !== logits.data.length * 4)
    refuse(host, boxes);
  const kind = host.config().model_type;
  const given = [logits.data, boxes.data, classes, threshold, ...sizeOf(seen)] as const;
  return FOCAL.has(kind) ? focal(...given, FOCAL.get(kind)) : set_prediction(...given);
}

function boxesOfYolo(
  host: TaskHost,
  { outputs, image, done }: Seen,
  options: { threshold: number; iou: number; agnostic: boolean },
): Detection[] {
  const made = Object.values(outputs)[0]!;
  const [batch, rows, columns] = made.dims as [number, number, number];
  if (made.dims.length !== 3 || batch !== 1 || (rows < 5 && columns < 6)) refuse(host, made);
  const found: Detection[] = [];
  if (columns === 6 && rows > 6) {
    // boxes that were chosen in the graph
    for (let at = 0; at < made.data.length; at += 6) {
      const [x0, y0, x1, y1, score, label] = made.data.subarray(at, at + 6);
      if (score! > options.threshold)
        found.push([score!, Math.trunc(label!), [x0!, y0!, x1!, y1!]]);
    }
  } else {
    const { threshold, iou, agnostic } = options;
    found.push(...yolo(made.data, columns, threshold, iou, agnostic, MAX));
  }
  return unletterbox(found, [done.height, done.width], image.height, image.width);
}

/** Planes [count, height, width], without what a package's frame added. */
interface Planes {
  data: Float32Array;
  count: number;
  size: Size;
}

function planesOf(host: TaskHost, values: Numbers, { done }: Seen): Planes {
  const [height, width] = values.dims.slice(-2) as Size;
  if (values.dims.length < 3) refuse(host, values);
  const count = values.data.length / (height * width);
  const part = (kept: number, all: number, have: number) => Math.ceil((kept * have) / all);
  const rows = part(done.kept[0], done.height, height);
  const columns = part(done.kept[1], done.width, width);
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
  const enlarge = new Interpolation("linear", ...size, ...to);
  for (let i = 0; i < count; i++)
    enlarge.run(data, i * from, large.subarray(i * pixels, (i + 1) * pixels));
  return { data: large, count, size: to };
}

const SUBTASKS = ["default", "semantic", "instance", "panoptic"] as const;
const isSize = (x: unknown): x is Size =>
  Array.isArray(x) &&
  x.length === 2 &&
  x.every((n) => Number.isInteger(n) && n > 0) &&
  x[0] * x[1] <= MAX_PIXELS;

const SIZES = `Give [[height, width], ...], of at most ${MAX_PIXELS} pixels each.`;

/** A list whose items pass a check; undefined if there is none. */
function listOf<T>(
  options: Options,
  name: string,
  check: (item: unknown) => item is T,
  remedy: string,
): T[] | undefined {
  const value = options.given[name] ?? undefined;
  if (value === undefined) return undefined;
  return Array.isArray(value) && value.every(check) ? value : options.refuse(name, remedy);
}

function segmentOptions(options: Options): SegmentOptions & { threshold: number } {
  return {
    threshold: options.number("threshold", 0.9, 0, 1),
    maskThreshold: options.number("mask_threshold", 0.5, 0, 1),
    overlapMaskAreaThreshold: options.number("overlap_mask_area_threshold", 0.5, 0, 1),
    labelIdsToFuse:
      listOf(
        options,
        "label_ids_to_fuse",
        (x): x is number => Number.isInteger(x),
        "Give numbers.",
      ) ?? [],
  };
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
    const subtask = options.choice("subtask", "default", SUBTASKS);
    const settings = segmentOptions(options);
    const sizes = listOf(options, "target_sizes", isSize, SIZES);
    if (sizes && !sizes.length)
      throw new InputError("there are none", "options.target_sizes", SIZES);
    let at = 0;
    return async (input, ending) => {
      const seen = await see(host, input, ending);
      const to = sizes ? (sizes[at++] ?? sizes.at(-1)!) : sizeOf(seen);
      const masks = MASKS.find((name) => seen.outputs[name]);
      if (!masks) {
        if (subtask !== "default" && subtask !== "semantic")
          throw new InputError(
            `the model has no queries, so it has no ${subtask} segmentation`,
            "options.subtask",
            "Give semantic.",
          );
        const { data, count, size } = planesOf(host, output(host, seen.outputs, "logits"), seen);
        return classMasks(host, semanticMap(data, count, size, to), to);
      }
      if (subtask === "instance" && masks === MASKS[0])
        throw new InputError(
          "MaskFormer's instances are not supported",
          "options.subtask",
          "Give panoptic.",
        );
      const logits = output(host, seen.outputs, ...LOGITS.filter((name) => seen.outputs[name]));
      const planes = comparedPlanes(host, seen, masks);
      const classes = logits.dims.at(-1)!;
      if (planes.count * classes !== logits.data.length) refuse(host, logits);
      if (subtask === "semantic") {
        const [height, width] = planes.size;
        const all = classPlanes(logits.data, planes.data, classes, height * width);
        return classMasks(host, semanticMap(all, classes - 1, planes.size, to), to);
      }
      const fused = subtask === "instance" ? { ...settings, labelIdsToFuse: [] } : settings;
      return segmentMasks(host, logits.data, classes, planes, to, fused);
    };
  },
};

/** The masks that are compared: Mask2Former's are enlarged to 384 x 384 first. */
function comparedPlanes(host: TaskHost, seen: Seen, name: string): Planes {
  const planes = planesOf(host, seen.outputs[name]!, seen);
  return host.config().model_type === "mask2former" ? enlarged(planes, [384, 384]) : planes;
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
      label: labelOf(host, label),
      mask: gray(maskOf(map, label), size),
    }));
}

function segmentMasks(
  host: TaskHost,
  logits: Float32Array,
  classes: number,
  planes: Planes,
  to: Size,
  settings: SegmentOptions & { threshold: number },
): Mask[] {
  const chosen = choose_queries(logits, classes, settings.threshold);
  const { map, segments } = segmentMap(chosen, planes.data, planes.size, to, settings);
  return segments.map(({ id, label_id, score }) => ({
    score,
    label: labelOf(host, label_id),
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
      const { data, count, size } = planesOf(host, made, seen);
      if (count !== 1) refuse(host, made);
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
      const made = output(host, seen.outputs, "predicted_depth");
      const { data, count, size } = planesOf(host, made, seen);
      if (count !== 1) refuse(host, made);
      const to = sizeOf(seen);
      const { depth, picture } = depthMap(data, size, to);
      return { predicted_depth: { data: depth, dims: to }, depth: gray(picture, to) };
    };
  },
};

/** `pipe(pictures, {pool})` */
export const imageFeatureExtraction: TaskRunner = {
  options: ["pool"],
  prepare(host, options) {
    const names = options.flag("pool", false)
      ? ["pooler_output", "image_embeds"]
      : ["last_hidden_state", "logits", "image_embeds"];
    return async (input, ending): Promise<Numbers> => {
      const { outputs } = await see(host, input, ending);
      const { dims, data } = output(host, outputs, ...names);
      return { dims, data: data.slice() };
    };
  },
  features: featuresSeen,
};
