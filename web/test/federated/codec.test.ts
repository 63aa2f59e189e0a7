import assert from "node:assert/strict";
import { test } from "node:test";
import { CODECS, pack, Schema, unpack, type Values } from "../../src/extras/federated/codec.ts";
import { toHalf } from "../../src/shared/float16.ts";
import { Anchor } from "../../src/worker/training/anchor.ts";
import type { RunSettings } from "../../src/worker/training/run-options.ts";
import type { Session } from "../../src/worker/training/session.ts";
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
  part: string;
  drawn: { rate: number; mu: number; values: Texts };
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
  assert.equal((await schema.part("B")).sha256, v.part);
  assert.equal(await schema.part(null), schema);
  await assert.rejects(schema.part("A"), /'A' is not a part of what is trained/);
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

test("FedProx draws values as Python does; all but B can be frozen", async () => {
  const { rate, mu } = v.drawn;
  const [before, after] = [values(v.left), values(v.values)];
  const states = Object.keys(v.shapes).map((name) => ({
    ...{ name, dtype: "float32", kind: "adapter", shape: v.shapes[name]! },
  }));
  const at = new Map(before);
  const session = {
    results: states,
    readState: async ({ name }: { name: string }) => new Uint8Array(at.get(name)!.slice().buffer),
    writeState: ({ name }: { name: string }, data: Uint8Array<ArrayBuffer>) =>
      at.set(name, new Float32Array(data.slice().buffer)),
  };
  const run = async (proximal_mu: number, freeze_A: boolean): Promise<Texts | undefined> => {
    for (const [name, x] of before) at.set(name, x);
    const options = { proximal_mu, freeze_A } as RunSettings;
    const anchor = await Anchor.of(session as unknown as Session, options);
    for (const [name, x] of after) at.set(name, x);
    await anchor?.pull(rate);
    return anchor && texts(at);
  };
  assert.deepEqual(await run(mu, false), v.drawn.values);
  assert.equal(await run(0, false), undefined);
  const frozen = await run(0, true);
  for (const name of Object.keys(v.shapes))
    assert.equal(frozen![name], (/lora_(embedding_)?B/.test(name) ? v.values : v.left)[name]);
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
