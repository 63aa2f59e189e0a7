import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import type { Device } from "../../src/device/device.ts";
import { Gpu } from "../../src/device/webgpu/gpu.ts";
import type { GpuRange } from "../../src/device/webgpu/memory.ts";
import type { Aside, GpuPlan } from "../../src/device/webgpu/plan.ts";
import { trialsOf, tune } from "../../src/device/webgpu/tuning.ts";
import { TUNINGS } from "../../src/gen/tuned.ts";
import { EngineError, PlanError } from "../../src/shared/errors.ts";
import { FakeGpu } from "../common/fake-gpu.ts";

/** What a variant does: its milliseconds, the part of its results that it writes, and what. */
interface Does {
  ms?: number;
  part?: number;
  writes?: number;
  refused?: "by its compiler" | "as it runs";
}

const of = (name: string) => TUNINGS.find((tuning) => tuning.name === name)!;

/** A device whose variants do what is said; results are ones, and its clock that of the process. */
async function deviceOf(name: string, does: (tunable: string, value: number) => Does) {
  const fake = new FakeGpu();
  fake.info = { description: name, isFallbackAdapter: false };
  fake.install();
  const gpu = await Gpu.open(true);
  const device = {
    fake,
    gpu,
    wasm: { lacks: () => [] } as unknown as Device,
    tuned: {} as Record<string, number>,
    refused: new Map<string, string>(),
    tried: [] as string[],
    now: 0,
    aside: async <T>(
      _: Uint8Array,
      given: readonly Uint8Array[],
      work: (on: Aside) => Promise<T>,
    ): Promise<T> => {
      const memory = given.map(({ length: bytes }) => {
        const at = gpu.buffer(bytes);
        return { block: { gpu: at }, offset: 0, bytes } as unknown as GpuRange;
      });
      const load = (tuned: Readonly<Record<string, number>> = {}): GpuPlan => {
        const [tunable, value] = Object.entries(tuned).at(-1)!; // the one that is tried
        device.tried.push(`${tunable} ${value}`);
        const { ms = 1, part = 1, writes = 1, refused } = does(tunable, value);
        const plan: Partial<Record<keyof GpuPlan, unknown>> = {
          parts: { initCount: 0, steps: [0] },
          bufferOf: (slot: number) => memory[slot],
          compiled: async () => {
            if (refused === "by its compiler") throw new Error("it is refused");
          },
          run: () => {
            if (refused === "as it runs") gpu.device.createBuffer({ size: fake.most, usage: 0 });
            for (const { block, bytes } of memory)
              gpu.write(block.gpu, 0, new Float32Array((bytes >> 2) * part).fill(writes));
          },
          dispatch: (pass: GPUComputePassEncoder) => {
            const takes = {
              get failed() {
                device.now += ms;
                return false;
              },
            };
            pass.setBindGroup(0, [takes] as unknown as GPUBindGroup);
            pass.dispatchWorkgroups(1);
          },
        };
        return plan as unknown as GpuPlan;
      };
      return work({
        load,
        read: () => assert.fail("it would take errors of other work"),
        expected: async (slots) =>
          slots.map((i) => new Uint8Array(new Float32Array(given[i]!.length >> 2).fill(1).buffer)),
      });
    },
  };
  fake.most = 1 << 27;
  return device;
}

/** Makes the device's clock that of the process. */
function watch(t: TestContext, device: { now: number }): void {
  t.mock.method(performance, "now", () => device.now);
}

test("a variant counts if it writes all of its results, and rightly", async (t) => {
  const does: Record<number, Does> = {
    0: { ms: 8 },
    16: { ms: 1, part: 0.5 },
    32: { ms: 1, writes: 2 },
    64: { ms: 4 },
  };
  const device = await deviceOf("parts", (_, value) => does[value]!);
  watch(t, device);
  const [trials, took] = await trialsOf(device, of("WIDE"), 1000);
  assert.deepEqual(
    trials.map(({ value, right, ms }) => [value, right, ms]),
    [
      [0, true, 8],
      [16, false, 0],
      [32, false, 0],
      [64, true, 4],
    ],
  );
  assert.equal(took, 8 + 4 + 2 * (8 + 2 * 4)); // a run of each, and two rounds of 8 ms
});

