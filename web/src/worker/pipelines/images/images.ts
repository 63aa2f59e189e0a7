// Sizes and boxes of image processing: what is done to a picture of a given size. The same as
// python/edgewise/logic/images/geometry.py; tests/conformance/image_layouts.json compares.

import { InputError } from "../../../shared/errors.ts";

/** A rule of a description: the operation, the rule's name, and its numbers. */
export interface Rule {
  op: string;
  rule?: string;
  filter?: string;
  color?: number[] | "symmetric";
  height?: number;
  width?: number;
  size?: number;
  longest?: number | null;
  divisor?: number;
  multiple?: number;
  keep?: boolean;
  of?: Rule;
  sizes?: Size[];
}

/** What an image processor does: see python/edgewise/compiler/processors/images/description.py. */
export interface ImageDescription {
  type: string;
  steps: Rule[];
  scale: number[];
  bias: number[];
  flip: boolean;
  frame: boolean;
  mask: boolean;
}

/** An operation with numbers; `window` is a part of the picture, or more than the picture. */
export type Step =
  | { op: "resize"; height: number; width: number; filter: string }
  | {
      op: "window";
      top: number;
      left: number;
      height: number;
      width: number;
      color: number[] | "symmetric";
    }
  | { op: "rotate" };

/**
 * What is done to a picture. `valid` is top, left, bottom, right of the picture in the result;
 * `kept` is the part that a package's frame did not add, from the top left on.
 */
export interface Layout {
  steps: Step[];
  height: number;
  width: number;
  valid: [number, number, number, number];
  kept: Size;
}

/** Pixels of the largest picture, as given and after each operation. */
export const MAX_PIXELS = 100_000_000;

/** Pixels. */
export type Size = [height: number, width: number];

/**
 * Applies the rules of a description to the size of a picture.
 *
 * @throws InputError: the picture is empty, or an operation would make it empty or too large.
 */
export function layout(steps: readonly Rule[], height: number, width: number): Layout {
  const out: Layout = { steps: [], height, width, valid: [0, 0, height, width], kept: [0, 0] };
  check(height, width);
  for (const rule of steps) {
    OPERATIONS[rule.op]!(out, rule);
    check(out.height, out.width);
  }
  if (!out.kept[0]) out.kept = [out.height, out.width];
  return out;
}

function check(height: number, width: number): void {
  const size = `a picture of ${height} x ${width} pixels`;
  if (!(height >= 1 && width >= 1))
    throw new InputError(`${size} is empty`, "image", "Give a larger picture.");
  if (height * width > MAX_PIXELS)
    throw new InputError(`${size} has more than ${MAX_PIXELS}`, "image", "Reduce it before.");
}

const OPERATIONS: Record<string, (out: Layout, rule: Rule) => void> = {
  resize(out, rule) {
    const [height, width] = SIZES[rule.rule!]!(rule, out.height, out.width);
    if (height !== out.height || width !== out.width) {
      check(height, width);
      out.steps.push({ op: "resize", height, width, filter: rule.filter! });
    }
    set(out, height, width);
  },

  crop(out, rule) {
    let [height, width] = [rule.height!, rule.width!];
    if (rule.rule === "fraction") {
      const least = Math.min(out.height, out.width);
      [height, width] = [Math.trunc(height * least), Math.trunc(width * least)];
    }
    window(out, centered(out.height, height), centered(out.width, width), height, width);
    set(out, height, width);
  },

  pad(out, rule) {
    let [height, width] = [rule.height!, rule.width!];
    if (rule.rule === "symmetric") {
      const divisor = rule.divisor!;
      height = (Math.floor(out.height / divisor) + 1) * divisor;
      width = (Math.floor(out.width / divisor) + 1) * divisor;
      window(out, 0, 0, height, width, "symmetric");
    } else {
      const half =
        rule.rule === "letterbox"
          ? (space: number) => roundHalfEven(space / 2 - 0.1)
          : (space: number) => Math.floor(space / 2);
      const [top, left] = [half(height - out.height), half(width - out.width)];
      window(out, 0 - top, 0 - left, height, width, rule.color);
    }
    set(out, height, width);
  },

  frame(out, rule) {
    if (rule.rule === "among") return among(out, rule);
    let [height, width] = [rule.height!, rule.width!];
    let [top, left] = [0, 0];
    if (rule.rule === "divisor") {
      height = up(out.height, rule.divisor!);
      width = up(out.width, rule.divisor!);
      top = Math.floor((height - out.height) / 2);
      left = Math.floor((width - out.width) / 2);
    } else if (height < out.height || width < out.width)
      throw new InputError(
        `a picture of ${out.height} x ${out.width} pixels does not fit into ${height} x ${width}`,
        "pad_size",
        "Choose a larger pad_size or a smaller size.",
      );
    const valid: Layout["valid"] = [top, left, top + out.height, left + out.width];
    window(out, 0 - top, 0 - left, height, width);
    set(out, height, width);
    out.valid = valid;
  },

  rotate(out, rule) {
    const [height, width] = [rule.height!, rule.width!];
    if ((width < height && out.width > out.height) || (width > height && out.width < out.height)) {
      out.steps.push({ op: "rotate" });
      set(out, out.width, out.height);
    }
  },
};

/** The first of several frames that has room for the picture. */
function among(out: Layout, { sizes }: Rule): void {
  const { height, width, valid } = out;
  const found = sizes!.find(([h, w]) => h >= height && w >= width);
  if (!found)
    throw new InputError(
      `a picture of ${height} x ${width} pixels fits into no frame of the model`,
      "image",
      "Cut it to a shape that is less long.",
    );
  window(out, 0, 0, ...found);
  set(out, ...found);
  out.kept = [height, width];
  out.valid = valid;
}

