import assert from "node:assert/strict";
import { test } from "node:test";
import { ALL, Pace, Share, shares } from "../../src/shared/share.ts";
import { LAST, Turns } from "../../src/shared/turns.ts";

/** Turns of which the first is taken until `go`; the others write their names. */
function held() {
  const turns = new Turns();
  const done: string[] = [];
  let go = (): void => undefined;
  const first = turns.take(() => new Promise<void>((resolve) => (go = resolve)));
  const add = (name: string, order?: number) => turns.take(async () => void done.push(name), order);
  return { turns, done, add, first, go: () => go() };
}

test("of tasks that wait, those of a higher priority come first, equals as they came", async () => {
  const { done, add, first, go } = held();
  const all = [add("a"), add("b", 1), add("c", -1), add("d"), add("e", -1), add("f", LAST)];
  go();
  await Promise.all([first, ...all]);
  assert.deepEqual(done, ["c", "e", "a", "d", "b", "f"]);
});

test("a task has its turn however many of a higher priority follow", async () => {
  const { turns, done, add, first, go } = held();
  const slow = add("slow", 2);
  let fast = 0;
  // each adds the next before it ends, so that one of them always waits
  const more = (): Promise<void> =>
    turns.take(async () => {
      fast++;
      done.push("fast");
      if (fast < 100) void more();
    });
  const begun = more();
  go();
  await Promise.all([first, slow, begun]);
  assert.equal(done.indexOf("slow"), 8);
});

test("a task that fails affects no other, and one that finds nobody begins at once", async () => {
  const turns = new Turns();
  assert.ok(turns.idle);
  let begun = false;
  const failing = turns.take(async () => {
    begun = true;
    await undefined;
    throw new Error("wrong");
  });
  assert.ok(begun && !turns.idle);
  const next = turns.take(() => 5);
  await assert.rejects(failing, /wrong/);
  assert.equal(await next, 5);
  assert.ok(turns.idle);
});

test("work waits until it may go on, a call is aborted, or time is up", async () => {
  for (const end of ["set", "hurry", ""] as const) {
    const pace = new Pace();
    await pace.breathe();
    pace.set(true);
    let over = false;
    const wait = pace.breathe().then(() => (over = true));
    if (end) {
      await new Promise((resolve) => setTimeout(resolve, 1));
      if (end === "set") pace.set(false);
      else pace.hurry();
    }
    await wait;
    assert.ok(over);
  }
});

test("an engine looks at its share between steps, and gets time without one", () => {
  const cell = new Int32Array(new SharedArrayBuffer(4)).fill(ALL);
  const told: [number, number][] = [];
  const share = new Share((threads, steps) => told.push([threads, steps]));
  const last = () => told.at(-1)!;
  share.begin();
  assert.deepEqual(told, [], "outside of workers there is no cell");
  try {
    shares.cell = cell;
    share.begin();
    assert.deepEqual(told, [], "alone it has all threads, and runs to the end");
    Atomics.store(cell, 0, 2);
    share.begin();
    const [, steps] = last();
    assert.ok(last()[0] === 2 && steps > 0);
    // without a share: one thread, and of each wait about a twentieth of the time
    Atomics.store(cell, 0, 0);
    const begin = performance.now();
    let runs = 0;
    while (performance.now() - begin < 300) {
      share.turn();
      runs++;
    }
    assert.equal(last()[0], 1);
    assert.ok(runs >= 2, "it goes on by itself");
    for (let i = 0; i < 20; i++) {
      const until = performance.now() + 6;
      while (performance.now() < until);
      share.turn();
    }
    assert.equal(last()[1], 1, "slow steps are looked at one by one");
    Atomics.store(cell, 0, ALL);
    share.turn();
    assert.deepEqual(last(), [ALL, 0]);
  } finally {
    shares.cell = undefined;
  }
});
