// Sounds that a page passes to pipelines: the samples of WAV files are those that Python reads,
// what is no sound is refused by name.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";
import { rateOf } from "../../src/page/pipelines/sound-files.ts";
import { type SoundInput, sendableSound } from "../../src/page/pipelines/sounds.ts";
import { readSound, soundLength, soundPieces } from "../../src/worker/pipelines/sounds/read.ts";
import { openHost } from "../common/engine.ts";
import { vectors } from "../common/vectors.ts";

const files =
  vectors<{ wav: string; rate: number; count: number; digest: string }[]>("audio/sounds");
const bytesOf = (i: number) => Uint8Array.from(Buffer.from(files[i]!.wav, "base64"));
const device = async () => ({ host: await openHost() });

test("the samples of WAV files are Python's", async () => {
  const engine = await device();
  for (const [i, { rate, count, digest }] of files.entries()) {
    const bytes = bytesOf(i);
    for (const input of [bytes, bytes.buffer, new File([bytes], "a.wav")]) {
      const sound = await sendableSound(input);
      const samples = await readSound(engine, sound, rate);
      assert.equal(samples.length, count);
      assert.equal(soundLength(sound, rate), count);
      const found = createHash("sha256").update(new Uint8Array(samples.buffer)).digest("hex");
      assert.equal(found.slice(0, 32), digest, `file ${i}`);
    }
  }
});

test("a long file is read in pieces", async () => {
  const frames = 1_500_000;
  const head = Buffer.from(bytesOf(8).slice(0, 64)); // 16 bits, two channels, 44100 Hz
  const at = head.indexOf("data") + 8;
  const data = Int16Array.from({ length: 2 * frames }, (_, i) => (i * 7919) % 65536);
  const sound = await sendableSound(new Blob([Uint8Array.from(head.subarray(0, at)), data]));
  const pieces: Float32Array[] = [];
  for await (const piece of soundPieces(await device(), sound, 44100)) pieces.push(piece);
  assert.ok(pieces.length > 4 && pieces.every(({ length }) => length <= 2 ** 18));
  let next = 0;
  for (const piece of pieces)
    for (const x of piece) {
      const wanted = (data[next]! / 32768 + data[next + 1]! / 32768) / 2;
      if (x !== Math.fround(wanted)) assert.fail(`frame ${next / 2}: ${x}, not ${wanted}`);
      next += 2;
    }
  assert.equal(next, 2 * frames);
});

test("samples of every form", async () => {
  const x = Float32Array.of(0.5, -0.25, 0);
  const y = Float32Array.of(0.5, 0.25, 1);
  const buffer = {
    numberOfChannels: 2,
    sampleRate: 8000,
    getChannelData: (i: number) => [x, y][i],
  } as AudioBuffer;
  const forms: [SoundInput, number, number[]][] = [
    [x, 0, [0.5, -0.25, 0]],
    [Float64Array.from(x), 0, [0.5, -0.25, 0]],
    [Int16Array.of(16384, -8192, 0), 0, [0.5, -0.25, 0]],
    [{ array: x, sampling_rate: 8000 }, 8000, [0.5, -0.25, 0]],
    [{ raw: Int16Array.of(16384), sampling_rate: 44100 }, 44100, [0.5]],
    [{ audio: [x, y], sampling_rate: 8000 }, 8000, [0.5, 0, 0.5]],
    [buffer, 8000, [0.5, 0, 0.5]],
  ];
  for (const [input, rate, samples] of forms) {
    const sound = await sendableSound(input);
    assert.equal(sound.sampling_rate, rate);
    assert.ok("samples" in sound && sound.samples !== (x as Float32Array));
    assert.deepEqual([...sound.samples], samples);
  }
});

