import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { Aborted } from "../../src/shared/errors.ts";
import { ALL, Pace, Share, shares } from "../../src/shared/share.ts";
import { LAST, Turns } from "../../src/shared/turns.ts";
import { Scope } from "../../src/worker/calls.ts";
import { trainingMethods } from "../../src/worker/sessions/training.ts";

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

test("a task that waits is given up at once where its signal fires", async () => {
  const { turns, done, add, first, go } = held();
  const stop = new AbortController();
  const later = add("later");
  const given = turns.take(async () => void done.push("given up"), 0, stop.signal);
  stop.abort("enough");
  await assert.rejects(given, (e) => e instanceof Aborted && e.what === "enough");
  await assert.rejects(
    turns.take(() => 1, 0, stop.signal),
    Aborted,
  );
  go();
  await Promise.all([first, later]);
  assert.deepEqual(done, ["later"]);
  // one that runs is not ended here
  const runs = new AbortController();
  const running = turns.take(() => Promise.resolve(5), 0, runs.signal);
  runs.abort();
  assert.equal(await running, 5);
});

test("the place behind those that wait comes before later ones, and before the last", async () => {
  const { turns, done, add, first, go } = held();
  const all = [add("a"), add("c", 1), add("last", LAST), add("b")];
  all.push(add("behind", turns.behind), add("d", 1));
  go();
  await Promise.all([first, ...all]);
  assert.deepEqual(done, ["a", "b", "c", "behind", "d", "last"]);
  const next = held();
  const both = [next.add("behind", next.turns.behind), next.add("a", -2)];
  next.go();
  await Promise.all([next.first, ...both]);
  assert.deepEqual(next.done, ["behind", "a"]);
});

test("calls of a trainer wait with their priority", () => {
  const scope = new Scope(() => undefined);
  const orders: (number | undefined)[] = [];
  scope.turn = (_id, _work, order) => {
    orders.push(order);
    return new Promise(() => undefined);
  };
  const methods = trainingMethods(scope);
  const { signal } = new AbortController();
  const call = { signal, order: 1, send: () => undefined, move: () => undefined };
  for (const name of ["train", "train_estimate", "train_step", "train_evaluate"] as const)
    void methods[name]({ model: 1 } as never, call);
  assert.deepEqual(orders, [1, 1, 1, 1]);
});

/** Time that passes only where a test says so; waits of engines take as long as they may. */
function fakeClock(t: TestContext) {
  const clock = { now: 1000, waited: 0 };
  t.mock.method(performance, "now", () => clock.now);
  t.mock.method(Atomics, "wait", (cell: Int32Array, at: number, value: number, ms: number) => {
    if (Atomics.load(cell, at) !== value) return "not-equal";
    clock.now += ms;
    clock.waited += ms;
    return "timed-out";
  });
  return clock;
}

/** Timers of the fake clock; `pass` lets time pass, and what waits for it go on. */
function fakeTimers(t: TestContext) {
  const clock = fakeClock(t);
  const timers = new Map<number, () => void>();
  let next = 0;
  t.mock.method(globalThis, "setTimeout", (f: () => void, ms: number) => {
    const [id, until] = [++next, clock.now + ms];
    timers.set(id, () => clock.now >= until && timers.delete(id) && f());
    return id;
  });
  t.mock.method(globalThis, "clearTimeout", (id: number) => void timers.delete(id));
  const pass = async (ms: number): Promise<void> => {
    clock.now += ms;
    for (const timer of [...timers.values()]) timer();
    await new Promise((resolve) => setImmediate(resolve));
  };
  return { clock, pass, waiting: () => timers.size };
}

