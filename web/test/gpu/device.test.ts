import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { pathToFileURL } from "node:url";
import type { Device, PlanHandle } from "../../src/device/device.ts";
import { GpuDevice } from "../../src/device/webgpu/device.ts";
import { Gpu } from "../../src/device/webgpu/gpu.ts";
import { MAX_PROGRAMS, Pipelines } from "../../src/device/webgpu/pipelines.ts";
import { checkNames, digestOf, results } from "../../src/device/webgpu/self-test.ts";
import { kernelsOf, mode } from "../../src/device/webgpu/steps.ts";
import { loadParts, missingParts } from "../../src/device/webgpu/variants.ts";
import { KERNELS } from "../../src/gen/kernels.ts";
import { LIMITS } from "../../src/gen/limits.ts";
import { CASES } from "../../src/gen/self_tests.ts";
import { COMMON } from "../../src/gen/shaders.ts";
import { RECORD_BYTES, START } from "../../src/logic/gpu/link.ts";
import { parts_of } from "../../src/logic/gpu/variants.ts";
import type { Program } from "../../src/logic/gpu/wgsl.ts";
import { OutOfMemory } from "../../src/shared/errors.ts";
import { Recorder } from "../../src/worker/profile/index.ts";
import { ahead } from "../../src/worker/training/recovery/ahead.ts";
import { FakeGpu } from "../common/fake-gpu.ts";

const folder = join(process.env.EDGEWISE_SRC!, "../dist/engine/");
const built = existsSync(join(folder, "edgewise-simd128.wasm"));
const plan = (name: keyof typeof LIMITS) => new Uint8Array(Buffer.from(LIMITS[name][0], "base64"));

/** Tests of all kernels and forms that have found nothing wrong. */
const right = () => {
  const forms = CASES.flatMap(({ forms }) => forms.flat());
  const names = ["", ...KERNELS.map(([kernel]) => kernel), ...forms];
  return new Map(names.map((name) => [name, null]));
};

async function open(
  name: "webgpu" | "webgpu-or-wasm" = "webgpu",
  gpu = new FakeGpu(),
): Promise<[Device, FakeGpu]> {
  gpu.install();
  // it computes nothing, and would be refused
  for (const name of ["a fake", "unnamed adapter"])
    for (const subgroups of [false, true]) results.set(digestOf({ name, subgroups }), right());
  const before = globalThis.fetch;
  globalThis.fetch = (async (url: string) =>
    new Response(readFileSync(new URL(url)), {
      headers: { "Content-Type": "application/wasm" },
    })) as typeof fetch;
  const engineUrl = pathToFileURL(folder).href;
  const options = { engineUrl, threadUrl: "", flavour: "simd128", threads: 1 } as const;
  try {
    return [await GpuDevice.open({ ...options, device: name }), gpu];
  } finally {
    globalThis.fetch = before;
  }
}

test("kernels whose tests the engine cannot run are tested by another engine", async () => {
  new FakeGpu().install();
  const gpu = { name: "untested", subgroups: false };
  const { kernels } = CASES[0]!;
  let runs = 0;
  const device = (lacks: boolean) => ({
    gpu,
    wasm: { lacks: (names: string[]) => (lacks ? names.slice(0, 1) : []) } as unknown as Device,
    refused: new Map<string, string>(),
    tuned: {},
    atOnce: async (_: Uint8Array, given: readonly Uint8Array[], wanted: readonly number[]) => {
      runs++;
      const zeros = wanted.map((i) => new Uint8Array(given[i]!.length));
      const ones = zeros.map(
        ({ length }) => new Uint8Array(new Float32Array(length / 4).fill(1).buffer),
      );
      return [zeros, ones] as [Uint8Array<ArrayBuffer>[], Uint8Array<ArrayBuffer>[]];
    },
  });
  await checkNames(device(true), kernels);
  assert.ok(kernels.every((kernel) => !results.get(digestOf(gpu))!.has(kernel)));
  assert.equal(runs, 0);
  const full = device(false);
  await checkNames(full, kernels);
  assert.ok(runs > 0);
  assert.ok(kernels.every((kernel) => full.refused.has(kernel)));
});

