// Masks of segments of a picture. Mirrors the graphs of images/image_graphs.py in
// python/edgewise/host/pipelines/; tests/conformance/segmentation.json compares with transformers.

import { composed, type Taps, taps } from "../../../logic/images/taps.ts";
import { softmax } from "../../../logic/post/classification.ts";
import {
  type choose_queries,
  instance,
  instance_score,
  type Segment,
  segments,
} from "../../../logic/post/segmentation.ts";
import type { Segmenting } from "../../../logic/tasks/pictures.ts";
import { Interpolation, type Rows } from "./interpolation.ts";

type Numbers = number[] | Float32Array;
type Chosen = ReturnType<typeof choose_queries>;
type Size = readonly [height: number, width: number];

/**
 * The class of each pixel: the logits are enlarged before they are compared.
 * @param logits [classes, height, width] of `from`
 * @returns [height, width] of `to`
 */
export function semanticMap(logits: Numbers, classes: number, from: Size, to: Size): Uint16Array {
  const map = new Uint16Array(to[0] * to[1]);
  const [rows, columns] = [taps("linear", from[0], to[0]), taps("linear", from[1], to[1])];
  const across = runs(columns);
  for (const [top, bottom] of runs(rows))
    for (const [left, right] of across) {
      const ys = [rows.at[2 * top]!, rows.at[2 * top + 1]!].map((y) => y * from[1]);
      const xs = [columns.at[2 * left]!, columns.at[2 * left + 1]!];
      const corners = ys.flatMap((y) => xs.map((x) => y + x)) as Corners;
      const likely = candidates(logits, classes, from[0] * from[1], corners);
      for (let y = top; y < bottom; y++) {
        const start = y * to[1];
        if (likely.length === 1) {
          map.fill(likely[0]!.label, start + left, start + right);
          continue;
        }
        const [up, down] = [rows.weights[2 * y]!, rows.weights[2 * y + 1]!];
        for (let x = left; x < right; x++) {
          const [near, far] = [columns.weights[2 * x]!, columns.weights[2 * x + 1]!];
          let most = -Infinity;
          for (const { label, values: v } of likely) {
            const value = up * (near * v[0] + far * v[1]) + down * (near * v[2] + far * v[3]);
            if (value > most) {
              most = value;
              map[start + x] = label;
            }
          }
        }
      }
    }
  return map;
}

type Corners = [number, number, number, number];

/** Ranges of positions that are computed from the same positions of the source. */
function runs({ at }: Taps): [first: number, end: number][] {
  const found: [number, number][] = [];
  for (let i = 0; i < at.length / 2; i++)
    if (i && at[2 * i] === at[2 * i - 2] && at[2 * i + 1] === at[2 * i - 1]) found.at(-1)![1]++;
    else found.push([i, i + 1]);
  return found;
}

/**
 * The classes that can be the strongest between four values: a class whose greatest value is below
 * the least of another cannot. At most places one class is left.
 */
function candidates(
  logits: Numbers,
  classes: number,
  area: number,
  corners: Corners,
): { label: number; values: Corners }[] {
  const all = Array.from({ length: classes }, (_, label) => {
    const values = corners.map((at) => logits[label * area + at]!) as Corners;
    return { label, values, least: Math.min(...values), most: Math.max(...values) };
  });
  const bound = all.reduce((most, { least }) => Math.max(most, least), -Infinity);
  return all.filter(({ most }) => most >= bound);
}

/**
 * The planes of classes that queries with masks stand for, which `semanticMap` takes.
 * @param logits [queries, classes]; the last class is "no object"
 * @param masks [queries, pixels], logits
 * @returns [classes - 1, pixels]
 */
export function classPlanes(
  logits: Numbers,
  masks: Numbers,
  classes: number,
  pixels: number,
): Float32Array {
  const planes = new Float32Array((classes - 1) * pixels);
  const mask = new Float32Array(pixels);
  for (const [q, scores] of classesOf(logits, classes).entries()) {
    for (let i = 0; i < pixels; i++) mask[i] = sigmoid(masks[q * pixels + i]!);
    for (let c = 0; c < classes - 1; c++) {
      const p = scores[c]!;
      for (let i = 0; i < pixels; i++) planes[c * pixels + i]! += p * mask[i]!;
    }
  }
  return planes;
}

/** The probabilities of the classes of each query. */
export const classesOf = (logits: Numbers, classes: number): number[][] =>
  Array.from({ length: logits.length / classes }, (_, q) =>
    softmax(logits.slice(q * classes, (q + 1) * classes)),
  );

export const sigmoid = (x: number): number => 1 / (1 + Math.exp(-x));

/** Of masks that are enlarged before they are compared: what the model takes, and its part. */
export interface Shown {
  whole: Size;
  part: Size;
}

/**
 * The segment of each pixel, of queries with masks.
 * @param chosen as from `choose_queries`
 * @param masks [queries, height, width] of `from`, logits
 * @returns `map` [height, width] of `to`: a segment's id, 0 for none; and the segments
 */
