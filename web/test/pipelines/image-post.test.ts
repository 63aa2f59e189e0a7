// Masks of segments and depth: segmentation.json and depth.json in tests/conformance, which
// tests/pipelines/test_image_post.py computes from transformers and reads.
import assert from "node:assert/strict";
import { test } from "node:test";
import { choose_queries } from "../../src/logic/post/segmentation.ts";
import { depthMap } from "../../src/worker/pipelines/images/depth.ts";
import {
  classPlanes,
  foreground,
  maskOf,
  segmentMap,
  semanticMap,
} from "../../src/worker/pipelines/images/segmentation.ts";
import { vectors } from "../common/vectors.ts";

type Size = [number, number];
const near = (a: number, b: number, most = 1e-4) =>
  assert.ok(Math.abs(a - b) <= most, `${a} and ${b}`);

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
    mask_threshold: v.mask_threshold,
    overlap: v.overlap_mask_area_threshold,
    fused: [],
  };
  const chosen = choose_queries(v.logits, v.classes, v.threshold);
  const { map, segments } = segmentMap(chosen, v.masks, v.from, v.size, options);
  assert.deepEqual([...map], v.map);
  assert.equal(segments.length, v.segments.length);
  for (const [i, s] of v.segments.entries()) {
    assert.deepEqual(
      [segments[i]!.id, segments[i]!.label_id, segments[i]!.was_fused],
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
  assert.deepEqual(segmentMap([[], [], []], v.masks, v.from, v.size, options).segments, []);
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
