import assert from "node:assert/strict";
import { test } from "node:test";
import { pieces } from "../../src/worker/inference/operators/strings.ts";
import { NumberTensor, release, Sequence } from "../../src/worker/inference/values.ts";

const tensor = (x: number): NumberTensor => NumberTensor.of("int64", [], [x]);
const reader = { read: async () => new Uint8Array(0) };
const numbers = (s: Sequence): Promise<number[]> =>
  Promise.all(s.items.map(async (v) => (await (v as NumberTensor).numbers(reader))[0]!));

test("appending to a sequence leaves the original's length unchanged", async () => {
  const [a, b, c, d] = [1, 2, 3, 4].map(tensor) as [
    NumberTensor,
    NumberTensor,
    NumberTensor,
    NumberTensor,
  ];
  const one = new Sequence([a]);
  const two = one.withLast(b);
  const other = one.withLast(c); // an independent list
  const three = two.withLast(d);
  assert.deepEqual(await Promise.all([one, two, other, three].map(numbers)), [
    [1],
    [1, 2],
    [1, 3],
    [1, 2, 4],
  ]);
  assert.deepEqual([one.length, one.at(0), one.at(1), three.at(2)], [1, a, undefined, d]);
  const refs = (): number[] => [a, b, c, d].map((v) => v.refs - 1);
  assert.deepEqual(refs(), [2, 1, 1, 1]);
  release(two); // in the middle: the longer list still has all items
  assert.deepEqual(refs(), [2, 1, 1, 1]);
  release(three);
  assert.deepEqual(refs(), [2, 0, 1, 0]);
  const again = one.withLast(d);
  assert.deepEqual(await numbers(again), [1, 4]);
  for (const s of [one, again, other]) release(s);
  assert.deepEqual(refs(), [0, 0, 0, 0]);
});

test("an item is retained once when its sequence is appended to", async () => {
  const first = tensor(0);
  let s = new Sequence([first]);
  for (let i = 1; i < 1000; i++) {
    const longer = s.withLast(tensor(i));
    release(s);
    s = longer;
    assert.equal(first.refs, 2);
  }
  assert.deepEqual(
    await numbers(s),
    Array.from({ length: 1000 }, (_, i) => i),
  );
  release(s);
  assert.equal(first.refs, 1);
});

test("texts are split as in Python", () => {
  assert.deepEqual(pieces("  a b\t\u3000c \n", undefined, Infinity), ["a", "b", "c"]);
  assert.deepEqual(pieces(" \x1c\x85 ", undefined, Infinity), []);
  assert.deepEqual(pieces("a,,b,", ",", Infinity), ["a", "", "b", ""]);
  const gap = " ".repeat(300_000); // each space could start a match
  assert.deepEqual(pieces(`x ${gap}y`, undefined, 0), [`x ${gap}y`]);
});
