// Post-processing of image tasks: detection, detection_yolo, segmentation and depth.json in
// tests/conformance, which tests/pipelines/test_image_post.py computes from transformers and reads.
import assert from "node:assert/strict";
import { test } from "node:test";
import { depthMap } from "../../src/worker/pipelines/images/depth.ts";
import {
  type Box,
  type Detection,
  focal,
  namedBox,
  setPrediction,
  unletterbox,
  yolo,
} from "../../src/worker/pipelines/images/detection.ts";
import {
  chooseQueries,
  classPlanes,
  foreground,
  maskOf,
  segmentMap,
  segmentsOf,
  semanticMap,
} from "../../src/worker/pipelines/images/segmentation.ts";
import { vectors } from "../common/vectors.ts";

type Size = [number, number];
type Found = [score: number, label: number, box: number[]];

const near = (a: number, b: number, most = 1e-4) =>
  assert.ok(Math.abs(a - b) <= most, `${a} and ${b}`);

function same(found: Detection[], expected: Found[]): void {
  assert.deepEqual(
    found.map((f) => f.label),
    expected.map(([, label]) => label),
  );
  for (const [i, [score, , box]] of expected.entries()) {
    near(found[i]!.score, score);
    for (const [k, x] of box.entries()) near(found[i]!.box[k]!, x, 1e-3);
  }
}

test("boxes of queries", () => {
  interface Case {
    kind: string;
    logits: number[];
    boxes: number[];
    classes: number;
    most: number | null;
    threshold: number;
    size: Size;
    found: Found[];
  }
  for (const v of vectors<Case[]>("detection")) {
    const given = [v.logits, v.boxes, v.classes, v.threshold, ...v.size] as const;
    const found = v.kind === "set" ? setPrediction(...given) : focal(...given, v.most ?? undefined);
    assert.ok(found.length);
    same(found, v.found);
  }
});

test("boxes of YOLO", () => {
  const v = vectors<{
    output: number[];
    anchors: number;
    cases: { arguments: [number, number, boolean, number]; found: Found[] }[];
    letterbox: { model: Size; picture: Size; box: Box; expected: number[]; named: object }[];
  }>("detection_yolo");
  for (const one of v.cases) {
    const [threshold, iou, agnostic, most] = one.arguments;
    same(yolo(v.output, v.anchors, { threshold, iou, agnostic, most }), one.found);
  }
  for (const { model, picture, box, expected, named } of v.letterbox) {
    const [back] = unletterbox([{ score: 1, label: 0, box }], model, ...picture);
    assert.deepEqual(back!.box, expected);
    assert.deepEqual(namedBox(back!.box, ...picture, false), named);
    const parts = namedBox(back!.box, ...picture, true);
    near(parts.ymax * picture[0], expected[3]!);
  }
});

interface Segmentation {
  logits: number[];
  masks: number[];
  planes: number[];
  classes: number;
  from: Size;
  size: Size;
  threshold: number;
  mask_threshold: number;
  overlap_mask_area_threshold: number;
  map: number[];
  segments: { id: number; label_id: number; was_fused: boolean; score: number }[];
  semantic: number[];
  plane_classes: number[];
  foreground: number[];
}

test("segments", () => {
  const v = vectors<Segmentation>("segmentation");
  const options = {
    maskThreshold: v.mask_threshold,
    overlapMaskAreaThreshold: v.overlap_mask_area_threshold,
    labelIdsToFuse: [],
  };
  const chosen = chooseQueries(v.logits, v.classes, v.threshold);
  const { map, segments } = segmentMap(chosen, v.masks, v.from, v.size, options);
  assert.deepEqual([...map], v.map);
  assert.equal(segments.length, v.segments.length);
  for (const [i, s] of v.segments.entries()) {
    assert.deepEqual(
      [segments[i]!.id, segments[i]!.labelId, segments[i]!.wasFused],
      [s.id, s.label_id, s.was_fused],
    );
    near(segments[i]!.score, s.score);
  }
  const id = segments[0]!.id;
  assert.deepEqual(
    [...maskOf(map, id)],
    v.map.map((x) => (x === id ? 255 : 0)),
  );

  const area = v.from[0] * v.from[1];
  const planes = classPlanes(v.logits, v.masks, v.classes, area);
  assert.deepEqual([...semanticMap(planes, v.classes - 1, v.from, v.size)], v.semantic);
  assert.deepEqual([...semanticMap(v.planes, 5, v.from, v.size)], v.plane_classes);
  assert.deepEqual([...foreground(v.planes.slice(0, area), v.from, v.size)], v.foreground);
  assert.deepEqual(segmentMap([], v.masks, v.from, v.size, options).segments, []);
});

test("fused segments", () => {
  const query = (label: number, score: number) => ({ query: 0, label, score });
  const options = { maskThreshold: 0.5, overlapMaskAreaThreshold: 0.5, labelIdsToFuse: [1] };
  const chosen = [query(1, 0.9), query(2, 0.8), query(1, 0.7), query(3, 0.6)];
  const nine = [9, 9, 9, 9];
  const { numbers, segments } = segmentsOf(chosen, nine, nine, options);
  assert.deepEqual(numbers, [1, 2, 1, 3]);
  assert.deepEqual(
    segments.map((s) => [s.id, s.labelId, s.wasFused]),
    [
      [1, 1, true],
      [2, 2, false],
      [3, 3, false],
    ],
  );
  assert.deepEqual(segmentsOf([query(1, 0.9)], [4], [9], options).numbers, [0]);
});

test("depth", () => {
  const v = vectors<{
    values: number[];
    from: Size;
    size: Size;
    depth: number[];
    picture: number[];
  }>("depth");
  const { depth, picture } = depthMap(v.values, v.from, v.size);
  for (const [i, d] of v.depth.entries()) near(depth[i]!, d);
  for (const [i, p] of v.picture.entries()) near(picture[i]!, p, 1);
  assert.deepEqual([...depthMap([3, 3], [1, 2], [1, 2]).picture], [0, 0]);
});