test("a GPU's own clock that jumps measures nothing", async () => {
  const device = await deviceOf("jumps", () => ({}));
  const { fake } = device;
  fake.features.add("timestamp-query");
  const make = fake.createCommandEncoder.bind(fake);
  fake.createCommandEncoder = () => {
    const encoder = make() as { resolveQuerySet: (...given: unknown[]) => void };
    const resolve = encoder.resolveQuerySet;
    // squares of -n to -1
    encoder.resolveQuerySet = (set, _, n, to) => resolve(set, -(n as number), n, to);
    return encoder;
  };
  const [trials] = await trialsOf(device, of("QUERIES"), 1000);
  assert.deepEqual(
    trials.map(({ right, ms }) => [right, ms]),
    [
      [true, 0],
      [true, 0],
    ],
  );
});

test("a variant that is refused is left out, and its error is no other's", async (t) => {
  for (const refused of ["by its compiler", "as it runs"] as const) {
    const device = await deviceOf(refused, (_, value) => (value === 1 ? {} : { refused }));
    watch(t, device);
    let others = 0;
    device.fake.onuncapturederror = () => others++;
    await tune(device, ["attention"]);
    assert.deepEqual(device.tuned, { LANES: 64, QUERIES: 1 });
    assert.deepEqual([device.refused.size, others], [0, 0]);
    device.fake.createBuffer({ size: device.fake.most });
    assert.equal(others, 1); // no scope is left
  }
});

test("a scope ends where a plan cannot be loaded", async (t) => {
  const device = await deviceOf("no plan", () => {
    throw new PlanError("too many registers", "a test", "");
  });
  watch(t, device);
  await tune(device, ["attention"]);
  assert.deepEqual(device.tuned, { LANES: 64, QUERIES: 1 });
  let others = 0;
  device.fake.onuncapturederror = () => others++;
  device.fake.createBuffer({ size: device.fake.most });
  assert.equal(others, 1);
});

test("a default that computes wrongly refuses its kernel", async (t) => {
  const device = await deviceOf("wrong", (_, value) => (value === 1 ? { writes: 2 } : {}));
  watch(t, device);
  for (let i = 0; i < 2; i++) {
    device.refused.clear();
    await tune(device, ["attention"]);
    assert.match(device.refused.get("attention")!, /computes it wrongly/); // and is not stored
  }
});

test("what there is no time for is measured on the next visit, alone", async (t) => {
  const device = await deviceOf("slow", (_, value) => ({ ms: value === 8 ? 90 : 150 }));
  watch(t, device);
  await tune(device, ["attention"]);
  assert.deepEqual(device.tuned, { LANES: 64, QUERIES: 1 });
  const names = () => [...new Set(device.tried.splice(0).map((one) => one.split(" ")[0]))];
  assert.deepEqual(names(), ["LANES"]);
  device.tuned = {};
  await tune(device, ["attention"]);
  assert.deepEqual([device.tuned, names()], [{ LANES: 64, QUERIES: 8 }, ["QUERIES"]]);
  await tune(device, ["attention"]);
  assert.deepEqual(names(), []);
});

test("a GPU that is lost meanwhile is no reason for a default", async (t) => {
  const device = await deviceOf("lost", () => {
    device.gpu.lost = new EngineError("the GPU was lost", "a test");
    throw new Error("there is no device");
  });
  watch(t, device);
  await assert.rejects(tune(device, ["attention"]), /the GPU was lost/);
  await assert.rejects(trialsOf(device, of("QUERIES"), 1000));
});