export function segmentMap(
  chosen: Chosen,
  masks: Numbers,
  from: Size,
  to: Size,
  how: Pick<Segmenting, "mask_threshold" | "overlap" | "fused">,
  shown?: Shown,
): { map: Uint16Array; segments: Segment[] } {
  const [pixels, small] = [to[0] * to[1], from[0] * from[1]];
  const [plane, best] = [new Float32Array(pixels), new Float32Array(pixels).fill(-Infinity)];
  const [owner, mask] = [new Uint16Array(pixels), new Float32Array(small)];
  const enlarge = shown
    ? new Interpolation(rowsOf(from, to, shown, 0), rowsOf(from, to, shown, 1))
    : Interpolation.of("linear", ...from, ...to);
  const sure = new Uint8Array(shown ? pixels : 0); // where the strongest mask is strong enough
  const [queries, scores, labels] = chosen;
  const whole = queries.map((query, k) => {
    const score = scores[k]!;
    const at = query * small;
    for (let i = 0; i < small; i++) mask[i] = shown ? masks[at + i]! : sigmoid(masks[at + i]!);
    enlarge.run(mask, 0, plane);
    let area = 0;
    for (let i = 0; i < pixels; i++) {
      const part = shown ? sigmoid(plane[i]!) : plane[i]!;
      const value = part * score;
      const inside = (shown ? part : value) >= how.mask_threshold;
      if (inside) area++;
      if (shown && value > best[i]!) sure[i] = inside ? 1 : 0;
      if (value > best[i]!) {
        best[i] = value;
        owner[i] = k;
      }
    }
    return area;
  });
  const areas = queries.map(() => 0);
  if (queries.length) for (const k of owner) areas[k]!++;
  const seen = new Set(shown ? owner.filter((_, i) => sure[i]) : owner);
  for (const k of areas.keys()) if (!seen.has(k)) areas[k] = 0;
  const [numbers, found] = segments(scores, labels, areas, whole, how.overlap, how.fused);
  const map = owner.map((k, i) => (shown && !sure[i] ? 0 : (numbers[k] ?? 0)));
  return { map, segments: found };
}

/**
 * The instance of each pixel, of queries with masks, of which later ones are painted over earlier
 * ones.
 * @param chosen as from `choose_instances`
 * @param masks [queries, height, width] of `from`, logits
 * @returns `map` [height, width] of `to`: the number of an instance from 1 on, 0 for none; and
 * the instances
 */
export function instanceMap(
  [queries, scores, labels]: Chosen,
  masks: Numbers,
  from: Size,
  to: Size,
  { threshold }: Pick<Segmenting, "threshold">,
  shown?: Shown,
): { map: Uint16Array; segments: Segment[] } {
  const small = from[0] * from[1];
  const map = new Uint16Array(to[0] * to[1]);
  const plane = new Float32Array(shown ? map.length : small);
  const enlarge =
    shown && new Interpolation(rowsOf(from, to, shown, 0), rowsOf(from, to, shown, 1));
  const [rows, columns] = ([0, 1] as const).map((axis) => nearest(from[axis], to[axis]));
  const found: Segment[] = [];
  for (const [k, query] of queries.entries()) {
    const mask = Float32Array.from(masks.slice(query * small, (query + 1) * small));
    if (enlarge) enlarge.run(mask, 0, plane);
    else plane.set(mask);
    let [inside, pixels, seen] = [0, 0, false];
    for (const x of plane)
      if (x > 0) {
        inside += sigmoid(x);
        pixels++;
      }
    const at = (i: number) =>
      shown ? i : rows![Math.floor(i / to[1])]! * from[1] + columns![i % to[1]]!;
    const score = instance_score(scores[k]!, inside, pixels);
    if (score < threshold) continue;
    for (let i = 0; i < map.length; i++)
      if (plane[at(i)]! > 0) {
        map[i] = found.length + 1;
        seen = true;
      }
    if (seen) found.push(instance(found.length + 1, labels[k]!, score));
  }
  return { map, segments: found };
}

/** The row or column of `from` ones that each of `to` shows. */
const nearest = (from: number, to: number): number[] =>
  Array.from({ length: to }, (_, i) => Math.min(Math.floor((i * from) / to), from - 1));

/** Rows or columns of masks as those of the picture, by way of what the model takes. */
function rowsOf(from: Size, to: Size, { whole, part }: Shown, axis: 0 | 1): Rows {
  const outer = taps("linear", part[axis], to[axis]);
  return { size: from[axis], taps: composed(outer, taps("linear", from[axis], whole[axis])) };
}

/** 255 where the map has the value, else 0. */
export function maskOf(map: Uint16Array, value: number): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(map, (v) => (v === value ? 255 : 0));
}

/**
 * How much of each pixel belongs to the foreground, 0 to 255, of a model with one output plane.
 * @param values [height, width] of `from`: probabilities, or logits if one is not in 0 to 1
 * @returns [height, width] of `to`
 */
export function foreground(values: Numbers, from: Size, to: Size): Uint8Array {
  const parts = Float32Array.from(values);
  if (parts.some((v) => v < -1e-5 || v > 1 + 1e-5))
    for (const [i, v] of parts.entries()) parts[i] = sigmoid(v);
  const out = new Float32Array(to[0] * to[1]);
  Interpolation.of("linear", ...from, ...to).run(parts, 0, out);
  return Uint8Array.from(out, (v) => Math.min(Math.max(Math.floor(v * 255 + 0.5), 0), 255));
}
