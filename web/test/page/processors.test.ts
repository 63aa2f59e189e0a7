import assert from "node:assert/strict";
import { test } from "node:test";
import { Client } from "../../src/page/client.ts";
import { pipeline } from "../../src/page/pipeline.ts";
import { type Claim, divided } from "../../src/page/processors.ts";
import { platform } from "../../src/shared/platform.ts";
import { type Level, levelOf, PRIORITIES, USUAL } from "../../src/shared/priority.ts";
import { SilentWorker, withSilentWorkers } from "../common/silent-worker.ts";

/** Claims written as [level, threads]. */
const claims = (...all: [Level, number][]): Claim[] =>
  all.map(([level, threads]) => ({ level, threads }));

test("processors are divided among equals, and what one does not need among the others", () => {
  assert.deepEqual(divided([], 4), []);
  assert.deepEqual(divided(claims([1, 2]), 2), [2]);
  assert.deepEqual(divided(claims([1, 2], [1, 2]), 2), [1, 1]);
  assert.deepEqual(divided(claims([1, 8], [1, 8]), 8), [4, 4]);
  assert.deepEqual(divided(claims([1, 8], [1, 1], [1, 8]), 8), [3, 1, 4]);
  assert.deepEqual(divided(claims([1, 4], [1, 4], [1, 4]), 2), [1, 1, 1]);
});

test("work of a lower priority gets what is left, and in the background not the page's", () => {
  assert.deepEqual(divided(claims([2, 2], [1, 2]), 2), [0, 2]);
  assert.deepEqual(divided(claims([1, 4], [0, 2]), 4), [2, 2]);
  assert.deepEqual(divided(claims([1, 4], [0, 4], [2, 4]), 4), [0, 4, 0]);
  assert.deepEqual(divided(claims([2, 4]), 4), [3]);
  assert.deepEqual(divided(claims([2, 2]), 1), [1]);
  assert.deepEqual(divided(claims([2, 2], [2, 2], [1, 1]), 2), [0, 0, 1]);
  assert.deepEqual(divided(claims([2, 2], [2, 2]), 1), [1, 1]);
  assert.deepEqual(divided(claims([0, 1], [2, 4]), 4), [1, 2]);
  assert.deepEqual(divided(claims([0, 3], [2, 4], [2, 4], [2, 4]), 4), [3, 0, 0, 0]);
  assert.deepEqual(divided(claims([0, 3], [1, 4], [1, 4], [1, 4]), 6), [3, 1, 1, 1]);
  assert.deepEqual(divided(claims([0, 3], [1, 1], [2, 4], [2, 4]), 6), [3, 1, 0, 1]);
});

test("the highest priority runs, and more threads than one where there are processors", () => {
  let seed = 7;
  const draw = (n: number) => (seed = (seed * 16807) % 2147483647) % n;
  for (let round = 0; round < 2000; round++) {
    const all = Array.from({ length: 1 + draw(6) }, () => ({
      level: draw(3) as Level,
      threads: 1 + draw(8),
    }));
    const processors = 1 + draw(16);
    const shares = divided(all, processors);
    const top = Math.min(...all.map((one) => one.level));
    all.forEach(({ level, threads }, i) => {
      assert.ok(shares[i]! >= (level === top ? 1 : 0) && shares[i]! <= threads);
    });
    const sum = shares.reduce((a, b) => a + b, 0);
    const first = all.filter(({ level }) => level === top).length;
    assert.ok(sum <= Math.max(processors, first));
    if (top < 2 && shares.some((share, i) => share && all[i]!.level === 2))
      assert.ok(sum < processors, "one is the page's");
    // equals with as many threads differ by one at most, and nobody is worse off than one below
    for (const [i, one] of all.entries())
      for (const [j, other] of all.entries())
        if (one.level === other.level && one.threads === other.threads)
          assert.ok(Math.abs(shares[i]! - shares[j]!) <= 1);
        else if (one.level < other.level && shares[j]) assert.ok(shares[i]! > 0);
  }
});

