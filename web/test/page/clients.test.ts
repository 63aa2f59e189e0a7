import assert from "node:assert/strict";
import { test } from "node:test";
import { Client } from "../../src/page/client.ts";
import { pipeline } from "../../src/page/pipeline.ts";
import { Aborted } from "../../src/shared/errors.ts";
import { checkFunction } from "../../src/shared/inputs.ts";
import { InlineSession } from "../../src/worker/inline.ts";

/** What a page sends to a worker. */
interface Sent {
  id?: number;
  method?: string;
  abort?: boolean;
}

/** A worker with answers given by the test. */
class SilentWorker {
  static made: SilentWorker[] = [];
  readonly sent: Sent[] = [];
  onmessage: ((e: { data: unknown }) => void) | undefined;
  constructor() {
    SilentWorker.made.push(this);
  }
  postMessage(message: Sent): void {
    this.sent.push(message);
  }
  terminate(): void {}
  answer(data: unknown): void {
    this.onmessage!({ data });
  }
}

test("the result of an aborted call is passed to its cleanup function", async () => {
  const before = globalThis.Worker;
  globalThis.Worker = SilentWorker as unknown as typeof Worker;
  try {
    const client = new Client("worker.js");
    const worker = SilentWorker.made.at(-1)!;
    worker.answer({ started: true });
    const late: unknown[] = [];
    const onLate = (value: unknown) => void late.push(value);
    const abort = new AbortController();
    const call = client.call("inference_read", { id: 5 }, { signal: abort.signal, onLate });
    const { id } = worker.sent.find((m) => m.method === "inference_read")!;
    abort.abort();
    await assert.rejects(call, Aborted);
    assert.ok(!client.idle);
    worker.answer({ id, value: [{ type: "float32", dims: [1], pinned: 3 }] });
    worker.answer({ id, value: "again" });
    assert.deepEqual(late, [[{ type: "float32", dims: [1], pinned: 3 }]]);

    const intime = client.call("inference_read", { id: 6 }, { onLate });
    const bytes = Uint8Array.of(7);
    worker.answer({ id: worker.sent.at(-1)!.id, value: bytes });
    assert.equal(await intime, bytes);
    assert.equal(late.length, 1);

    const sent = worker.sent.length;
    const wrong = client.call("inference_read", { id: 8 }, { signal: 5 as never });
    await assert.rejects(wrong, {
      name: "InputError",
      message: /options\.signal: it is no signal/,
    });
    assert.equal(worker.sent.length, sent);

    const stopped = new AbortController();
    const long = client.call("inference_read", { id: 7 }, { signal: stopped.signal });
    stopped.abort();
    await assert.rejects(long, Aborted);
    assert.ok(!client.idle, "the worker is in the middle of a step");
    worker.answer({ id: worker.sent.findLast((m) => m.method)!.id, error: { name: "Aborted" } });
    assert.ok(client.idle);
    client.end();
    worker.answer({ ended: true });
  } finally {
    globalThis.Worker = before;
  }
});

test("aborting a session without a worker while it opens rejects immediately", async () => {
  const abort = new AbortController();
  const session = new InlineSession(30_000);
  const silent = new Blob([new Uint8Array(8)]);
  // a file that never responds
  silent.slice = () => ({ text: () => new Promise(() => undefined) }) as unknown as Blob;
  const request = { model: silent, external: {}, urls: {}, cache: false } as never;
  const opening = session.call("inference_open", request, abort.signal, undefined);
  setTimeout(() => abort.abort(), 20);
  const answer = await opening;
  assert.ok("error" in answer && answer.error.name === "Aborted", JSON.stringify(answer));
  session.end();
});

test("callbacks are functions, and null stands for none", async () => {
  for (const none of [undefined, null, () => 0]) checkFunction("streamer", none);
  for (const wrong of [5, 0, false, "", {}])
    assert.throws(() => checkFunction("streamer", wrong), /options\.streamer: it is no function/);
  for (const task of ["text-classification", "text-to-image"] as const)
    await assert.rejects(pipeline(task, "x/", { progress_callback: 5 as never }), {
      name: "InputError",
      message: /options\.progress_callback: it is no function/,
    });
});
