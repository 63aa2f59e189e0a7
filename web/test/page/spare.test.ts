import assert from "node:assert/strict";
import { test } from "node:test";
import { fromWireOutput, toWireFeed } from "../../src/page/inference/convert.ts";
import { Parcel, SpareBuffers } from "../../src/page/inference/spare.ts";
import { type OnnxValue, Tensor } from "../../src/page/tensor.ts";
import type { WireValue } from "../../src/protocol/inference.ts";
import { MIN_SPARE, Outgoing, spareBuffers } from "../../src/worker/inference/spare.ts";
import { NumberTensor } from "../../src/worker/inference/values.ts";

const COUNT = MIN_SPARE / 4;
const owner = {
  read: () => Promise.reject(new Error("nothing is read here")),
  drop: () => undefined,
};
const large = (value: number): Tensor =>
  new Tensor("float32", new Float32Array(COUNT).fill(value), [COUNT]);
type Data = Extract<WireValue, { data: unknown }>;

/** A feed as it is sent. */
function fed(x: OnnxValue, parcel: Parcel): WireValue {
  const v = toWireFeed(x, "feed 'x'", owner);
  parcel.pack(v);
  return v;
}

/** The part of the feeds that the worker returns after a transfer. */
function cross(feeds: readonly Tensor[], spare: SpareBuffers): ArrayBuffer[] {
  const parcel = new Parcel(spare);
  const sent = requestOf(
    feeds.map((x) => fed(x, parcel)),
    parcel,
  );
  const back = spareBuffers(structuredClone(sent, { transfer: parcel.transfer }), []);
  return structuredClone(back, { transfer: back });
}

/** What the worker gets of the feeds "0", "1" and so on. */
const requestOf = (feeds: readonly WireValue[], parcel?: Parcel) => ({
  feeds: Object.fromEntries(feeds.map((v, i) => [String(i), v])),
  parcel: parcel?.packed,
});

test("a feed is copied into the buffer of the previous run's feed", () => {
  const spare = new SpareBuffers();
  const back = cross([large(1), large(2)], spare);
  assert.equal(back.length, 2);
  spare.renew(back);
  const parcel = new Parcel(spare);
  const [a, b, c] = [3, 4, 5].map((x) => fed(large(x), parcel) as Data);
  assert.deepEqual(new Set([a!.data.buffer, b!.data.buffer]), new Set(back));
  assert.ok(!back.includes(c!.data.buffer));
  assert.deepEqual(
    [a, b, c].map(
      (v) =>
        new Float32Array(v!.data.buffer).every((x, _, all) => x === all[0]) &&
        new Float32Array(v!.data.buffer)[0],
    ),
    [3, 4, 5],
  );
  assert.deepEqual(parcel.transfer, [a!.data.buffer, b!.data.buffer, c!.data.buffer]);
});

test("buffers of other sizes and of earlier runs are released", () => {
  const spare = new SpareBuffers();
  const [first] = cross([large(1)], spare);
  spare.renew([first!]);
  const wider = new Tensor("float32", new Float32Array(2 * COUNT), [2 * COUNT]);
  spare.renew(cross([wider], spare));
  assert.notEqual((fed(large(1), new Parcel(spare)) as Data).data.buffer, first);
});

test("tensors in the worker, small feeds and parts of buffers are not returned", () => {
  const received = [fed(large(1), new Parcel())];
  const { data } = received[0] as Data;
  assert.deepEqual(
    spareBuffers(requestOf(received), [new NumberTensor("float32", [1, COUNT], data)]),
    [],
  );
  assert.deepEqual(
    spareBuffers(requestOf(received), [new NumberTensor("float32", [4], data.subarray(16, 32))]),
    [],
  );
  assert.deepEqual(
    spareBuffers(
      requestOf([
        { type: "float32", dims: [COUNT - 1], data: data.subarray(4) },
        null,
        { type: "float32", dims: [], pinned: 3 },
      ]),
      [],
    ),
    [],
  );
});

test("small feeds and outputs travel in one buffer, which comes back", () => {
  const spare = new SpareBuffers();
  const of = (...values: number[]) => new Tensor("float32", values);
  for (const first of [undefined, cross([of(1), of(2)], spare)]) {
    if (first) spare.renew(first);
    const parcel = new Parcel(spare);
    const feeds = [of(1, 2, 3), large(4), of(5)].map((x) => fed(x, parcel));
    assert.equal(parcel.transfer.length, 2);
    if (first) assert.equal(parcel.packed!.buffer, first[0]);
    const there = structuredClone(requestOf(feeds, parcel), { transfer: parcel.transfer });
    const moved: ArrayBuffer[] = [];
    const outgoing = new Outgoing(moved, there.parcel);
    const outputs = [Float32Array.of(6, 7), new Float32Array(COUNT), Float32Array.of(8)].map(
      (x): WireValue => ({
        type: "float32",
        dims: [x.length],
        data: outgoing.move(new Uint8Array(x.buffer)),
      }),
    );
    const numbers = (v: WireValue) => [
      ...new Float32Array((v as Data).data.slice().buffer).slice(0, 3),
    ];
    // outputs leave the feeds as they are
    assert.deepEqual([there.feeds["0"]!, there.feeds["2"]!].map(numbers), [[1, 2, 3], [5]]);
    assert.equal(moved.length, 1);
    // what stays in the worker is not sent away
    const { data } = there.feeds["0"] as Data;
    const others = spareBuffers(there, [new NumberTensor("float32", [3], data)]);
    assert.deepEqual(others, [(there.feeds["1"] as Data).data.buffer]);
    const back = spareBuffers(there, []);
    const here = structuredClone({ outputs, back }, { transfer: [...moved, ...back] });
    const tensors = here.outputs.map((v) => fromWireOutput(v, {}, owner) as Tensor);
    assert.deepEqual([...(tensors[0]!.data as Float32Array)], [6, 7]);
    assert.deepEqual([...(tensors[2]!.data as Float32Array)], [8]);
    // each has a buffer of its own, which a caller may transfer
    for (const { data: own } of tensors as { data: Float32Array }[])
      assert.equal(own.buffer.byteLength, own.byteLength);
  }
});

test("an output as large as the parcel has a buffer of its own", () => {
  const parcel = new Parcel();
  const feeds = [fed(new Tensor("float32", [], [0]), parcel)];
  const there = structuredClone(requestOf(feeds, parcel), { transfer: parcel.transfer });
  const moved: ArrayBuffer[] = [];
  const bytes = new Uint8Array(there.parcel!.buffer.byteLength).fill(1);
  const data = new Outgoing(moved, there.parcel).move(bytes);
  const output: WireValue = { type: "uint8", dims: [bytes.length], data };
  const back = spareBuffers(there, []);
  assert.equal(back.length, 1);
  const here = structuredClone({ output, back }, { transfer: [...moved, ...back] });
  const tensor = fromWireOutput(here.output, {}, owner) as Tensor;
  // the next run writes to the spare buffers
  for (const buffer of here.back) new Uint8Array(buffer).fill(2);
  assert.ok((tensor.data as Uint8Array).every((x) => x === 1));
});

test("tensors of a sequence are returned, and a shared buffer once", () => {
  const received = [fed([large(1), large(2)], new Parcel())];
  assert.equal(spareBuffers(requestOf([...received, ...received]), []).length, 2);
});

test("without a worker nothing is copied", () => {
  const x = large(1);
  assert.equal(
    (toWireFeed(x, "feed 'x'", owner) as Data).data.buffer,
    (x.data as Float32Array).buffer,
  );
});