test("a form is tested with the values of tunables that it is used with", async () => {
  new FakeGpu().install();
  const gpu = { name: "tuned", subgroups: false };
  const form = CASES.flatMap(({ forms }) => forms.flat()).find((name) =>
    name.endsWith("of the results of matmul_nbits"),
  )!;
  const tests: string[] = [];
  const all: Record<string, number>[] = [{}, { WIDE: 64 }, { WIDE: 0 }, { LANES: 256 }];
  for (const tuned of [...all, { WIDE: 64, TILE: 32 }]) {
    await checkNames(
      {
        gpu,
        wasm: { lacks: () => [] } as unknown as Device,
        refused: new Map<string, string>(),
        tuned,
        atOnce: async (_, given, wanted) => {
          tests.push(JSON.stringify(tuned));
          const of = (value: number) =>
            wanted.map((i) => {
              const data = new Float32Array(given[i]!.length / 4).fill(value);
              return new Uint8Array(data.buffer);
            });
          return [of(0), of(tuned.TILE ? 1 : 0)];
        },
      },
      [form],
    );
  }
  assert.deepEqual([...new Set(tests)], ["{}", '{"WIDE":64}', '{"WIDE":64,"TILE":32}']);
  // kernels that were right without that
  const wrong = [...results.get(digestOf(gpu))!].filter(([, why]) => why !== null);
  assert.ok(wrong.some(([name]) => name === `${form} TILE=32 WIDE=64`));
  assert.ok(wrong.every(([name]) => name.includes(" ")));
});

/** What a plan of two products of bytes is loaded with. */
const bytes = (device: Device) =>
  device.loadPlan(plan("int8"), "bytes", "", undefined, ["weight", "input", "temp"]);

test("a test that does not end is repeated for the next plan", { skip: !built }, async () => {
  const [device] = await open();
  const own = device as GpuDevice;
  const found = results.get(digestOf(own.gpu))!;
  found.delete("integer_product");
  let tests = 0;
  const { atOnce } = own;
  own.atOnce = () => {
    tests++;
    throw new OutOfMemory("none for a test", "", "");
  };
  for (const count of [1, 2]) {
    bytes(device);
    await assert.rejects(device.ready(), /none for a test/);
    assert.equal(tests, count);
  }
  own.atOnce = atOnce;
  bytes(device);
  await device.ready();
  assert.ok(own.refused.has("integer_product")); // a fake computes nothing
  device.close();
});

test("forms of a plan in the place of one with a wrong form are tested", {
  skip: !built,
}, async () => {
  const gpu = new FakeGpu();
  gpu.info = { description: "a fake" };
  mode.serial = false; // tests before it open such a GPU
  const [device] = await open("webgpu", gpu);
  const own = device as GpuDevice;
  const wrong = "norm before gemm";
  const { plan, slots } = CASES.find(({ forms }) => forms[0]!.includes(wrong))!;
  const data = new Uint8Array(Buffer.from(plan, "base64"));
  const kinds = slots.map(([, kind]) => (kind === "temp" ? "temp" : "state"));
  const forms = async () => {
    const handle = device.loadPlan(data.slice(), "forms", "", undefined, kinds);
    await device.ready();
    return own.plan(handle).forms;
  };
  const before = await forms();
  assert.ok(before.includes(wrong));
  results.get(digestOf(own.gpu))!.set(wrong, "as if");
  const { tested } = own as unknown as { tested: Set<string> };
  tested.clear();
  const after = await forms();
  assert.ok(!after.includes(wrong) && after.some((form) => !before.includes(form)), after.join());
  assert.ok(after.every((form) => tested.has(form)));
  device.close();
});

test("a test hears of no failure of other work", { skip: !built }, async () => {
  const [device, gpu] = await open();
  const own = device as GpuDevice;
  const one = own.plan(await product(device));
  const out = device.allocate(4, "out");
  const test = () => {
    const data = plan("float32");
    const given = one.parts.slotBytes.map((bytes) => new Uint8Array(bytes));
    return own.atOnce(data, given, [0]);
  };
  one.unchecked = true;
  new Uint32Array((one.buffers.errors as unknown as { bytes: Uint8Array }).bytes.buffer)[0] = 1;
  await test();
  await assert.rejects(device.read(out), /index/);
  gpu.onuncapturederror({ error: new Error("as if") });
  await test();
  await assert.rejects(device.read(out), /the GPU refused a command \(as if\)/);
  const testing = test();
  gpu.onuncapturederror({ error: new Error("its own") });
  await assert.rejects(testing, /its own/);
  device.close();
});

