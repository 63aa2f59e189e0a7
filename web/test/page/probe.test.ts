import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import type { Buffer, Device, PlanHandle } from "../../src/device/device.ts";
import { slotsOfSteps } from "../../src/device/plan-header.ts";
import { faster, verdict, type Work } from "../../src/device/webgpu/probe.ts";
import { partsOf } from "../../src/device/webgpu/steps.ts";
import { LIMITS } from "../../src/gen/limits.ts";
import { BUFFERS, LAYOUT } from "../../src/gen/plan_format.ts";
import { EngineError } from "../../src/shared/errors.ts";
import { Storage } from "../common/storage.ts";

const plan = new Uint8Array(Buffer.from(LIMITS.float32[0], "base64"));
const work = (times = 1): Work => ({ plan, kinds: ["input", "weight", "output"], times });

let clock = 0;
let hiccups: number[] = [];

interface Fake {
  /** Kernels of the plan. */
  kernels?: string[];
  /** Whether it is lost when it is read. */
  lost?: boolean;
  /** Its test. */
  checked?: () => Promise<void>;
}

/** A device whose steps take so many milliseconds: those of a GPU end when it is read. */
function fake(ms: number, gpu: boolean, options: Fake = {}) {
  const { kernels = ["gemm", "gemm"], lost = false, checked = async () => undefined } = options;
  let busy = 0;
  const device = {
    tests: 0,
    checked: () => {
      device.tests++;
      return checked();
    },
    closed: false,
    guest: false,
    opened: 0,
    loads: 0,
    steps: 0,
    why: "",
    choice: { flavour: "simd128", threads: 1 },
    close: () => {
      assert.ok(device.guest, "the engine was closed with it");
      device.closed = true;
    },
    processor: gpu ? {} : undefined,
    loadPlan: () => {
      device.loads++;
      return 1 as PlanHandle;
    },
    describe: () => ({ kernels, range: [0, 0] }),
    allocate: (bytes: number) => ({ bytes }) as Buffer,
    ready: async () => undefined,
    runSteps: (_: PlanHandle, __: number, count: number) => {
      device.steps += count;
      if (gpu) busy += ms * count;
      else clock += ms * count;
    },
    readAll: async () => {
      if (lost) throw new EngineError("the GPU was lost");
      clock += 3 + busy + (hiccups.shift() ?? 0);
      busy = 0;
    },
    bind() {},
    freePlan() {},
    release() {},
  };
  return device as unknown as typeof device & Device & { why: string };
}

const opens = (gpu: ReturnType<typeof fake>) => async () => {
  gpu.opened++;
  return gpu;
};

beforeEach(() => {
  clock = 1e6;
  hiccups = [];
  new Storage().install();
});

test("auto takes the faster device, and says why", async (t) => {
  t.mock.method(performance, "now", () => clock);
  const gpu = fake(1, true);
  assert.equal(await faster(fake(20, false), "a", [work()], opens(gpu)), gpu);
  assert.equal(gpu.why, "runs of its plans take 5 ms on the GPU, 40 ms in WebAssembly");
  const slow = fake(30, true);
  assert.equal(
    await faster(fake(20, false), "b", [work()], opens(slow)),
    "runs of its plans take 63 ms on the GPU, 40 ms in WebAssembly",
  );
  assert.ok(slow.closed && !gpu.closed);
});

test("auto never takes a device that is slower than 0.9 of the other one", () => {
  for (const [gpu, wasm] of [
    [1, 0.91],
    [0.95, 1],
    [0.85, 1],
    [1, 100],
    [100, 1],
  ] as const) {
    const [worth] = verdict({ gpu, wasm });
    const [chosen, other] = worth ? [gpu, wasm] : [wasm, gpu];
    assert.ok(chosen <= other / 0.9, `${gpu} ${wasm}`);
  }
  assert.equal(verdict({ gpu: null, wasm: 1 })[0], false);
});

test("a run that was disturbed does not decide", async (t) => {
  t.mock.method(performance, "now", () => clock);
  hiccups = [0, 500, 0, 500];
  const gpu = fake(1, true);
  assert.equal(await faster(fake(20, false), "a", [work()], opens(gpu)), gpu);
});

test("plans count as often as they run", async (t) => {
  t.mock.method(performance, "now", () => clock);
  // of 2 steps in 4 ms, a read of 3 ms: 7 ms on the GPU
  const gpu = fake(2, true);
  await faster(fake(20, false), "a", [work(32), work()], opens(gpu));
  assert.match(gpu.why, /take 230 ms on the GPU, 1300 ms in WebAssembly/);
});

