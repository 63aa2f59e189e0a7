import assert from "node:assert/strict";
import { test } from "node:test";
import { Client } from "../../src/page/client.ts";
import { env } from "../../src/page/env.ts";
import { pipeline } from "../../src/page/pipeline.ts";
import {
  InterruptableStoppingCriteria,
  interruptible,
  StoppingCriteriaList,
} from "../../src/page/stopping.ts";
import { Aborted } from "../../src/shared/errors.ts";
import { checkFunction } from "../../src/shared/inputs.ts";
import { setStallTimeout } from "../../src/shared/watchdog.ts";
import { InlineSession } from "../../src/worker/inline.ts";
import { SilentWorker, withSilentWorkers } from "../common/silent-worker.ts";

test("the result of an aborted call is passed to its cleanup function", () =>
  withSilentWorkers(async () => {
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
  }));

/** A generation that a criterion can interrupt, in a worker that does not answer by itself. */
function interruptibleCall(signal?: AbortSignal) {
  const client = new Client("worker.js");
  const worker = SilentWorker.made.at(-1)!;
  worker.answer({ started: true });
  const criterion = new InterruptableStoppingCriteria();
  const list = new StoppingCriteriaList();
  list.extend([criterion]);
  const call = interruptible(list, (interrupt) =>
    client.call("generate", {} as never, { signal, interrupt }),
  );
  const { id } = worker.sent.at(-1)!;
  const end = (): void => {
    client.end();
    worker.answer({ ended: true });
  };
  return { criterion, call, end, answer: (value: unknown) => worker.answer({ id, value }) };
}

test("an interrupted call resolves with a late answer", () =>
  withSilentWorkers(async () => {
    const { criterion, call, end, answer } = interruptibleCall(new AbortController().signal);
    criterion.interrupt();
    setTimeout(() => answer("so far"), 400);
    assert.equal(await call, "so far");
    end();
  }));

test("a signal aborts a call that was interrupted and gets no answer", () =>
  withSilentWorkers(async () => {
    const abort = new AbortController();
    const { criterion, call, end } = interruptibleCall(abort.signal);
    criterion.interrupt();
    abort.abort("enough");
    await assert.rejects(call, (e) => e instanceof Aborted && e.what === "enough");
    end();
  }));

test("an interrupted call that gets no answer ends after env.stallTimeout", () =>
  withSilentWorkers(async () => {
    const before = env.stallTimeout;
    env.stallTimeout = 50;
    try {
      const { criterion, call, end } = interruptibleCall();
      criterion.interrupt();
      await assert.rejects(call, (e) => e instanceof Aborted && /interrupted/.test(e.what));
      end();
    } finally {
      env.stallTimeout = before;
      setStallTimeout(before);
    }
  }));

test("only criteria that can be interrupted are taken, alone or in lists", async () => {
  const list = new StoppingCriteriaList();
  list.push((() => [true]) as never);
  for (const wrong of [5, () => [true], [5], list])
    await assert.rejects(
      interruptible(wrong, async () => 1),
      /options\.stopping_criteria: it is no Inter/,
    );
  for (const none of [undefined, null, [], new StoppingCriteriaList()])
    assert.equal(await interruptible(none, async () => 1), 1);
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