/** Members of ew_sampling that leave the logits as they are. */
const ZEROS =
  "do_sample min_length min_new_tokens presence_penalty frequency_penalty no_repeat_ngram_size " +
  "encoder_no_repeat_ngram_size timestamp_begin remove_invalid_values forced_eos_n suppress_n " +
  "begin_suppress_n bad_words_n bias_n";
const GREEDY = {
  ...Object.fromEntries(ZEROS.split(" ").map((name) => [name, 0])),
  repetition_penalty: 1,
  encoder_repetition_penalty: 1,
  forced_bos_token_id: -1,
  exponential_decay_start: -1,
  num_beams: 1,
};

test("greedy tokens ahead count as work that the GPU is given", { skip: !built }, async () => {
  const [device, gpu] = await open();
  const own = device as GpuDevice;
  const one = await product(device);
  const x = device.allocate(1 << 21, "x");
  device.bind(one, 0, x);
  const { ahead } = device.picker!(x, 64).begin(GREEDY, 0)!;
  const tokens = async () =>
    (await ahead!({ plan: one, input: x, register: 0, past: 0, where: "", most: 8 })).length;
  const work = own.plan(one).operations.reduce((sum, n) => sum + n);
  const given: number[] = [];
  const { give } = own.pace;
  own.pace.give = (n, now) => {
    given.push(n / work);
    give.call(own.pace, n, now);
  };
  let waits = 0;
  gpu.queue.onSubmittedWorkDone = async () => void waits++;
  own.pace.bound = 10 * work;
  assert.deepEqual([await tokens(), await tokens()], [1, 8]); // the first one is measured
  assert.deepEqual([given, own.pace.given, waits], [[1, 8], 0, 0]);
  own.pace.give(3 * work, 0); // of another plan
  assert.equal(await tokens(), 8);
  assert.deepEqual([given, own.pace.given, waits], [[1, 8, 3, 8], 0, 1]);
  device.close();
});

test("several buffers are read with one map", { skip: !built }, async () => {
  const [device, gpu] = await open();
  const made = [1, 6, 4, 0].map((bytes, i) => {
    const buffer = device.allocate(8, "a test");
    device.write(buffer, new Uint8Array(8).fill(10 * (i + 1)));
    return [buffer, bytes] as const;
  });
  const part = [made[1]![0].part(3), 3] as const; // begins within a word
  const before = gpu.maps;
  const read = await device.readAll!([...made, part]);
  assert.equal(gpu.maps - before, 1);
  assert.deepEqual(
    read.map((data) => [...data]),
    [[10], [20, 20, 20, 20, 20, 20], [30, 30, 30, 30], [], [20, 20, 20]],
  );
  const places = new Map(made.map((place, i) => [`b${i}`, place]));
  const next = ahead(device, places);
  for (const i of [0, 1, 2, 3, 1]) assert.deepEqual(await next(`b${i}`), read[i]);
  assert.equal(gpu.maps - before, 3); // the last one was read again
  // each can be transferred
  assert.equal(new Set(read.map(({ buffer }) => buffer)).size, read.length);
  for (const { buffer, byteLength } of read) assert.equal(buffer.byteLength, byteLength);
  device.close();
});

test("more than a buffer holds is read one by one", { skip: !built }, async () => {
  const gpu = new FakeGpu();
  gpu.limits.maxBufferSize = 1 << 20;
  const [device] = await open("webgpu", gpu);
  const made = [1, 2].map((value) => {
    const buffer = device.allocate(3 << 18, "a test");
    device.write(buffer, new Uint8Array(3 << 18).fill(value));
    return [buffer, 3 << 18] as const;
  });
  const read = await device.readAll!(made);
  assert.deepEqual(
    read.map((data) => [data.length, data.at(-1)]),
    [1, 2].map((value) => [3 << 18, value]),
  );
  assert.ok(gpu.buffers.every(({ size }) => size <= 1 << 20));
  device.close();
});