test("for short runs no GPU is opened, and that is remembered", async (t) => {
  t.mock.method(performance, "now", () => clock);
  const gpu = fake(0, true);
  const wasm = fake(0.1, false);
  assert.match(String(await faster(wasm, "a", [work()], opens(gpu))), /less than 1 ms/);
  assert.equal(wasm.steps, 4, "a warm run is enough");
  const { loads } = wasm;
  assert.match(String(await faster(wasm, "a", [work()], opens(gpu))), /less than 1 ms/);
  assert.equal(wasm.loads, loads);
  assert.equal(gpu.opened, 0);
});

test("of plans that take long, both run the same first steps", async (t) => {
  t.mock.method(performance, "now", () => clock);
  const kernels = new Array<string>(100).fill("gemm");
  const wasm = fake(100, false, { kernels });
  const gpu = fake(20, true, { kernels });
  await faster(wasm, "a", [work()], opens(gpu));
  assert.equal(wasm.steps, 9); // three, and twice these
  assert.match(gpu.why, /take 63 ms on the GPU, 300 ms/);
  const loop = fake(1, false, { kernels: ["gemm", "loop_begin"] });
  for (let i = 0; i < 2; i++)
    assert.match(String(await faster(loop, "a", [work(2)], opens(gpu))), /loops/);
  assert.deepEqual([loop.steps, loop.loads], [0, 1]);
});

test("the choice is remembered for the adapter, and forgotten when that changes", async (t) => {
  t.mock.method(performance, "now", () => clock);
  const [wasm, gpu] = [fake(20, false), fake(1, true)];
  await faster(wasm, "a", [work()], opens(gpu));
  const { steps } = gpu;
  const again = fake(1, true);
  assert.equal(await faster(wasm, "a", [work()], opens(again)), again);
  assert.equal(again.steps, 0);
  assert.equal(again.why, gpu.why);
  assert.ok(steps > 0);
  // of another model nothing is known
  await faster(wasm, "a", [work(2)], opens(gpu));
  assert.ok(gpu.steps > steps);
  // a slower adapter in its place
  const other = fake(30, true);
  assert.match(String(await faster(wasm, "b", [work()], opens(other))), /take 63 ms on the GPU/);
  assert.equal(other.opened, 1);
  assert.match(String(await faster(wasm, "b", [work()], opens(other))), /take 63 ms on the GPU/);
  assert.equal(other.opened, 1);
  // the first one again: what was known of it was forgotten
  await faster(wasm, "a", [work()], opens(again));
  assert.ok(again.steps > 0);
});

test("a result ends after a month", async (t) => {
  t.mock.method(performance, "now", () => clock);
  let now = 0;
  t.mock.method(Date, "now", () => now);
  const gpu = fake(1, true);
  await faster(fake(20, false), "a", [work()], opens(gpu));
  const { steps } = gpu;
  now = 29 * 86_400_000;
  await faster(fake(20, false), "a", [work()], opens(gpu));
  assert.equal(gpu.steps, steps);
  now = 31 * 86_400_000;
  await faster(fake(20, false), "a", [work()], opens(gpu));
  assert.ok(gpu.steps > steps);
});

test("a GPU that is lost meanwhile is closed, and not asked again on this day", async (t) => {
  t.mock.method(performance, "now", () => clock);
  let now = 0;
  t.mock.method(Date, "now", () => now);
  const gpu = fake(1, true, { lost: true });
  assert.match(String(await faster(fake(20, false), "a", [work()], opens(gpu))), /was lost/);
  assert.ok(gpu.closed);
  const next = fake(1, true);
  assert.match(String(await faster(fake(20, false), "a", [work()], opens(next))), /was lost/);
  assert.equal(next.opened, 0);
  now = 2 * 86_400_000;
  assert.equal(await faster(fake(20, false), "a", [work()], opens(next)), next);
  assert.ok(next.steps > 0);
});

test("a GPU that is chosen is tested then, however long that takes", async (t) => {
  t.mock.method(performance, "now", () => clock);
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const checked = () => new Promise<void>((resolve) => setTimeout(resolve, 9000));
  const gpu = fake(1, true, { checked });
  const found = faster(fake(20, false), "a", [work()], opens(gpu));
  for (let i = 0; i < 50 && !gpu.tests; i++) await new Promise(setImmediate);
  t.mock.timers.tick(9000);
  assert.equal(await found, gpu);
  assert.ok(gpu.steps > 0 && gpu.tests === 1);
  const slow = fake(30, true, { checked });
  assert.match(String(await faster(fake(20, false), "b", [work()], opens(slow))), /63 ms/);
  assert.equal(slow.tests, 0);
});