test("what is no sound is refused", async () => {
  const good = Buffer.from(bytesOf(1));
  const format = good.indexOf("fmt ");
  const changed = (at: number, ...bytes: number[]) =>
    Uint8Array.from(good.map((b, i) => bytes[i - format - 8 - at] ?? b));
  const cases: [unknown, RegExp][] = [
    [good.subarray(0, 12), /no samples/],
    [Uint8Array.from(good).slice(0, format + 12), /format is truncated/],
    [Uint8Array.from(good).slice(0, good.indexOf("data") + 8), /no samples/],
    [Buffer.concat([good.subarray(0, 12), good.subarray(good.indexOf("data"))]), /no format/],
    [changed(2, 0, 0), /0 channels/],
    [changed(4, 0, 0, 0, 0), /sampling rate is 0/],
    [changed(4, 255, 255, 255, 255), /sampling rate is 4294967295/],
    [changed(0, 0x55), /only WAV files can be decoded here/],
    [new File(["no sound"], "talk.mp3"), /talk\.mp3: only WAV files/],
    [new Float32Array(), /no samples/],
    [{ array: new Float32Array(4), sampling_rate: 0 }, /no sound/],
    [{ array: new Float32Array(4), sampling_rate: 0.5 }, /sampling rate is 0\.5/],
    [{ array: [1, 2], sampling_rate: 8000 }, /no sound/],
    [{ array: [new Float32Array(4), new Float32Array(3)], sampling_rate: 8000 }, /differ/],
    [{ getAudioTracks: () => [] }, /a stream has no end/],
    [{ array: new Array(65).fill(new Int16Array(1)), sampling_rate: 8000 }, /65 channels/],
    [{ numberOfChannels: 1e9, getChannelData: assert.fail }, /1000000000 channels/],
    [7, /no sound/],
    [null, /no sound/],
  ];
  for (const [input, text] of cases)
    await assert.rejects(sendableSound(input as SoundInput), (e: Error) => {
      assert.equal(e.name, "InputError");
      assert.match(e.message, text);
      return true;
    });
  const fired = AbortSignal.abort();
  await assert.rejects(sendableSound(new Float32Array(3), fired), { name: "Aborted" });
});

test("rates of files that the browser decodes", () => {
  const rate = (...bytes: (number | string)[]) =>
    rateOf(
      new DataView(
        Uint8Array.from(bytes.flatMap((b) => (typeof b === "string" ? [...Buffer.from(b)] : b)))
          .buffer,
      ),
    );
  const zeros = (n: number) => new Array<number>(n).fill(0);
  assert.equal(rate("fLaC", ...zeros(14), 0x0a, 0xc4, 0x42, 0xf0), 44100);
  const ogg = ["OggS", ...zeros(22), 1, 30];
  assert.equal(rate(...ogg, "\u0001vorbis", ...zeros(5), 0x80, 0x3e, 0, 0), 16000);
  assert.equal(rate(...ogg, "OpusHead", ...zeros(11)), 48000);
  assert.equal(rate(0xff, 0xfb, 0x90, 0x64), 44100); // MPEG 1
  assert.equal(rate(0xff, 0xf3, 0x84, 0x64), 24000); // MPEG 2
  assert.equal(rate("ID3", 4, 0, 0, 0, 0, 0, 2, 9, 9, 0xff, 0xfb, 0x98, 0x64), 32000);
  assert.equal(rate("none"), undefined);
});

test("samples that are not finite, or whose squares are not, are refused", async () => {
  const engine = await device();
  const read = (...x: number[]) =>
    readSound(engine, { name: "a.wav", sampling_rate: 0, samples: Float32Array.from(x) }, 16_000);
  for (const x of [Number.NaN, -Infinity, 3e38, -(2 ** 33)])
    await assert.rejects(read(0, x), /a\.wav: samples are not finite/);
  assert.deepEqual([...(await read(-(2 ** 32), 1e-40))], [-(2 ** 32), Math.fround(1e-40)]);
});

test("a sound whose samples would not fit is refused", async () => {
  const engine = await device();
  const wav = { file: new Blob(), at: 0, length: 2 ** 27, channels: 1, bits: 8, float: false };
  await assert.rejects(
    readSound(engine, { name: "years.wav", sampling_rate: 1, wav }, 16_000),
    ({ name, message }) => name === "InputError" && /134217728 s/.test(message),
  );
});
