import assert from "node:assert/strict";
import { test } from "node:test";
import { Snapshot } from "../../src/worker/compiler/snapshot.ts";

const PAGE = 1024;

/** A memory of 5 pages: zeros, 1 (left out), 2, zeros, 3. */
function packed(sum: number): Uint8Array<ArrayBuffer> {
  const runs = [1, 1, 1, 2, 1, 0, 4, 1, 0];
  const numbers = [4 * (6 + runs.length), 8, 5 * PAGE, 4 * PAGE, sum, runs.length / 3, ...runs];
  const bytes = new Uint8Array(4 * numbers.length + 8 + 2 * PAGE);
  bytes.set(new Uint8Array(Uint32Array.from(numbers).buffer));
  bytes.fill(9, 4 * numbers.length, 4 * numbers.length + 8);
  bytes.fill(2, 4 * numbers.length + 8, bytes.length - PAGE);
  bytes.fill(3, bytes.length - PAGE);
  return bytes;
}

const SUM = Math.imul(PAGE / 4, 0x01010101) >>> 0;

/** A stream of the bytes in pieces. */
const arriving = (bytes: Uint8Array, piece: number): ReadableStream<Uint8Array> =>
  new ReadableStream({
    start(queue) {
      for (let at = 0; at < bytes.length; at += piece) queue.enqueue(bytes.slice(at, at + piece));
      queue.close();
    },
  });

/** A new memory: its second page is that of every Pyodide, its first has something else. */
function memory(): Uint8Array {
  const made = new Uint8Array(6 * PAGE);
  made.fill(7, 0, PAGE);
  made.fill(1, PAGE, 2 * PAGE);
  return made;
}

test("a snapshot restores the pages of a memory, however it arrives", async () => {
  const expected = [0, 1, 2, 0, 3, 0].flatMap((x) => Array<number>(PAGE).fill(x));
  for (const piece of [1, 7, PAGE, 1 << 20]) {
    const snapshot = new Snapshot(arriving(packed(SUM), piece));
    assert.deepEqual([...(await snapshot.head())], Array(8).fill(9));
    assert.equal(await snapshot.size(), 5 * PAGE);
    const restored = memory();
    await snapshot.restore(restored);
    assert.deepEqual([...restored], expected);
  }
});

test("a snapshot does not restore the memory of another Pyodide", async () => {
  const other = memory();
  other[PAGE]!++;
  await assert.rejects(
    new Snapshot(arriving(packed(SUM), PAGE)).restore(other),
    /the memory is that of another Pyodide/,
  );
});

test("a snapshot that is cut or none is an error", async () => {
  const whole = packed(SUM);
  const cut = new Snapshot(arriving(whole.subarray(0, whole.length - 1), PAGE));
  await cut.head();
  await assert.rejects(cut.restore(memory()), /ends early/);
  await assert.rejects(new Snapshot(arriving(whole.subarray(0, 40), PAGE)).head(), /ends early/);
  const none = new Uint8Array(100).fill(5);
  await assert.rejects(new Snapshot(arriving(none, PAGE)).head(), /not a snapshot/);
});
