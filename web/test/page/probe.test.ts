import assert from "node:assert/strict";
import { test } from "node:test";
import type { Buffer, Device, PlanHandle } from "../../src/device/device.ts";
import { slotsOfPlan } from "../../src/device/plan-header.ts";
import { faster, mainProduct, probePlan, verdict } from "../../src/device/webgpu/probe.ts";
import { PROBES } from "../../src/gen/probe.ts";
import { openHost } from "../common/engine.ts";

test("the product that is measured has the size of most weights", () => {
  const sizes = [400, 3_000_000, 3_000_000, 3_000_000, 5_000_000, 400];
  const [four, float] = PROBES;
  assert.deepEqual(mainProduct(sizes, ["gemm"]), { probe: float, bytes: 3_000_000 });
  const large = mainProduct([2 ** 31], ["norm", "matmul_nbits"]);
  assert.deepEqual(large, { probe: four, bytes: 2 ** 26 });
  assert.equal(mainProduct([], []).bytes, 2 ** 18);
});

test("plans of products pass the engine's checks at all sizes", async () => {
  const host = await openHost();
  const opened = host.call("ew_open", 1);
  for (const probe of PROBES)
    for (const bytes of [2 ** 18, 3_538_944, 50_000_001, 2 ** 26]) {
      const plan = probePlan({ probe, bytes });
      const at = host.alloc(plan.length);
      const out = host.alloc(8);
      host.write(at, plan);
      assert.equal(
        host.call("ew_plan_load", opened, at, plan.length, out),
        0,
        `${probe.kernel} ${bytes}`,
      );
      const weight = slotsOfPlan(plan)![1]!.bytes;
      assert.ok(Math.abs(weight / bytes - 1) < 0.15, `${probe.kernel}: ${weight} of ${bytes}`);
    }
});

let clock = 0;
let hiccups: number[] = [];

/** A device whose runs take so many milliseconds: those of a GPU end when it is read. */
function fake(ms: number, waits = false) {
  let busy = 0;
  const device = {
    closed: false,
    why: "",
    gpu: { close: () => void (device.closed = true) },
    loadPlan: () => 1 as PlanHandle,
    allocate: (bytes: number) => ({ bytes }) as Buffer,
    ready: async () => undefined,
    run: () => void (waits ? (clock += ms) : (busy += ms)),
    read: async () => {
      clock += 3 + busy + (hiccups.shift() ?? 0);
      busy = 0;
      return new Uint8Array(4);
    },
    bind() {},
    freePlan() {},
    release() {},
  };
  return device as typeof device & Device & { why: string };
}

test("auto takes the GPU where it is faster, and says why", async (t) => {
  t.mock.method(performance, "now", () => clock);
  const product = mainProduct([2 ** 22], ["gemm"]);
  const gpu = fake(0.02);
  assert.equal(await faster(async () => gpu, fake(1, true), product), gpu);
  assert.match(gpu.why, /a product with 4.\d MB of weights takes 0.02 ms on the GPU, 1 ms in Web/);
  const slow = fake(12);
  assert.match(
    String(await faster(async () => slow, fake(1, true), product)),
    /takes 13 ms on the GPU/,
  );
  assert.ok(slow.closed);
  assert.deepEqual(verdict(product, 0.9, 1)[0], false);
  hiccups = [0, 30]; // of the first few runs: the others seem to take no time
  const disturbed = fake(0.9);
  assert.match(
    String(await faster(async () => disturbed, fake(1, true), product)),
    /takes 0.9 ms on the GPU/,
  );
  hiccups = [0, 30, 0, 30]; // nothing but the wait is known
  const jerky = fake(0.1);
  await faster(async () => jerky, fake(1, true), product);
  assert.match(jerky.why, /takes 0.14 ms on the GPU/);
  const none = () => Promise.reject(new Error("there is no GPU"));
  assert.equal(await faster(none, fake(1, true), product), "there is no GPU");
});
