import assert from "node:assert/strict";
import { test } from "node:test";
import { fromWireOutput, toWireFeed } from "../../src/page/inference/convert.ts";
import { type OnnxValue, type PinnedOwner, Tensor } from "../../src/page/tensor.ts";
import type { ValueInfo, WireValue } from "../../src/protocol/inference.ts";
import { InputError } from "../../src/shared/errors.ts";
import { textOf } from "../../src/worker/inference/operators/strings.ts";
import { NumberTensor } from "../../src/worker/inference/values.ts";
import { fromWire } from "../../src/worker/inference/wire.ts";

const info = (type: string, more: Partial<ValueInfo> = {}): ValueInfo => ({
  name: "x",
  type,
  dtype: "float32",
  shape: null,
  ...more,
});
const session = (): PinnedOwner & { dropped: number[] } => {
  const dropped: number[] = [];
  return {
    dropped,
    read: async () => new Uint8Array(Float32Array.of(1, 2).buffer),
    drop: (id) => void dropped.push(id),
  };
};
const none = () => undefined;

test("tensors of every type", () => {
  assert.deepEqual(new Tensor("string", ["a", "bc"], [1, 2]).data, ["a", "bc"]);
  assert.equal(new Tensor(["a", "b"]).type, "string");
  assert.equal(new Tensor([true, false]).type, "bool");
  assert.ok(new Tensor("bfloat16", Uint16Array.of(0x3f80), [1]).data instanceof Uint16Array);
  assert.deepEqual(new Tensor("int4", Uint8Array.of(0x21, 0x03), [3]).dims, [3]);
  assert.equal(new Tensor("int4", Uint8Array.of(0x21, 0x03), [3]).size, 3);
  for (const wrong of [
    () => new Tensor("int4", Uint8Array.of(1), [3]),
    () => new Tensor("string", [1] as never),
    () => new Tensor("int64", [0.5]),
    () => new Tensor("float32", [1], [-1]),
    () => new Tensor("nothing" as never, [1]),
    () => new Tensor({} as never),
  ])
    assert.throws(wrong, InputError);
});

test("values survive the transfer to the worker and back", () => {
  const owner = session();
  const there = (v: unknown, of: ValueInfo) =>
    fromWire(structuredClone(toWireFeed(v, "feed 'x'", owner)), of, "feed 'x'", none);
  const sequence = there(
    [new Tensor("float32", [1, 2]), new Tensor("float32", [3])],
    info("sequence", { elem: info("tensor") }),
  );
  assert.equal(String(sequence), "a sequence of 2");
  const map = there(
    { a: 1, b: 2 },
    info("map", { key: "string", elem: info("tensor", { dtype: "float32" }) }),
  );
  assert.ok(map.kind === "map" && map.entries.get("b") === 2);
  const integers = there(
    new Map([
      [1, 2],
      [2n, 3n],
    ] as never),
    info("map", { key: "int64", elem: info("tensor", { dtype: "int64" }) }),
  );
  assert.ok(integers.kind === "map" && integers.entries.get(1n) === 2n);
  assert.equal(there(null, info("optional", { elem: info("tensor") })).kind, "nothing");
  assert.equal(
    there(new Tensor("float32", [1]), info("optional", { elem: info("tensor") })).kind,
    "tensor",
  );
  const fed = new Tensor("float32", [1]);
  assert.equal(fromWireOutput({ fed: "x" }, { x: fed }, owner), fed);
  const list = fromWireOutput(
    { sequence: [null, { type: "string", dims: [1], strings: ["s"] }] },
    {},
    owner,
  ) as OnnxValue[];
  assert.deepEqual([list[0], (list[1] as Tensor).data], [null, ["s"]]);
});

