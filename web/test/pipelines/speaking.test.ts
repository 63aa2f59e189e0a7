// What a package says about a model that speaks is checked, and so is what its graphs return.

import assert from "node:assert/strict";
import { test } from "node:test";
import { type Processor, records } from "../../src/gen/schema.ts";
import { Checker } from "../../src/logic/manifest/checker.ts";
import { check_processor } from "../../src/logic/manifest/rules.ts";
import { InputError, ModelError, PackageError } from "../../src/shared/errors.ts";
import type { Json } from "../../src/worker/package/container.ts";
import type { TaskHost } from "../../src/worker/pipelines/host.ts";
import { Options } from "../../src/worker/pipelines/options.ts";
import { SILENT } from "../../src/worker/pipelines/runner.ts";
import { textToSpeech, whole } from "../../src/worker/pipelines/synthesis/speak.ts";

const VITS = {
  type: "vits",
  sampling_rate: 16000,
  speakers: 0,
  tokens: "input_ids",
  vocabulary: { a: 1 },
  output: "waveform",
  least: 2,
  most: 512,
  length: "frames",
  frames: [2, 900],
  unknown: "<unk>",
  language: "",
  add_blank: true,
};
const PIPER = {
  ...VITS,
  type: "piper",
  vocabulary: { "^": [1], _: [0], $: [2], a: [3] },
  scales: [0.5, 1, 0.5],
  speaker_names: { ann: 0 },
};
const KOKORO = { ...VITS, type: "kokoro", voices: { a: [0, 510] } };

/** As the reader of manifests checks it. */
function check(speech: Record<string, Json>): void {
  const c = new Checker("x", records());
  c.check_record({ speech }, "Processor", "processor");
  check_processor(c, { speech } as unknown as Processor);
}

test("descriptions of each kind", () => {
  for (const speech of [VITS, PIPER, KOKORO]) check(speech);
});

/** A field of a description, and what it may not be. */
const REFUSED: [speech: Record<string, Json>, field: string, values: (Json | undefined)[]][] = [
  [VITS, "type", [undefined, "toString", "__proto__", "bark", 3]],
  [VITS, "least", [undefined, 0, -1, 2.5, 513, 2 ** 40]],
  [VITS, "most", [undefined, 0, -1, 1, 2 ** 17, "9"]],
  [VITS, "sampling_rate", [undefined, 0, 2 ** 21, "x"]],
  [VITS, "speakers", [undefined, -1, 0.5]],
  [VITS, "frames", [undefined, [], [2], [3, 2], [0, 2 ** 25], [-1, 2], "ab"]],
  [VITS, "vocabulary", [undefined, [], { a: "1" }, { a: 1.5 }, { a: [1] }]],
  [VITS, "length", ["", 3, []]],
  [VITS, "tokens", [undefined, 1]],
  [VITS, "add_blank", [1, "true"]],
  [VITS, "unknown", [1, {}]],
  [PIPER, "vocabulary", [{ a: [1] }, { ...PIPER.vocabulary, b: 1 }]],
  [PIPER, "scales", [[1, 2], [1, 2, "3"], 1]],
  [PIPER, "speaker_names", [[], { ann: "0" }]],
  [KOKORO, "voices", [[], { a: [0] }, { a: [0, 0] }, { a: [-1, 5] }]],
];

test("damaged descriptions are named", () => {
  for (const [whole, field, values] of REFUSED)
    for (const value of values) {
      const speech: Record<string, Json> = { ...whole, [field]: value as Json };
      if (value === undefined) delete speech[field];
      assert.throws(() => check(speech), PackageError, `${field}: ${value}`);
    }
  assert.throws(() => prepare(undefined), PackageError);
});

const prepare = (speech: Record<string, Json> | undefined, given: Record<string, unknown> = {}) =>
  textToSpeech.prepare(
    { processor: { speech }, task: "text-to-speech" } as unknown as TaskHost,
    new Options(given, textToSpeech.options),
    { streams: false, text: () => undefined, send: () => undefined },
  );

test("plans that are too short for a character", () => {
  prepare(PIPER);
  const long = { ...PIPER.vocabulary, a: Array(600).fill(3) };
  assert.throws(() => prepare({ ...PIPER, vocabulary: long }), PackageError);
  assert.throws(() => prepare({ ...VITS, least: 1, most: 2 }), PackageError);
  assert.throws(() => prepare({ ...KOKORO, least: 1, most: 2 }), PackageError);
});

test("one voice at a time", () => {
  const speaker_embeddings = new Float32Array(256);
  prepare(KOKORO, { speaker_embeddings });
  assert.throws(() => prepare(KOKORO, { speaker_embeddings, voice: "a" }), InputError);
});

test("numbers of frames", () => {
  const of = (type: string, { buffer }: { buffer: ArrayBufferLike }) =>
    whole({ type, dims: [1], data: new Uint8Array(buffer as ArrayBuffer) });
  assert.equal(of("int64", BigInt64Array.of(7n)), 7);
  assert.equal(of("int32", Int32Array.of(-7)), -7);
  assert.throws(() => of("float32", Float32Array.of(7)), ModelError);
  assert.throws(() => of("int64", new BigInt64Array(0)), ModelError);
  assert.throws(() => of("int32", new Int32Array(0)), ModelError);
});

test("a phonemizer gets what that of transformers gets", async () => {
  const vocabulary = { a: 1, X: 2, "<pad>": 0 };
  const asks = async (more: Record<string, Json>) => {
    const speech = { ...VITS, vocabulary, normalize: true, phonemize: true, ...more };
    const host = { processor: { speech }, task: "text-to-speech" } as unknown as TaskHost;
    const run = textToSpeech.prepare(host, new Options({}, []), SILENT);
    const sentences = ["KITE X hid <pad>", "ä"];
    return run({ speech: { sentences, phonemes: [], asks: true } }, new AbortController().signal);
  };
  assert.deepEqual(await asks({}), ["kite X hid <pad>", "ä"]);
  assert.deepEqual(await asks({ normalize: false }), ["KITE X hid <pad>", "ä"]);
  assert.deepEqual(await asks({ phonemize: false, is_uroman: true }), [null, "ä"]);
});
