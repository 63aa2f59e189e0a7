// Sizes of pictures: tests/conformance/image_layouts.json, which tests/processors/test_images.py
// reads as well.
import assert from "node:assert/strict";
import { test } from "node:test";
import { InputError } from "../../src/shared/errors.ts";
import { readImage } from "../../src/worker/pipelines/images/decode.ts";
import {
  type ImageDescription,
  layout,
  type Step,
} from "../../src/worker/pipelines/images/images.ts";
import { vectors } from "../common/vectors.ts";

interface Entry {
  description: ImageDescription;
  layouts: {
    picture: [number, number];
    steps: Step[];
    size: [number, number];
    valid: number[];
    kept: number[];
  }[];
}

test("pixels are bytes", async () => {
  const read = (data: ArrayBufferView) =>
    readImage({ data, width: 2, height: 2, channels: 1 } as never, undefined);
  const { data } = await read(Uint8Array.of(1, 2, 3, 4));
  assert.deepEqual([...data.slice(4, 8)], [2, 2, 2, 255]);
  await assert.rejects(read(Float32Array.of(0.1, 0.2, 0.3, 0.4)), InputError);
  await assert.rejects(read(new Float32Array(1)), InputError);
});

test("what image processors do to sizes", () => {
  for (const { description, layouts } of vectors<Entry[]>("image_layouts"))
    for (const { picture, steps, size, valid, kept } of layouts) {
      const done = layout(description.steps, ...picture);
      assert.deepEqual(
        { steps: done.steps, size: [done.height, done.width], valid: done.valid, kept: done.kept },
        { steps, size, valid, kept },
        `${description.type} ${picture}`,
      );
    }
});

test("pictures that are empty or too large are refused", () => {
  const steps = [{ op: "resize", rule: "floor", divisor: 32, filter: "bilinear" }];
  assert.throws(() => layout(steps, 31, 64), InputError);
  assert.throws(() => layout([], 0, 64), InputError);
  assert.throws(() => layout([], 20_000, 20_000), InputError);
});