test("a read without memory for its copy says so", { skip: !built }, async (t) => {
  const [device, gpu] = await open();
  const buffer = device.allocate(1 << 16, "a test");
  gpu.most = 1 << 15;
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const reading = device.read(buffer);
  const failed = assert.rejects(reading, (e) => {
    assert.ok(e instanceof OutOfMemory && /out of memory of the GPU \(none for 65536/.test(e.what));
    return true;
  });
  await new Promise(setImmediate);
  t.mock.timers.tick(1000); // the GPU was not lost meanwhile
  await failed;
  assert.equal((await device.read(buffer, 0, 8)).length, 8);
  device.close();
});

test("what ran before runs after memory was missing", { skip: !built }, async () => {
  const [device, gpu] = await open();
  const first = device.loadPlan(plan("float32"), "first", "", undefined, [
    "input",
    "weight",
    "temp",
  ]);
  device.bind(first, 0, device.allocate(1 << 21, "x"));
  device.bind(first, 1, device.allocate(1 << 19, "w"));
  const out = device.allocate(4, "out");
  const runs = async (): Promise<void> => {
    const before = gpu.dispatches;
    device.run(first, "first");
    await device.read(out);
    assert.ok(gpu.dispatches > before);
  };
  await device.ready();
  await runs();

  gpu.most = 1 << 21; // its arena is larger than the first plan's
  const second = device.loadPlan(plan("int8"), "second", "", undefined, [
    "weight",
    "input",
    "temp",
  ]);
  // how the engine packs bytes: that of simd128 has no products of bytes
  await assert.rejects(device.ready(), (e: unknown) => {
    const { machine } = device as GpuDevice;
    assert.deepEqual(
      [machine.get("PANEL"), machine.get("TOGETHER")],
      ["const PANEL = 8u;", "const TOGETHER = 2u;"],
    );
    assert.ok(e instanceof OutOfMemory && /between steps/.test(e.what));
    return true;
  });
  device.freePlan(second);
  await device.ready();
  await runs();
  device.close();
});

/** A plan of one product, whose memory is bound. */
async function product(device: Device): Promise<PlanHandle> {
  const kinds = ["input", "weight", "temp"];
  const one = device.loadPlan(plan("float32"), "first", "a title", undefined, kinds);
  device.bind(one, 0, device.allocate(1 << 21, "x"));
  device.bind(one, 1, device.allocate(1 << 19, "w"));
  await device.ready();
  return one;
}

test("a run that was encoded before it was asked for", { skip: !built }, async () => {
  const [device, gpu] = await open();
  const one = await product(device);
  const own = (device as GpuDevice).plan(one);
  const out = device.allocate(4, "out");
  const run = async (): Promise<number[]> => {
    const before = [gpu.dispatches, gpu.encoders, gpu.submits] as const;
    device.run(one, "first");
    await device.read(out);
    return [gpu.dispatches, gpu.encoders, gpu.submits].map((n, i) => n - before[i]!);
  };
  own.anticipate(); // nothing has run
  const [count] = await run();
  assert.deepEqual(await run(), [count, 1, 1]);
  own.anticipate();
  own.anticipate(); // is done already
  const { encoders } = gpu;
  assert.deepEqual([await run(), gpu.encoders - encoders], [[count, 1, 1], 1]);
  own.anticipate();
  const x = device.allocate(1 << 21, "x");
  device.bind(one, 0, x);
  for (const buffer of gpu.buffers.filter(({ size }) => size === 1 << 21).slice(0, 1))
    buffer.destroy(); // which the commands that are dropped would read
  assert.deepEqual((await run())[0], count);
  device.close();
});

test("a launch that is too much runs in pieces, between which the GPU can be lost", {
  skip: !built,
}, async () => {
  const [device, gpu] = await open();
  const one = await product(device);
  const out = device.allocate(4, "out");
  const { pace } = device as GpuDevice;
  const starts: number[] = [];
  const { writeBuffer } = gpu.queue;
  gpu.queue.writeBuffer = (to, offset, data) => {
    if (data instanceof ArrayBuffer && data.byteLength === RECORD_BYTES)
      starts.push(0 - new Int32Array(data)[START]!);
    writeBuffer(to, offset, data);
  };
  let waits = 0;
  gpu.queue.onSubmittedWorkDone = async () => void waits++;
  const run = async (bound: number): Promise<number[]> => {
    [pace.bound, pace.least, pace.most, pace.fewest] = [bound, bound, bound, 1];
    const before = [gpu.dispatches, waits] as const;
    starts.length = 0;
    device.run(one, "first");
    await device.read(out);
    return [gpu.dispatches, waits].map((n, i) => n - before[i]!);
  };
  assert.deepEqual([await run(1e12), starts], [[1, 0], [0]]); // memory was connected
  const [groups] = await run(1);
  assert.ok(groups! > 3);
  assert.deepEqual(starts, [...Array(groups).keys(), 0]); // and all of them next time
  assert.deepEqual([await run(1e12), starts], [[1, 0], []]);
  gpu.queue.onSubmittedWorkDone = async () => {
    if (++waits === groups! + 1) await lose(gpu);
  };
  const before = gpu.dispatches;
  await assert.rejects(run(1), /the GPU was lost/);
  assert.ok(gpu.dispatches - before < groups!);
});

test("a profile without timestamps waits for each dispatch", { skip: !built }, async () => {
  const [device, gpu] = await open();
  const one = await product(device);
  const recorder = new Recorder(device);
  const before = gpu.dispatches;
  device.run(one, "first");
  const { plans, flavour } = await recorder.stop();
  assert.ok(gpu.dispatches > before && flavour.includes("wait"));
  assert.deepEqual([plans.length, plans[0]!.name], [1, "a title"]);
  assert.ok(Array.from(plans[0]!.runs[0]!.ms).every((ms) => ms > 0));
  device.close();
});

test("a profile by the GPU's clock leaves nothing behind", { skip: !built }, async () => {
  const gpu = new FakeGpu();
  gpu.features.add("timestamp-query");
  const [device] = await open("webgpu", gpu);
  const one = await product(device);
  const living = () => gpu.buffers.filter(({ destroyed }) => !destroyed).length;
  const before = living();
  const recorder = new Recorder(device);
  device.run(one, "first");
  device.run(one, "first");
  const { plans, flavour } = await recorder.stop();
  assert.ok(flavour.includes("clock"));
  assert.deepEqual(
    plans[0]!.runs.map(({ ms }) => [...ms]),
    [[1], [1]],
  );
  assert.deepEqual([living(), gpu.querySets], [before, []]);
  device.close();
});

test("a profile ends where the GPU is lost", { skip: !built }, async () => {
  const [device, gpu] = await open();
  const one = await product(device);
  const recorder = new Recorder(device);
  await lose(gpu);
  device.run(one, "first");
  await assert.rejects(recorder.stop(), /the GPU was lost/);
  new Recorder(device).release(); // another one may begin
  device.close();
});

test("subgroups are used where the adapter and its language have them", async () => {
  for (const [feature, language] of [
    ["subgroups", "subgroup_id"],
    ["subgroups", ""],
    ["", "subgroup_id"],
  ] as const) {
    const fake = new FakeGpu();
    if (feature) fake.features.add(feature);
    if (language) fake.wgslLanguageFeatures.add(language);
    fake.install();
    const gpu = await Gpu.open(true);
    const both = Boolean(feature && language);
    assert.deepEqual([gpu.subgroups, fake.asked], [both, both ? ["subgroups"] : []]);
    const text = parts_of(COMMON).get("sum_of_lanes")!;
    new Pipelines(gpu).get({ text, bindings: [], records: 1 } as unknown as Program, "");
    assert.equal(fake.texts[0]!.startsWith("enable subgroups;"), both);
  }
});

test("states that a step binds as one fit into a binding", { skip: !built }, async () => {
  const gpu = new FakeGpu();
  gpu.limits.maxStorageBufferBindingSize = 1 << 23;
  const [device] = await open("webgpu", gpu);
  const made = gpu.buffers.length;
  for (let i = 0; i < 9; i++) device.allocate(1 << 22, "a moment", "state");
  const sizes = gpu.buffers.slice(made).map(({ size }) => size);
  assert.ok(sizes.length < 9 && Math.max(...sizes) === 1 << 23, sizes.join());
  device.close();
});

const lose = (gpu: FakeGpu): Promise<void> => {
  gpu.lose({ reason: "unknown", message: "as if" });
  return new Promise(setImmediate);
};

test("a GPU that could not be filled is given back", { skip: !built }, async () => {
  const [device, gpu] = await open();
  await lose(gpu);
  await assert.rejects(device.read(device.allocate(4, "a test")), /the GPU was lost \(as if\)/);
  const first = await device.replacement!();
  assert.equal(first!.info.name, "webgpu");
  const second = await device.replacement!();
  assert.ok(second !== first && second!.host === device.host);
  assert.equal(gpu.destroyed, 1);
  second!.close();
});

test("a GPU that is lost while it is filled is the last one", { skip: !built }, async () => {
  const [device, gpu] = await open();
  await lose(gpu);
  const { info } = (await device.replacement!())!;
  await lose(gpu);
  const { name, why } = (await device.replacement!())!.info;
  assert.deepEqual([info.name, name], ["webgpu", "wasm"]);
  assert.match(why, /the GPU was lost/);
  device.close();
});

test("a GPU without memory is given up only where that is asked for", {
  skip: !built,
}, async () => {
  const [device, gpu] = await open();
  assert.equal(await device.replacement!(), undefined);
  const error = new OutOfMemory("out of memory of the GPU", "webgpu", "");
  assert.equal((await device.replacement!(error))!.info.name, "webgpu");
  assert.equal(gpu.destroyed, 1);
  assert.equal(device.lost, error);
  // nor has the one in its place memory for the same
  const { name, why } = (await device.replacement!(error))!.info;
  assert.equal(name, "wasm");
  assert.match(why, /out of memory of the GPU, again/);
  device.close();
});

test("a GPU in software takes no place that was not asked for", { skip: !built }, async () => {
  const gpu = new FakeGpu();
  gpu.info = undefined;
  gpu.isFallbackAdapter = true;
  await assert.rejects(open("webgpu-or-wasm", gpu), /in software/);
  gpu.isFallbackAdapter = false;
  const [device] = await open("webgpu-or-wasm", gpu);
  assert.equal(device.info.gpu!.adapter, "unnamed adapter");
  gpu.info = { description: "software", isFallbackAdapter: true };
  await lose(gpu);
  const { name, why } = (await device.replacement!())!.info;
  assert.ok(name === "wasm" && why.includes("the GPU was lost") && why.includes("in software"));
  device.close();
});

test("programs of plans that are gone do not stay", async () => {
  const pipelines = new Pipelines({ device: new FakeGpu() } as unknown as Gpu);
  const get = (i: number) =>
    pipelines.get({ text: `// ${i}`, bindings: [], records: 1 } as unknown as Program, "");
  const first = get(0);
  for (let i = 1; i < MAX_PROGRAMS; i++) get(i);
  assert.ok(get(0) === first && pipelines.size === MAX_PROGRAMS);
  get(MAX_PROGRAMS);
  assert.equal(pipelines.size, 1);
  await first.made;
  assert.ok(first.pipeline); // its plan has it
});

test("shaders that language models do not run are parts", async () => {
  mode.serial = false; // tests before it open such a GPU
  assert.deepEqual([...kernelsOf(plan("float32"))], ["gemm"]);
  assert.deepEqual([...kernelsOf(plan("int8"))], ["pack_integer", "integer_product"]);
  const kernels = ["gemm", "conv", "recurrent", "optimizer", "pool", "pack_integer"];
  assert.deepEqual(missingParts(kernels, new Map(), false), ["images", "training", "bytes"]);
  await loadParts(["images"], { machine: new Map(), wasm: undefined as unknown as Device });
  assert.deepEqual(missingParts(["conv", "optimizer"], new Map(), false), ["training"]);
  assert.deepEqual(missingParts(["gemm"], new Map(), true), ["serial"]); // a GPU in software
});