/** Where a centered window begins, as transformers' center_crop. */
const centered = (have: number, size: number): number =>
  have >= size ? Math.floor((have - size) / 2) : -Math.floor((size - have + 1) / 2);

const up = (size: number, divisor: number): number => Math.ceil(size / divisor) * divisor;

const down = (size: number, divisor: number): number => Math.floor(size / divisor) * divisor;

/** Python's round. */
export function roundHalfEven(x: number): number {
  const low = Math.floor(x);
  const rest = x - low;
  const rounded = rest > 0.5 || (rest === 0.5 && low % 2 !== 0) ? low + 1 : low;
  return rounded + 0; // never -0
}

function window(
  out: Layout,
  top: number,
  left: number,
  height: number,
  width: number,
  color: Rule["color"] = [0, 0, 0],
): void {
  if (top === 0 && left === 0 && height === out.height && width === out.width) return;
  check(height, width);
  out.steps.push({ op: "window", top, left, height, width, color });
}

function set(out: Layout, height: number, width: number): void {
  out.height = height;
  out.width = width;
  out.valid = [0, 0, height, width];
}

const exact = (rule: Rule): Size => [rule.height!, rule.width!];

/** As torchvision's Resize of an integer with max_size. */
function shortest(rule: Rule, height: number, width: number): Size {
  const { longest, divisor = 1 } = rule;
  let short = rule.size!;
  let long = Math.trunc((short * Math.max(height, width)) / Math.min(height, width));
  if (longest != null && long > longest)
    [short, long] = [Math.trunc((longest * short) / long), longest];
  const [h, w] = width <= height ? [long, short] : [short, long];
  return [up(h, divisor), up(w, divisor)];
}

function longest(rule: Rule, height: number, width: number): Size {
  const scale = rule.size! / Math.max(height, width);
  return [Math.max(1, roundHalfEven(height * scale)), Math.max(1, roundHalfEven(width * scale))];
}

/** As get_size_with_aspect_ratio of DETR; with a divisor, of YOLOS. */
function aspect(rule: Rule, height: number, width: number): Size {
  const { longest, divisor = 1 } = rule;
  const [least, most] = [Math.min(height, width), Math.max(height, width)];
  let [short, raw] = [rule.size!, rule.size!];
  if (longest != null && (most / least) * short > longest) {
    raw = (longest * least) / most;
    short = roundHalfEven(raw);
  }
  let size: Size = [short, Math.trunc((raw * width) / height)];
  if (least === short && (divisor === 1 || height <= width)) size = [height, width];
  else if (width < height) size = [Math.trunc((raw * height) / width), short];
  return [down(size[0], divisor), down(size[1], divisor)];
}

function fit(rule: Rule, height: number, width: number): Size {
  const scale = Math.min(rule.height! / height, rule.width! / width);
  return [Math.trunc(height * scale), Math.trunc(width * scale)];
}

/** As ultralytics' LetterBox. */
function letterbox(rule: Rule, height: number, width: number): Size {
  const scale = Math.min(rule.height! / height, rule.width! / width);
  return [Math.max(1, roundHalfEven(height * scale)), Math.max(1, roundHalfEven(width * scale))];
}

/** As get_resize_output_image_size of DPT. */
function multiple(rule: Rule, height: number, width: number): Size {
  let [high, wide] = [rule.height! / height, rule.width! / width];
  if (rule.keep) high = wide = Math.abs(1 - wide) < Math.abs(1 - high) ? wide : high;
  const near = (size: number) => roundHalfEven(size / rule.multiple!) * rule.multiple!;
  return [near(high * height), near(wide * width)];
}

const floor = (rule: Rule, height: number, width: number): Size => [
  down(height, rule.divisor!),
  down(width, rule.divisor!),
];

/** As get_resize_output_image_size of ViLT. */
function bounded(rule: Rule, height: number, width: number): Size {
  const [size, longest] = [rule.size!, rule.longest!];
  const scale = size / Math.min(height, width);
  let [high, wide] = height < width ? [size, scale * width] : [scale * height, size];
  if (Math.max(high, wide) > longest) {
    const less = longest / Math.max(high, wide);
    [high, wide] = [less * high, less * wide];
  }
  return [down(Math.trunc(high + 0.5), rule.divisor!), down(Math.trunc(wide + 0.5), rule.divisor!)];
}

/** As DonutImageProcessor.thumbnail: never larger than the picture. */
function thumbnail(rule: Rule, height: number, width: number): Size {
  const [high, wide] = [Math.min(height, rule.height!), Math.min(width, rule.width!)];
  if (high === height && wide === width) return [height, width];
  if (height > width) return [high, Math.trunc((width * high) / height)];
  if (width > height) return [Math.trunc((height * wide) / width), wide];
  return [high, wide];
}

/** Of several sizes, the one that is most like the size that another rule gives. */
function nearest({ of: inner, sizes }: Rule, height: number, width: number): Size {
  const [high, wide] = SIZES[inner!.rule!]!(inner!, height, width);
  check(high, wide);
  const difference = (size: Size) => {
    const [a, b] = [size[0] / high, size[1] / wide];
    return Math.max(a, 1 / a) * Math.max(b, 1 / b);
  };
  return sizes!.reduce((best, size) => (difference(size) < difference(best) ? size : best));
}

const SIZES: Record<string, (rule: Rule, height: number, width: number) => Size> = {
  exact,
  shortest,
  longest,
  aspect,
  fit,
  letterbox,
  multiple,
  floor,
  bounded,
  thumbnail,
  nearest,
};
