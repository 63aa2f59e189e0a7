import assert from "node:assert/strict";
import { test } from "node:test";
import { CODECS, pack, Schema, toHalf, unpack, type Values } from "../../src/federated/codec.ts";
import { vectors } from "../common/vectors.ts";

type Texts = Record<string, string>;
const v = vectors<{
  shapes: Record<string, number[]>;
  schema: string;
  base: string;
  metadata: Texts;
  values: Texts;
  left: Texts;
  files: Record<string, { file: string; decoded: Texts; left: Texts }>;
  halves: [string, string];
}>("federated");

const bytes = (text: string) => new Uint8Array(Buffer.from(text, "base64"));
const floats = (text: string) => new Float32Array(bytes(text).buffer);
const values = (texts: Texts): Values =>
  new Map(Object.entries(texts).map(([name, text]) => [name, floats(text)]));
const texts = (given: Values): Texts =>
  Object.fromEntries(
    Array.from(given, ([name, x]) => [name, Buffer.from(x.buffer).toString("base64")]),
  );

test("identities of a schema and of weights equal Python's", async () => {
  const schema = await Schema.of(Object.entries(v.shapes));
  assert.equal(schema.sha256, v.schema);
  assert.equal(await schema.base(values(v.values)), v.base);
});

for (const codec of CODECS)
  test(`${codec}: files, numbers and what is rounded away equal Python's`, async () => {
    const schema = await Schema.of(Object.entries(v.shapes));
    const expected = v.files[codec]!;
    const made = await pack(values(v.values), schema, codec, v.metadata, values(v.left));
    assert.equal(Buffer.from(made.data).toString("base64"), expected.file);
    const sorted = (t: Texts) => Object.fromEntries(Object.entries(t).sort());
    assert.deepEqual(sorted(texts(made.decoded)), sorted(expected.decoded));
    assert.deepEqual(sorted(texts(made.left)), sorted(expected.left));
    const read = await unpack(bytes(expected.file), schema, codec, v.metadata);
    assert.deepEqual(sorted(texts(read)), sorted(expected.decoded));
    await assert.rejects(unpack(bytes(expected.file), schema, codec, { base: "" }), /base/);
  });

test("float16 is rounded as by NumPy", () => {
  const halves = Uint16Array.from(floats(v.halves[0]), toHalf);
  assert.deepEqual(halves, new Uint16Array(bytes(v.halves[1]).buffer));
  assert.deepEqual(
    [65519, 65520, Infinity, -1e9, NaN].map(toHalf),
    [0x7bff, 0x7c00, 0x7c00, 0xfc00, 0x7e00],
  );
});

test("numbers that a codec does not have are refused", async () => {
  const schema = await Schema.of([["w", [2]]]);
  for (const [codec, number] of [
    ["float16", 1e6],
    ["int8", 1e9],
    ["float32", NaN],
  ] as const)
    await assert.rejects(
      pack(new Map([["w", Float32Array.of(number, 0)]]), schema, codec, {}),
      /not finite, or too large/,
    );
  await assert.rejects(Schema.of([["ü", [2]]]), /valid name/);
});
