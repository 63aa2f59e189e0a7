// Pictures and sound that the engine resamples: Pillow's results, and natively computed ones.
// tests/processors/make_media.py writes the vectors.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";
import type { Host } from "../../src/device/device.ts";
import { Resampler } from "../../src/worker/media/resample.ts";
import { type Box, type Filter, resizeFloat, resizeImage } from "../../src/worker/media/resize.ts";
import { openHost } from "../common/engine.ts";
import { vectors } from "../common/vectors.ts";

interface ImageCase {
  sizes: [number, number, number, number, number];
  float: boolean;
  filter: Filter;
  box: Box | null;
  digest: string;
}
interface SoundCase {
  rates: [number, number];
  length: number;
  digest: string;
}
const { images, sounds } = vectors("media") as unknown as {
  images: ImageCase[];
  sounds: SoundCase[];
};

function noise(count: number): Uint8Array {
  let state = 1;
  return Uint8Array.from({ length: count }, () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state >>> 24;
  });
}
const floats = (count: number) => Float32Array.from(noise(count), (b) => (b - 128) / 128);
const digest = (data: Uint8Array | Float32Array) =>
  createHash("sha256")
    .update(new Uint8Array(data.buffer, data.byteOffset, data.byteLength))
    .digest("hex")
    .slice(0, 32);
const device = async (): Promise<{ host: Host }> => ({ host: await openHost() });

function resampled(
  engine: { host: Host },
  samples: Float32Array,
  rate: number,
  toRate: number,
): Float32Array {
  const stream = new Resampler(engine, rate, toRate);
  const all = [...stream.feed(samples), ...stream.end()];
  stream.close();
  return Float32Array.from(all);
}

test("pictures are resized as by Pillow", async () => {
  const engine = await device();
  for (const { sizes, float, filter, box, digest: expected } of images) {
    const [height, width, channels, outHeight, outWidth] = sizes;
    const given = { height, width, channels, outHeight, outWidth };
    const count = height * width * channels;
    const out = float
      ? resizeFloat(engine, floats(count), given, filter, box ?? undefined)
      : resizeImage(engine, noise(count), given, filter, box ?? undefined);
    assert.equal(digest(out), expected, `${filter} ${sizes.join(" ")} ${box}`);
  }
});

test("sound is resampled to the same bits as in Python", async () => {
  const engine = await device();
  for (const { rates, length, digest: expected } of sounds) {
    const out = resampled(engine, floats(5000), ...rates);
    assert.equal(out.length, length);
    assert.equal(digest(out), expected, rates.join(" "));
  }
});

test("the result does not depend on the pieces of a stream", async () => {
  const engine = await device();
  const samples = floats(5000);
  const stream = new Resampler(engine, 44100, 16000);
  const parts: number[] = [];
  for (let at = 0; at < samples.length; at += 331)
    parts.push(...stream.feed(samples.subarray(at, at + 331)));
  parts.push(...stream.end());
  stream.close();
  assert.deepEqual(Float32Array.from(parts), resampled(engine, samples, 44100, 16000));
});

test("what cannot be resampled is refused with a reason", async () => {
  const engine = await device();
  const sizes = { height: 2, width: 2, outHeight: 1, outWidth: 1 };
  const pixels = new Uint8Array(4);
  assert.throws(() => resizeImage(engine, pixels, { ...sizes, outWidth: 0 }, "box"), /out_width/);
  assert.throws(() => resizeImage(engine, pixels, sizes, "cubic" as Filter), /no filter 'cubic'/);
  assert.throws(() => resizeImage(engine, pixels, sizes, "box", [0, 0, 3, 2]), /the box/);
  assert.throws(() => resizeImage(engine, new Uint8Array(3), sizes, "box"), /3 bytes/);
  const huge = { ...sizes, outHeight: 2 ** 20, outWidth: 2 ** 20 };
  assert.throws(() => resizeImage(engine, pixels, huge, "nearest"), /2 GB/);
  assert.throws(() => resampled(engine, new Float32Array(4), 0, 16000), /sampling rate/);
  assert.throws(() => resampled(engine, new Float32Array(4), 1, 16000), /256 times/);
});
