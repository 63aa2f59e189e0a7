// This file is also the script of the thread at the other end.

import assert from "node:assert/strict";
import { test as register } from "node:test";
import { fileURLToPath } from "node:url";
import { isMainThread, parentPort, Worker, workerData } from "node:worker_threads";
import { Line } from "../../src/shared/line.ts";

interface Request {
  value: unknown;
  big?: boolean;
}

/** Answers calls of the line, and counts messages. */
function serve(): void {
  const line = new Line(workerData as SharedArrayBuffer);
  let received = 0;
  parentPort!.on("message", () => {
    received++;
    line.received();
  });
  const listen = () => {
    for (let calls = 0; calls < 20; calls++) {
      const call = line.next();
      if (!call) break;
      const { value, big } = call.request as Request;
      line.answer(
        big ? { data: new Uint8Array(1 << 17) } : { id: call.id, value, received },
        calls < 19,
      );
    }
    setTimeout(listen, 1);
  };
  listen();
}

const test: typeof register = isMainThread ? register : ((() => undefined) as never);
if (!isMainThread) serve();

function opened() {
  const line = new Line();
  const thread = new Worker(fileURLToPath(import.meta.url), { workerData: line.memory });
  /** Calls by the line, as soon as the thread waits; `then` follows at once. */
  const call = async (id: number, request: Request, then?: () => void): Promise<unknown> => {
    for (let i = 0; i < 5000; i++) {
      const answer = line.call(id, request);
      if (answer) {
        then?.();
        return answer;
      }
      await new Promise((resolve) => {
        setTimeout(resolve, 1);
      });
    }
    throw new Error("the thread does not wait");
  };
  return { line, thread, call };
}

test("calls are answered by the line, in order with messages", { timeout: 60_000 }, async () => {
  const { line, thread, call } = opened();
  try {
    const data = Uint8Array.of(1, 2, 3);
    const value = { x: { type: "uint8", dims: [3], data }, names: ["\u00e4", "\u{1f600}"] };
    for (let id = 1; id < 100; id++) {
      const answer = await call(id, { value });
      assert.deepEqual(answer, { id, value, received: 0 });
    }
    assert.deepEqual(data, Uint8Array.of(1, 2, 3));
    // a wait that ends before the answer is there goes on
    const wake = () => void Atomics.notify(new Int32Array(line.memory), 1);
    for (let id = 1; id < 100; id++)
      assert.deepEqual(await call(id, { value: id }, wake), { id, value: id, received: 0 });
    // a call after a message never comes before it
    for (let sent = 1; sent < 20; sent++) {
      line.sending();
      thread.postMessage({});
      const { received } = (await call(sent, { value: 1 })) as { received: number };
      assert.equal(received, sent);
    }
    // nor before one that was sent while the call before was on its way
    const message = () => {
      line.sending();
      thread.postMessage({});
    };
    for (let sent = 20; sent < 40; sent++) {
      await call(sent, { value: 1 }, message);
      const { received } = (await call(sent, { value: 1 })) as { received: number };
      assert.equal(received, sent);
    }
    // what has no room is left to a message
    assert.equal(await call(200, { value: 1, big: true }), undefined);
    assert.deepEqual(await call(201, { value: 2 }), { id: 201, value: 2, received: 39 });
  } finally {
    await thread.terminate();
  }
});

test("a call waits for the call and the messages before it", async () => {
  const page = new Line();
  const worker = new Line(page.memory);
  const ready = () => worker.answer(undefined, true); // the worker is about to wait
  ready();
  const first = page.call(1, { value: 1 });
  assert.ok(first);
  assert.equal(page.call(2, { value: 0 }), undefined); // the first one is not answered
  page.sending();
  // the first call was made before the message
  assert.deepEqual(worker.next(), { id: 1, request: { value: 1 } });
  worker.answer({ value: 2 }, true);
  assert.deepEqual(await first, { value: 2 });
  assert.equal(page.call(2, { value: 3 }), undefined);
  assert.equal(worker.next(), undefined);
  // a worker that waits, but did not see yet that there is a message
  new Int32Array(page.memory)[0] = 1;
  assert.equal(page.call(2, { value: 3 }), undefined);
  worker.next();
  worker.received();
  ready();
  assert.ok(page.call(2, { value: 3 }));
  assert.deepEqual(worker.next(), { id: 2, request: { value: 3 } });
});

test("feeds may have the names of a tensor's fields", async () => {
  const page = new Line();
  const worker = new Line(page.memory);
  const of = (...bytes: number[]) => ({
    type: "uint8",
    dims: [bytes.length],
    data: Uint8Array.from(bytes),
  });
  const feeds = {
    dims: of(1, 2),
    data: of(3),
    type: { sequence: [of(), of(4, 5, 6)] },
    strings: { type: "string", dims: [1], strings: ["dims"] },
  };
  for (const request of [{ feeds }, { feeds: { data: { sequence: [feeds] }, dims: null } }]) {
    worker.answer(undefined, true);
    const answer = page.call(1, request);
    assert.deepEqual(worker.next(), { id: 1, request });
    worker.answer({ values: [feeds.dims] }, false);
    assert.deepEqual(await answer, { values: [feeds.dims] });
  }
});

test("what cannot be sent by the line is not", { timeout: 60_000 }, async () => {
  const { line, thread, call } = opened();
  try {
    await call(1, { value: 1 });
    for (const value of [5n, new Map([[1, 2]]), new Uint8Array(1 << 17), new ArrayBuffer(8)]) {
      for (let i = 0; i < 20; i++) {
        assert.equal(line.call(2, { value }), undefined);
        await new Promise((resolve) => {
          setTimeout(resolve, 1);
        });
      }
    }
    assert.deepEqual(await call(3, { value: 2 }), { id: 3, value: 2, received: 0 });
  } finally {
    await thread.terminate();
  }
});