test("a GPU that is faster and computes wrongly is closed", async (t) => {
  t.mock.method(performance, "now", () => clock);
  const checked = async () => {
    throw new EngineError("the GPU computes wrongly");
  };
  const gpu = fake(1, true, { checked });
  assert.match(String(await faster(fake(20, false), "a", [work()], opens(gpu))), /wrongly/);
  assert.ok(gpu.closed);
  const next = fake(1, true);
  assert.match(String(await faster(fake(20, false), "a", [work()], opens(next))), /wrongly/);
  assert.equal(next.opened, 0); // on this day
});

test("what another cause had is not remembered", async (t) => {
  t.mock.method(performance, "now", () => clock);
  const offline = () => Promise.reject(new TypeError("no network"));
  await assert.rejects(faster(fake(20, false), "a", [work()], offline), /no network/);
  const gpu = fake(1, true);
  assert.equal(await faster(fake(20, false), "a", [work()], opens(gpu)), gpu);
});

test("a remembered GPU that does not open in time is not waited for", async (t) => {
  t.mock.method(performance, "now", () => clock);
  await faster(fake(20, false), "a", [work()], opens(fake(1, true)));
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const gpu = fake(1, true);
  let answer: () => void = () => undefined;
  const opening = new Promise<typeof gpu>((resolve) => {
    answer = () => resolve(gpu);
  });
  const found = faster(fake(20, false), "a", [work()], () => opening);
  for (let i = 0; i < 20; i++) await new Promise(setImmediate);
  t.mock.timers.tick(2000);
  assert.match(String(await found), /no measurement/);
  answer();
  for (let i = 0; i < 5; i++) await new Promise(setImmediate);
  assert.ok(gpu.closed);
});

test("steps that read a weight of 1 GB are not measured, nor is it allocated", async (t) => {
  t.mock.method(performance, "now", () => clock);
  const large = plan.slice();
  const view = new DataView(large.buffer);
  const { planHeader, slotEntry } = LAYOUT;
  const table = Number(view.getBigUint64(planHeader.at.slots_at, true));
  view.setBigUint64(table + slotEntry.bytes + slotEntry.at.bytes, 1n << 30n, true);
  const steps = slotsOfSteps(large);
  const { initCount, steps: parts } = partsOf(plan);
  const read = parts
    .slice(initCount)
    .map(({ operands }) =>
      operands.flatMap((o) => (o && o.buffer >= BUFFERS.SLOT0 ? [o.buffer - BUFFERS.SLOT0] : [])),
    );
  assert.deepEqual(steps, read);
  const readers = steps.filter((slots) => slots.includes(1)).length;
  assert.ok(readers > 0);
  const wasm = fake(20, false, { kernels: steps.map(() => "gemm") });
  const allocate = t.mock.method(wasm, "allocate");
  const works = [{ ...work(), plan: large }];
  const found = await faster(wasm, "a", works, opens(fake(1, true)));
  assert.ok(allocate.mock.calls.every(({ arguments: [bytes] }) => bytes < 1 << 27));
  if (readers === steps.length) assert.match(String(found), /too large to measure/);
  else assert.equal(wasm.steps % (steps.length - readers), 0);
});

test("a GPU that does not answer is closed when it does", async (t) => {
  t.mock.method(performance, "now", () => clock);
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const gpu = fake(1, true);
  let answer: () => void = () => undefined;
  const opening = new Promise<typeof gpu>((resolve) => {
    answer = () => resolve(gpu);
  });
  const found = faster(fake(20, false), "a", [work()], () => opening);
  for (let i = 0; i < 20; i++) await new Promise(setImmediate);
  // 2 s less what was measured in WebAssembly: each step twice or more, and the first steps
  const used = clock - 1e6;
  assert.ok(used > 100 && used < 1000, `${used}`);
  let over = false;
  void found.then(() => (over = true));
  t.mock.timers.tick(1999 - used);
  for (let i = 0; i < 20; i++) await new Promise(setImmediate);
  assert.ok(!over);
  t.mock.timers.tick(1);
  assert.equal(await found, "the GPU gave no measurement within 2000 ms");
  answer();
  for (let i = 0; i < 5; i++) await new Promise(setImmediate);
  assert.ok(gpu.closed);
  const other = fake(1, true); // not asked again on this day
  assert.match(
    String(await faster(fake(20, false), "a", [work()], opens(other))),
    /no measurement/,
  );
  assert.equal(other.opened, 0);
});
