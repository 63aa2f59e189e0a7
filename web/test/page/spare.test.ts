import assert from "node:assert/strict";
import { test } from "node:test";
import { toWireFeed } from "../../src/page/inference/convert.ts";
import { SpareBuffers } from "../../src/page/inference/spare.ts";
import { Tensor } from "../../src/page/tensor.ts";
import type { WireValue } from "../../src/protocol/inference.ts";
import { MIN_SPARE, spareBuffers } from "../../src/worker/inference/spare.ts";
import { NumberTensor } from "../../src/worker/inference/values.ts";

const COUNT = MIN_SPARE / 4;
const owner = {
  read: () => Promise.reject(new Error("nothing is read here")),
  drop: () => undefined,
};
const large = (value: number): Tensor =>
  new Tensor("float32", new Float32Array(COUNT).fill(value), [COUNT]);
type Data = Extract<WireValue, { data: unknown }>;

/** The part of the feeds that the worker returns after a transfer. */
function cross(feeds: readonly Tensor[], spare: SpareBuffers): ArrayBuffer[] {
  const transfer: Transferable[] = [];
  const sent = feeds.map((x) => toWireFeed(x, "feed 'x'", owner, transfer, spare));
  const back = spareBuffers(structuredClone(sent, { transfer: transfer as ArrayBuffer[] }), []);
  return structuredClone(back, { transfer: back });
}

test("a feed is copied into the buffer of the previous run's feed", () => {
  const spare = new SpareBuffers();
  const back = cross([large(1), large(2)], spare);
  assert.equal(back.length, 2);
  spare.renew(back);
  const transfer: Transferable[] = [];
  const [a, b, c] = [3, 4, 5].map(
    (x) => toWireFeed(large(x), "feed 'x'", owner, transfer, spare) as Data,
  );
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
  assert.deepEqual(transfer, [a!.data.buffer, b!.data.buffer, c!.data.buffer]);
});

test("buffers of other sizes and of earlier runs are released", () => {
  const spare = new SpareBuffers();
  const [first] = cross([large(1)], spare);
  spare.renew([first!]);
  const wider = new Tensor("float32", new Float32Array(2 * COUNT), [2 * COUNT]);
  spare.renew(cross([wider], spare));
  assert.notEqual((toWireFeed(large(1), "feed 'x'", owner, [], spare) as Data).data.buffer, first);
});

test("tensors in the worker, small feeds and parts of buffers are not returned", () => {
  const received = [toWireFeed(large(1), "feed 'x'", owner, [])];
  const { data } = received[0] as Data;
  assert.deepEqual(spareBuffers(received, [new NumberTensor("float32", [1, COUNT], data)]), []);
  assert.deepEqual(
    spareBuffers(received, [new NumberTensor("float32", [4], data.subarray(16, 32))]),
    [],
  );
  assert.deepEqual(
    spareBuffers(
      [
        { type: "float32", dims: [COUNT - 1], data: data.subarray(4) },
        null,
        { type: "float32", dims: [], pinned: 3 },
      ],
      [],
    ),
    [],
  );
  assert.deepEqual(
    cross([new Tensor("float32", new Float32Array(4), [4])], new SpareBuffers()),
    [],
  );
});

test("tensors of a sequence are returned, and a shared buffer once", () => {
  const received = [toWireFeed([large(1), large(2)], "feed 'x'", owner, [])];
  assert.equal(spareBuffers([...received, ...received], []).length, 2);
});

test("without a worker nothing is copied", () => {
  const x = large(1);
  assert.equal(
    (toWireFeed(x, "feed 'x'", owner, undefined, new SpareBuffers()) as Data).data.buffer,
    (x.data as Float32Array).buffer,
  );
});
