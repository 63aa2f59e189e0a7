// Pictures that are given as pixels.
import assert from "node:assert/strict";
import { test } from "node:test";
import { InputError } from "../../src/shared/errors.ts";
import { readImage } from "../../src/worker/pipelines/images/decode.ts";

test("pixels are bytes", async () => {
  const read = (data: ArrayBufferView) =>
    readImage({ data, width: 2, height: 2, channels: 1 } as never, undefined);
  const { data } = await read(Uint8Array.of(1, 2, 3, 4));
  assert.deepEqual([...data.slice(4, 8)], [2, 2, 2, 255]);
  await assert.rejects(read(Float32Array.of(0.1, 0.2, 0.3, 0.4)), InputError);
  await assert.rejects(read(new Float32Array(1)), InputError);
});