for (const end of ["set", "hurry", ""] as const)
  test(`work waits 19 times as long as it took, ${end || "at most"}`, async (t) => {
    const { pass, waiting } = fakeTimers(t);
    const pace = new Pace();
    await pass(5000);
    pace.begin(); // the time before was no work
    pace.set(true);
    await pass(20);
    const over: string[] = [];
    const waits = ["a", "b"].map((name) => pace.wait().then(() => over.push(name)));
    await pass(379);
    assert.equal(over.length, 0);
    if (end === "set") pace.set(false);
    else if (end === "hurry") pace.hurry();
    else await pass(1);
    await Promise.all(waits);
    assert.deepEqual(over, ["a", "b"]);
    assert.equal(waiting(), 0);
    // work is counted from the end of the wait
    if (end === "set") return;
    await pass(2);
    void pace.wait().then(() => over.push("c"));
    await pass(37);
    assert.equal(over.length, 2);
    await pass(1);
    assert.equal(over.length, 3);
    await pass(60_000);
    void pace.wait().then(() => over.push("d"));
    await pass(1999);
    assert.equal(over.length, 3);
    await pass(1);
    assert.equal(over.length, 4);
  });

/** Runs of plans by an engine that returns after as many steps as its share says. */
function engine(clock: { now: number }) {
  let every = 0;
  let threads = 0;
  let looks = 0;
  const share = new Share((count, steps) => {
    threads = count;
    every = steps;
  });
  const run = (steps: number, ms: number): void => {
    share.begin();
    for (let at = 1, left = every; at <= steps; at++) {
      clock.now += ms;
      if (at === steps || --left) continue;
      looks++;
      share.turn();
      left = every;
    }
  };
  return { run, told: () => [threads, every], looks: () => looks };
}

/** The cell of this worker while a test runs. */
function cellOf(t: TestContext, value: number) {
  const cell = new Int32Array(new SharedArrayBuffer(4)).fill(value);
  shares.cell = cell;
  t.after(() => {
    shares.cell = undefined;
  });
  return cell;
}

for (const [steps, ms] of [
  [1, 1],
  [1, 5],
  [12, 0.01],
  [12, 5],
  [200, 5],
  [300, 0.004],
  [100, 0.3],
  [2000, 0.05],
] as const)
  test(`without a share, runs of ${steps} steps of ${ms} ms get about a twentieth`, (t) => {
    const clock = fakeClock(t);
    const { run } = engine(clock);
    cellOf(t, 0);
    // short runs before must not make it look seldom
    for (let i = 0; i < 50; i++) run(300, 0.001);
    const { now: begin, waited } = clock;
    while (clock.now < begin + 30_000) run(steps, ms);
    const part = 1 - (clock.waited - waited) / (clock.now - begin);
    // a piece between two looks may be longer than the rest of its 5 ms
    assert.ok(part > 0.045 && part < 0.1, `${part}`);
  });

test("an engine looks at its share in runs of any steps, and rarely where they are short", (t) => {
  const clock = fakeClock(t);
  const { run, told, looks } = engine(clock);
  run(1, 1);
  assert.deepEqual(told(), [0, 0], "outside of workers there is no cell");
  const cell = cellOf(t, ALL);
  run(1000, 0.001);
  assert.ok(told()[0] === ALL && looks() > 0, "one that is alone looks, too");
  assert.ok(looks() < 10);
  Atomics.store(cell, 0, 2);
  run(1000, 5);
  assert.deepEqual(told(), [2, 1], "slow steps are looked at one by one");
  const before = looks();
  run(1280, 0.002);
  assert.ok(looks() - before < 25, `${looks() - before}`);
  assert.equal(clock.waited, 0);
});

test("a run that began alone obeys when another worker computes", (t) => {
  const clock = fakeClock(t);
  const cell = cellOf(t, ALL);
  const told: number[] = [];
  const share = new Share((threads) => told.push(threads));
  share.begin();
  Atomics.store(cell, 0, 0);
  clock.now += 100;
  share.turn();
  assert.equal(clock.waited, 95);
  assert.deepEqual(told, [ALL, 1]);
  Atomics.store(cell, 0, ALL);
  share.turn();
  assert.deepEqual(told, [ALL, 1, ALL]);
});