test("only the names of priorities are priorities", async () => {
  PRIORITIES.forEach((name, i) => {
    assert.equal(levelOf(name, USUAL), i);
  });
  assert.equal(levelOf(undefined, USUAL), USUAL);
  assert.equal(levelOf(null, USUAL), USUAL);
  const wrong = [
    "",
    "high",
    "User-Visible",
    "length",
    "0",
    0,
    1,
    Number.NaN,
    true,
    {},
    [],
    () => 1,
  ];
  for (const one of [...wrong, ["background"], Symbol("a"), { toString: () => "background" }]) {
    assert.throws(() => levelOf(one, USUAL), {
      name: "InputError",
      message: /options\.priority: .*'user-blocking', 'user-visible', 'background'/s,
    });
    await assert.rejects(pipeline("text-generation", "m.edge", { priority: one as never }), {
      name: "InputError",
      message: /options\.priority/,
    });
  }
});

/** A worker whose engine has so many threads, and its share of the processors. */
function opened(threads: number, priority?: (typeof PRIORITIES)[number]) {
  const client = new Client("worker.js", priority);
  const worker = SilentWorker.made.at(-1)!;
  worker.answer({ started: true });
  worker.answer({ threads });
  const started = worker.sent.find((m) => m.start)!.start as { share: SharedArrayBuffer };
  const cell = new Int32Array(started.share);
  const run = (priority?: (typeof PRIORITIES)[number], signal?: AbortSignal) => {
    const call = client.call("inference_read", { id: 1 }, { priority, signal });
    const { id } = worker.sent.findLast((m) => m.method)!;
    return { call, end: () => worker.answer({ id, value: 0 }), sent: worker.sent.at(-1)! };
  };
  return { client, worker, run, share: () => Math.min(threads, Atomics.load(cell, 0)) };
}

/** Time after which a worker without calls claims no processors. */
const rested = () => new Promise((resolve) => setTimeout(resolve, 20));

test("workers that compute at the same time get the processors by their priorities", () =>
  withSilentWorkers(async () => {
    const before = platform().cores;
    platform().cores = 4;
    const [a, b, c] = [opened(4), opened(4), opened(4, "background")];
    try {
      const first = a.run();
      assert.deepEqual([a.share(), b.share(), c.share()], [4, 4, 4]); // those that load
      const second = b.run();
      assert.deepEqual([a.share(), b.share()], [2, 2]);
      const third = c.run();
      assert.deepEqual([a.share(), b.share(), c.share()], [2, 2, 0]);
      second.end();
      const next = b.run(); // the processors stay divided
      assert.deepEqual([a.share(), c.share()], [2, 0]);
      next.end();
      await rested();
      assert.deepEqual([a.share(), c.share()], [4, 0]);
      const urgent = c.run("user-blocking");
      assert.deepEqual([a.share(), c.share()], [0, 4]);
      assert.equal(urgent.sent.order, -2);
      urgent.end();
      await rested();
      assert.deepEqual([a.share(), c.share()], [4, 0]);
      // a call that was aborted ends soon, and what ends leaves its part to the others
      const stop = new AbortController();
      const fourth = c.run(undefined, stop.signal);
      stop.abort();
      assert.deepEqual([a.share(), c.share()], [0, 4]);
      fourth.end();
      await assert.rejects(async () => {
        const refused = fourth.call;
        stop.abort();
        await refused;
        throw new Error("answered");
      }, /answered/);
      await rested();
      assert.equal(a.share(), 4);
      first.end();
      await rested();
      assert.equal(c.share(), 3);
      third.end();
      await Promise.all([first.call, second.call, third.call, urgent.call]);
    } finally {
      platform().cores = before;
      for (const { client, worker } of [a, b, c]) {
        client.end();
        worker.answer({ ended: true });
      }
    }
  }));