test("values that the model does not declare are rejected with a message", () => {
  const data = new Uint8Array(4);
  const tensor: WireValue = { type: "float32", dims: [1], data };
  const cases: [unknown, ValueInfo][] = [
    [tensor, info("sequence", { elem: info("tensor") })],
    [tensor, info("map", { key: "string" })],
    [{ sequence: [] }, info("tensor")],
    [null, info("tensor")],
    [7, info("tensor")],
    [{ ...tensor, dims: [2] }, info("tensor")],
    [{ ...tensor, dims: [-1] }, info("tensor")],
    [{ ...tensor, dims: "1" }, info("tensor")],
    [{ ...tensor, type: "int64" }, info("tensor")],
    [{ ...tensor, data: [0, 0, 0, 0] }, info("tensor")],
    [{ type: "float32", dims: [1] }, info("tensor")],
    [{ type: "float32", dims: [1], pinned: 7 }, info("tensor")],
    [{ type: "string", dims: [2], strings: ["a"] }, info("tensor", { dtype: "string" })],
    [{ type: "string", dims: [1], strings: [7] }, info("tensor", { dtype: "string" })],
    [{ map: new Map([["a", "b"]]) }, info("map", { key: "string", elem: info("tensor") })],
    [{ map: new Map([["a", 1]]) }, info("map", { key: "int64", elem: info("tensor") })],
    [{ ...tensor, dims: [1, 1] }, info("tensor", { shape: [1] })],
    [{ sequence: [null] }, info("sequence", { elem: info("tensor") })],
    [{ type: "nonsense", dims: [1], data }, info("tensor", { dtype: "0" })],
    [tensor, info("sparse_tensor")],
  ];
  for (const [v, of] of cases)
    assert.throws(
      () => fromWire(v as WireValue, of, "feed 'x'", none),
      (e) =>
        e instanceof InputError &&
        e.where.startsWith("feed 'x'") &&
        e.remedy !== "" &&
        e.what !== "",
      JSON.stringify(of),
    );
  for (const v of [3, "text", { a: {} }, new Date(), Symbol("s")])
    assert.throws(() => toWireFeed(v, "feed 'x'", session()), InputError);
});

test("tensors can stay in the engine's memory", async () => {
  const [mine, other] = [session(), session()];
  const t = Tensor.pinned("float32", [2], mine, 5);
  assert.equal(t.location, "cpu-pinned");
  assert.throws(() => t.data, /getData/);
  assert.deepEqual(await t.getData(), Float32Array.of(1, 2));
  assert.deepEqual(toWireFeed(t, "feed 'x'", mine), { type: "float32", dims: [2], pinned: 5 });
  assert.throws(() => toWireFeed(t, "feed 'x'", other), /another session/);
  await t.getData(true);
  assert.deepEqual([t.location, mine.dropped], ["cpu", [5]]);
  const gone = Tensor.pinned("float32", [2], mine, 6);
  gone.dispose();
  assert.deepEqual([gone.location, mine.dropped], ["none", [5, 6]]);
  assert.throws(() => toWireFeed(gone, "feed 'x'", mine), /disposed of/);
});

test("an output that is not read is copied to the engine once", () => {
  const owner = session();
  const out = Tensor.output("float32", [1 << 14], new Uint8Array(1 << 16), owner);
  const feed = () =>
    toWireFeed(out, "feed 'x'", owner) as { data?: Uint8Array; keep?: number; pinned?: number };
  assert.equal(feed().keep, undefined);
  const { keep } = feed();
  assert.ok(keep! < 0);
  assert.deepEqual([feed().pinned, feed().data], [keep, undefined]);
  (out.data as Float32Array)[0] = 1; // from now on it may be changed
  assert.deepEqual(owner.dropped, [keep]);
  assert.deepEqual(
    [feed().pinned, feed().keep, new Float32Array(feed().data!.buffer)[0]],
    [undefined, undefined, 1],
  );
});

test("numbers are formatted as text", () => {
  for (const [x, want] of [
    [1, "1"],
    [0.1, "0.1"],
    [1e8, "1e+08"],
    [123456789, "1.2345679e+08"],
    [1e-5, "1e-05"],
    [-0.25, "-0.25"],
    [NaN, "NaN"],
    [-Infinity, "-INF"],
    [0, "0"],
    [16777216, "16777216"],
  ] as const)
    assert.equal(textOf("float32", Math.fround(x)), want);
  assert.equal(textOf("int64", 9007199254740993n), "9007199254740993");
});

test("views share memory", async () => {
  const t = NumberTensor.of("int32", [2, 3], [1, 2, 3, 4, 5, 6]);
  assert.deepEqual(
    await Promise.all(
      t.rows("here").map((r) => r.numbers({ read: async () => new Uint8Array(0) })),
    ),
    [
      [1, 2, 3],
      [4, 5, 6],
    ],
  );
});
