import assert from "node:assert/strict";
import { test } from "node:test";
import type { Buffer, Device, PlanHandle } from "../../src/device/device.ts";
import { halved } from "../../src/worker/model/halves.ts";
import { Weights } from "../../src/worker/model/weights.ts";

interface Step {
  reads: string[];
  writes: string;
}
interface Given {
  steps: Step[];
  runs: string[];
}

/**
 * A device that only counts: bytes, bindings, and init steps that use unbound slots. Weights have
 * 100 bytes each, constants 110.
 */
function counting(plans: Given[]) {
  const live = new Set<Buffer>();
  const held = () => [...live].reduce((sum, { bytes }) => sum + bytes, 0);
  const of = (plan: PlanHandle) => plans[plan]!;
  const names = (plan: PlanHandle) => [
    ...new Set([...of(plan).steps.flatMap((s) => [...s.reads, s.writes]), ...of(plan).runs]),
  ];
  const bound = plans.map(() => new Map<string, Buffer>());
  const at = { most: 0, fails: -1 };
  const uses = (plan: PlanHandle, slot: number) =>
    of(plan)
      .steps.map((s, i) => ([...s.reads, s.writes].includes(names(plan)[slot]!) ? i : -1))
      .filter((i) => i >= 0);
  const device = {
    allocate(bytes: number) {
      const buffer = { bytes } as Buffer;
      live.add(buffer);
      at.most = Math.max(at.most, held());
      return buffer;
    },
    release: (buffer: Buffer) => assert.ok(live.delete(buffer), "freed twice"),
    bind: (plan: PlanHandle, slot: number, buffer: Buffer) =>
      void bound[plan]!.set(names(plan)[slot]!, buffer),
    unbind: (plan: PlanHandle, slot: number) => void bound[plan]!.delete(names(plan)[slot]!),
    inRuns: (plan: PlanHandle, slot: number) => of(plan).runs.includes(names(plan)[slot]!),
    initSpan: (plan: PlanHandle, slot: number) =>
      uses(plan, slot).length ? [uses(plan, slot)[0]!, uses(plan, slot).at(-1)! + 1] : [0, 0],
    describe: (plan: PlanHandle) => ({ initCount: of(plan).steps.length }),
    initSteps(plan: PlanHandle, first: number, count: number) {
      for (let i = first; i < first + count; i++) {
        for (const name of [...of(plan).steps[i]!.reads, of(plan).steps[i]!.writes])
          assert.ok(
            live.has(bound[plan]!.get(name)!),
            `step ${i} uses '${name}', which is missing`,
          );
        if (i === at.fails) throw new Error("no memory");
      }
    },
  } as unknown as Device;
  const all = [
    ...new Set(plans.flatMap(({ steps, runs }) => [...steps.flatMap((s) => s.reads), ...runs])),
  ].filter((n) => n.startsWith("w"));
  const weights = new Weights(device, {
    weights: new Map(all.map((name) => [name, { name, file: "weights", offset: 0, bytes: 100 }])),
  });
  const list = plans.map((_, i) => ({
    plan: i as PlanHandle,
    where: "here",
    slots: names(i as PlanHandle).map((name) => ({
      name,
      kind: name.startsWith("w") ? "weight" : "computed",
      bytes: name.startsWith("w") ? 100 : 110,
    })),
  }));
  for (const { plan, slots } of list)
    slots.forEach(
      ({ name, kind }, slot) => kind === "weight" && device.bind(plan, slot, weights.buffer(name)),
    );
  return { weights, list, bound, at, held };
}

const packed = (n: number): Given => ({
  steps: Array.from({ length: n }, (_, i) => ({ reads: [`w${i}`], writes: `c${i}` })),
  runs: ["w0", ...Array.from({ length: n }, (_, i) => `c${i}`)],
});

test("weights are freed after their constants are computed", () => {
  const { weights, list, bound, at, held } = counting([packed(8), packed(8)]);
  weights.compute(list, true);
  assert.equal(held(), 100 + 8 * 110); // runs read w0 too
  assert.ok(at.most <= 8 * 100 + 8 * 10 + 2 * 110, `${at.most} bytes at once`);
  for (const b of bound)
    assert.deepEqual(
      [...b.keys()].sort(),
      ["w0", ...Array.from({ length: 8 }, (_, i) => `c${i}`)].sort(),
    );
  assert.ok(weights.has("w0") && !weights.has("w1"));
});

test("weights stay in memory if they are still needed", () => {
  const without = counting([packed(3)]);
  without.weights.compute(without.list, false);
  assert.equal(without.held(), 3 * 100 + 3 * 110);
  const kept = counting([packed(3)]);
  kept.weights.compute(kept.list, true, (name) => name === "w2");
  assert.ok(kept.weights.has("w2") && !kept.weights.has("w1"));
  const two = counting([
    { steps: [{ reads: ["w0"], writes: "c0" }], runs: ["c0"] },
    { steps: [{ reads: ["w0"], writes: "c1" }], runs: ["c1"] },
  ]);
  two.weights.compute(two.list, true); // the second plan's step fails if the first one released it
  assert.equal(two.held(), 2 * 110);
});

test("a failed computation of constants frees them and can be repeated", () => {
  const { weights, list, at, held } = counting([packed(4)]);
  at.fails = 2;
  assert.throws(() => weights.compute(list, false), /no memory/);
  assert.equal(held(), 4 * 100);
  at.fails = -1;
  weights.compute(list, false);
  assert.ok(weights.hasComputed(list[0]!.slots));
});

/** What `halved` writes of floats that arrive in chunks of so many bytes, in memory at `shift`. */
function written(floats: Float32Array, power: number, chunk: number, shift: number): Uint16Array {
  const bytes = new Uint8Array(shift + floats.byteLength);
  bytes.set(new Uint8Array(floats.buffer), shift);
  const out = new Uint8Array(floats.byteLength / 2);
  const write = halved((part, at) => out.set(part, at), power, "m.onnx");
  for (let at = 0; at < floats.byteLength; at += chunk)
    write(bytes.subarray(shift + at, shift + Math.min(at + chunk, floats.byteLength)), at);
  return new Uint16Array(out.buffer);
}

test("float32 numbers become float16 in chunks of any size", () => {
  const normal = Array.from({ length: 1 << 16 }, (_, h) => h).filter((h) => {
    const exponent = (h >> 10) & 31;
    return exponent > 0 ? exponent < 31 : !(h & 1023);
  });
  for (const power of [-100, 0, 10, 112]) {
    const floats = Float32Array.from(normal, (h) => {
      const magnitude = h & 0x7fff ? 2 ** ((h >> 10) & 31) * (1 + (h & 1023) / 1024) : 0;
      return (h & 0x8000 ? -magnitude : magnitude) * 2 ** (-15 - power);
    });
    for (const chunk of [floats.byteLength, 4096, 4099])
      for (const shift of [0, 1])
        assert.deepEqual(written(floats, power, chunk, shift), Uint16Array.from(normal));
  }
  assert.deepEqual(written(new Float32Array(5), 3, 20, 0), new Uint16Array(5));
  for (const wrong of [1 + 2 ** -11, 2 ** -15, 65536, Infinity, NaN, 1e-40])
    for (const at of [0, 3, 9]) {
      const floats = new Float32Array(10).fill(2);
      floats[at] = -wrong;
      assert.throws(() => written(floats, 0, 40, 0), /no longer/);
    }
});