test("a run that rests, and calls on a GPU, leave processors to others", () =>
  withSilentWorkers(async () => {
    const before = platform().cores;
    platform().cores = 4;
    const [a, b] = [opened(4, "user-blocking"), opened(4)];
    try {
      let rests = false;
      const first = a.client.call("train_fit", { model: 1 }, { rests: () => rests });
      const { id } = a.worker.sent.at(-1)!;
      const pause = (paused: boolean): void => {
        rests = paused;
        void a.client.call("train_pause", { model: 1, paused });
        a.worker.answer({ id: a.worker.sent.at(-1)!.id, value: undefined });
      };
      const second = b.run();
      assert.equal(b.share(), 0);
      pause(true);
      await rested();
      assert.equal(b.share(), 4);
      pause(false);
      assert.deepEqual([a.share(), b.share()], [4, 0]);
      // its engine is closed, and another one is beside a GPU, which is lost later
      a.worker.answer({ threads: 0 });
      assert.equal(b.share(), 3);
      a.worker.answer({ threads: 4 });
      assert.equal(b.share(), 0);
      a.worker.answer({ id, value: 0 });
      second.end();
      await Promise.all([first, second.call]);
    } finally {
      platform().cores = before;
      for (const { client, worker } of [a, b]) {
        client.end();
        worker.answer({ ended: true });
      }
    }
  }));

test("an aborted run that rests ends soon", () =>
  withSilentWorkers(async () => {
    const { client, worker, share } = opened(4, "background");
    const other = opened(4, "user-blocking");
    const before = platform().cores;
    platform().cores = 4;
    try {
      void other.run().call.catch(() => undefined);
      const stop = new AbortController();
      const { signal } = stop;
      const run = client.call("train_fit", { model: 1 }, { signal, rests: () => true });
      await rested();
      stop.abort();
      assert.equal(share(), 2);
      worker.answer({ id: worker.sent.findLast((m) => m.method)!.id, value: 0 });
      await run;
    } finally {
      platform().cores = before;
      for (const one of [{ client, worker }, other]) {
        one.client.end();
        one.worker.answer({ ended: true });
      }
    }
  }));

test("a claim ends without timers, which hidden pages have late", (t) =>
  withSilentWorkers(async () => {
    const before = platform().cores;
    platform().cores = 4;
    const [a, b] = [opened(4, "user-blocking"), opened(4)];
    try {
      t.mock.method(globalThis, "setTimeout", () => 1);
      let now = performance.now();
      t.mock.method(performance, "now", () => now);
      const second = b.run();
      a.run().end();
      assert.equal(b.share(), 0);
      now += 3;
      b.worker.answer({ id: 1000, text: "a", end: false });
      assert.equal(b.share(), 0);
      now += 2;
      b.worker.answer({ id: 1000, text: "b", end: false });
      assert.equal(b.share(), 4);
      (globalThis as { document?: unknown }).document = { hidden: true };
      a.run().end();
      assert.equal(b.share(), 4);
      second.end();
      await second.call;
    } finally {
      delete (globalThis as { document?: unknown }).document;
      t.mock.restoreAll();
      platform().cores = before;
      for (const { client, worker } of [a, b]) {
        client.end();
        worker.answer({ ended: true });
      }
    }
  }));

test("a worker without shared memory is told to wait, and to go on", () =>
  withSilentWorkers(async () => {
    const { cores: before, isolated } = platform();
    Object.assign(platform(), { cores: 1, isolated: false });
    const make = (priority?: (typeof PRIORITIES)[number]) => {
      const client = new Client("worker.js", priority);
      return { client, worker: SilentWorker.made.at(-1)! };
    };
    const [slow, fast] = [make("background"), make()];
    try {
      const long = slow.client.call("inference_read", { id: 1 });
      const told = () => slow.worker.sent.flatMap((m) => ("waits" in m ? [m.waits] : []));
      assert.deepEqual(told(), []);
      const short = fast.client.call("inference_read", { id: 1 });
      assert.deepEqual(told(), [true]);
      // files are read by the way
      const opening = fast.client.call("inference_open", {} as never);
      fast.worker.answer({ id: fast.worker.sent.at(-2)!.id, value: 0 });
      await short;
      await rested();
      assert.deepEqual(told(), [true, false]);
      void opening.catch(() => undefined);
      const again = fast.client.call("inference_read", { id: 1 });
      assert.deepEqual(told(), [true, false, true]);
      void again.catch(() => undefined);
      fast.client.end(); // with a call that nobody answers
      assert.deepEqual(told(), [true, false, true, false]);
      void long.catch(() => undefined);
    } finally {
      Object.assign(platform(), { cores: before, isolated });
      for (const { client, worker } of [slow, fast]) {
        client.end();
        worker.answer({ ended: true });
      }
    }
  }));
