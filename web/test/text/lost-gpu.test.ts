import assert from "node:assert/strict";
import { test } from "node:test";
import { EngineError } from "../../src/shared/errors.ts";
import { FakeDevice, fakeModel } from "../common/fake-trainer.ts";

/** A model with two sequences, whose GPU was lost. */
async function lost() {
  const fate = { runs: [], opened: 0 };
  const model = fakeModel(fate);
  const { decoder } = model;
  const [one, other] = [decoder.open(), decoder.open()];
  await decoder.forward(one, [1, 2, 3]);
  await decoder.forward(other, [4, 5]);
  const { device } = model as unknown as { device: { lost: unknown } };
  device.lost = new EngineError("the GPU was lost");
  return { fate, decoder, one, other };
}

test("sequences go on after their GPU was lost", async () => {
  const { fate, decoder, one, other } = await lost();
  await decoder.forward(one, [6]);
  assert.deepEqual([one.ids, other.ids, fate.opened], [[1, 2, 3, 6], [4, 5], 2]);
});

test("the signal of a call ends the loading of weights", async () => {
  const { fate, decoder, one } = await lost();
  decoder.signal = AbortSignal.abort();
  await assert.rejects(decoder.forward(one, [6]), { name: "AbortError" });
  decoder.signal = undefined; // of the next call
  await decoder.forward(one, [6]);
  assert.deepEqual([one.ids, fate.opened], [[1, 2, 3, 6], 3]);
});

test("sequences keep their tokens where another device fails", async (t) => {
  const { decoder, one, other } = await lost();
  const { register } = FakeDevice.prototype;
  let calls = 0;
  t.mock.method(FakeDevice.prototype, "register", () => {
    if (++calls === 4) throw new EngineError("as if");
    return register();
  });
  await assert.rejects(decoder.forward(one, [6]), /as if/);
  await decoder.forward(other, [6]);
  assert.deepEqual([one.ids, one.past, other.ids, other.past], [[1, 2, 3], 3, [4, 5, 6], 3]);
});
