// Boxes of objects from the outputs of detectors. Mirrors
// python/edgewise/logic/post/detection.py; tests/conformance/detection.json compares both.

import { roundHalfEven } from "./images.ts";

/** xmin, ymin, xmax, ymax in pixels. */
export type Box = [number, number, number, number];

export interface Detection {
  score: number;
  label: number;
  box: Box;
}

type Numbers = ArrayLike<number>;

/** A box in pixels, from center x, center y, width and height as parts of the picture. */
function corners(boxes: Numbers, query: number, height: number, width: number): Box {
  const [x, y, w, h] = [0, 1, 2, 3].map((i) => boxes[4 * query + i]!) as Box;
  return [
    (x - 0.5 * w) * width,
    (y - 0.5 * h) * height,
    (x + 0.5 * w) * width,
    (y + 0.5 * h) * height,
  ];
}

/** The class with the highest probability of a row of logits; `last` excludes the last class. */
export function likeliest(
  logits: Numbers,
  row: number,
  classes: number,
  last: boolean,
): { label: number; score: number } {
  const start = row * classes;
  let label = 0;
  let most = -Infinity;
  for (let c = 0; c < classes; c++) most = Math.max(most, logits[start + c]!);
  let total = 0;
  for (let c = 0; c < classes; c++) total += Math.exp(logits[start + c]! - most);
  for (let c = 1; c < (last ? classes - 1 : classes); c++)
    if (logits[start + c]! > logits[start + label]!) label = c;
  return { label, score: Math.exp(logits[start + label]! - most) / total };
}

/**
 * Detections of DETR, YOLOS and Table Transformer: one class of each query, or none.
 * @param logits [queries, classes]; the last class is "no object"
 * @param boxes [queries, 4]: center x, center y, width, height, as parts of the picture
 * @param threshold scores above it are kept
 */
export function setPrediction(
  logits: Numbers,
  boxes: Numbers,
  classes: number,
  threshold: number,
  height: number,
  width: number,
): Detection[] {
  const found: Detection[] = [];
  for (let q = 0; q < boxes.length / 4; q++) {
    const best = likeliest(logits, q, classes, true);
    if (best.score > threshold) found.push({ ...best, box: corners(boxes, q, height, width) });
  }
  return found;
}

/**
 * Detections of RT-DETR, D-FINE and Deformable DETR: independent scores of all classes.
 * @param most how many scores of all queries and classes are considered; default: as many as there
 *   are queries
 * @returns the highest score first
 */
export function focal(
  logits: Numbers,
  boxes: Numbers,
  classes: number,
  threshold: number,
  height: number,
  width: number,
  most = boxes.length / 4,
): Detection[] {
  const found: Detection[] = [];
  const least = threshold <= 0 ? -Infinity : threshold >= 1 ? Infinity : logit(threshold);
  const above: number[] = [];
  for (let i = 0; i < logits.length; i++) if (logits[i]! >= least) above.push(i);
  above.sort((a, b) => logits[b]! - logits[a]! || a - b);
  for (const i of above.slice(0, most)) {
    const score = 1 / (1 + Math.exp(-logits[i]!));
    if (!(score > threshold)) continue;
    const box = corners(boxes, Math.floor(i / classes), height, width);
    found.push({ score, label: i % classes, box });
  }
  return found;
}

/** A little less than the inverse of the sigmoid, since scores are rounded. */
const logit = (p: number): number => Math.log(p / (1 - p)) - 1e-6;

/** Options of `yolo`. */
export interface YoloOptions {
  /** Scores above it are kept. */
  threshold: number;
  /** Of two boxes that overlap more, the one with the lower score is left out. */
  iou: number;
  /** Whether boxes of different classes suppress each other. */
  agnostic: boolean;
  /** Maximum number of detections. */
  most: number;
}

/**
 * Detections of YOLO v8 and later, in pixels of the model's input.
 * @param output [4 + classes, anchors]: center x, center y, width, height, and scores
 * @returns the highest score first
 */
export function yolo(output: Numbers, anchors: number, options: YoloOptions): Detection[] {
  const classes = output.length / anchors - 4;
  const found: Detection[] = [];
  for (let a = 0; a < anchors; a++) {
    let label = 0;
    for (let c = 1; c < classes; c++)
      if (output[(4 + c) * anchors + a]! > output[(4 + label) * anchors + a]!) label = c;
    const score = output[(4 + label) * anchors + a]!;
    if (!(score > options.threshold)) continue;
    const [x, y, w, h] = [0, 1, 2, 3].map((i) => output[i * anchors + a]!) as Box;
    found.push({ score, label, box: [x - w / 2, y - h / 2, x + w / 2, y + h / 2] });
  }
  return nonMaxSuppression(found, options);
}

/** Leaves out boxes that overlap one with a higher score. */
export function nonMaxSuppression(
  found: readonly Detection[],
  { iou, agnostic, most }: Omit<YoloOptions, "threshold">,
): Detection[] {
  const kept: Detection[] = [];
  for (const one of [...found].sort((a, b) => b.score - a.score)) {
    if (kept.length === most) break;
    const suppressed = kept.some(
      (other) => (agnostic || one.label === other.label) && overlap(one.box, other.box) > iou,
    );
    if (!suppressed) kept.push(one);
  }
  return kept;
}

/** Intersection over union of two boxes. */
function overlap(a: Box, b: Box): number {
  const width = Math.min(a[2], b[2]) - Math.max(a[0], b[0]);
  const height = Math.min(a[3], b[3]) - Math.max(a[1], b[1]);
  if (width <= 0 || height <= 0) return 0;
  const both = width * height;
  const area = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - both;
  return area > 0 ? both / area : 0;
}

/** Detections in pixels of the picture, from those in a letterboxed one of `size`. */
export function unletterbox(
  found: readonly Detection[],
  size: readonly [height: number, width: number],
  height: number,
  width: number,
): Detection[] {
  const scale = Math.min(size[0] / height, size[1] / width);
  const margin = (space: number, used: number) =>
    roundHalfEven((space - Math.max(1, roundHalfEven(used * scale))) / 2 - 0.1);
  const [top, left] = [margin(size[0], height), margin(size[1], width)];
  const x = (v: number) => Math.min(Math.max((v - left) / scale, 0), width);
  const y = (v: number) => Math.min(Math.max((v - top) / scale, 0), height);
  return found.map(({ score, label, box: [x0, y0, x1, y1] }) => ({
    score,
    label,
    box: [x(x0), y(y0), x(x1), y(y1)],
  }));
}

/** Whole pixels, as transformers gives them; with `percentage` parts of the picture. */
export function namedBox(
  box: Box,
  height: number,
  width: number,
  percentage: boolean,
): { xmin: number; ymin: number; xmax: number; ymax: number } {
  const sizes = [width, height, width, height];
  const [xmin, ymin, xmax, ymax] = box.map((v, i) =>
    percentage ? v / sizes[i]! : Math.trunc(v) + 0,
  ) as Box;
  return { xmin, ymin, xmax, ymax };
}
