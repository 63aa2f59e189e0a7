// Chooses tunables of shaders by measuring them, before the first plan with one of their kernels.
// The rules are logic/gpu/tuning.py; the plans are python/edgewise/compiler/gpu/tuned.py.

import { TUNINGS, type Tuning } from "../../gen/tuned.ts";
import { difference } from "../../logic/gpu/self_test.ts";
import {
  fastest,
  goes_on,
  MAX_MS,
  refusal,
  runs_of,
  type Trial,
  untried,
} from "../../logic/gpu/tuning.ts";
import { EdgewiseError } from "../../shared/errors.ts";
import { folder } from "../../shared/files/folders.ts";
import type { Device } from "../device.ts";
import type { Gpu } from "./gpu.ts";
import type { Aside, GpuPlan } from "./plan.ts";
import { digestOf, floats, givenOf } from "./self-test.ts";
import { kernelsOf } from "./steps.ts";
import { Transfers } from "./transfer.ts";

/** A GPU on which plans can be tried between others that wait. */
interface Tuned {
  readonly gpu: Gpu;
  readonly wasm: Device;
  /** Values of tunables that were chosen. */
  readonly tuned: Record<string, number>;
  /** Kernels that it computes wrongly, and why. */
  readonly refused: Map<string, string>;
  aside<T>(
    bytes: Uint8Array,
    given: readonly Uint8Array[],
    work: (on: Aside) => Promise<T>,
  ): Promise<T>;
}

/** What was chosen on an adapter, by tunable. */
type Chosen = Record<string, number>;

/** Flags of WebGPU: a buffer that takes the results of queries. */
const QUERY_RESOLVE = 512;
const COPY_SRC = 4;
const COPY_DST = 8;
const MAP_READ = 1;

/** By adapter, as digestOf; also a file for each in the browser's storage. */
const results = new Map<string, Chosen>();
const fileOf = (gpu: Gpu): string => `tuned-${digestOf(gpu)}`;

async function known(gpu: Gpu): Promise<Chosen> {
  const file = fileOf(gpu);
  let found = results.get(file);
  if (found) return found;
  found = {};
  try {
    const kept = await (await folder("gpu", false))?.read(file);
    const all: Record<string, unknown> = JSON.parse((await kept?.text()) ?? "{}");
    for (const { name, values } of TUNINGS) {
      const value = values.find((value) => value === all[name]);
      if (value !== undefined) found[name] = value;
    }
  } catch {} // it is measured again
  results.set(file, found);
  return found;
}

/**
 * Chooses the tunables of a plan's kernels, once for each adapter, browser and version of Edgewise.
 * What there is no time for has its default, until the next visit. A kernel whose default computes
 * wrongly is refused.
 * @throws EngineError the GPU was lost
 */
export async function tune(device: Tuned, kernels: readonly string[]): Promise<void> {
  const { gpu, tuned, refused } = device;
  const found = await known(gpu);
  let left: number = MAX_MS;
  let fresh = false;
  for (const tuning of TUNINGS) {
    const { name, kernel, values } = tuning;
    if (!kernels.includes(kernel)) continue;
    tuned[name] = found[name] ?? values[0]!;
    if (found[name] !== undefined || left <= 0) continue;
    const [trials, took] = await trialsOf(device, tuning, left).catch((e: unknown) => {
      if (gpu.lost || !(e instanceof EdgewiseError)) throw gpu.lost ?? e;
      return [[], MAX_MS] as [Trial[], number];
    });
    left -= took;
    if (!trials.length) continue;
    tuned[name] = fastest(trials);
    const why = refusal(trials);
    if (why === null) {
      found[name] = tuned[name]!;
      fresh = true;
    } else {
      refused.set(kernel, why);
      console.warn(`edgewise: not run on the GPU: ${kernel}: ${why}`);
    }
  }
  if (fresh)
    await folder("gpu", true)
      .then((files) => files?.write(fileOf(gpu), new Blob([JSON.stringify(found)])))
      .catch(() => undefined); // it is measured again
}

/**
 * Tries the values of a tunable in all its plans, and measures those that are right in the last.
 * @param left milliseconds of measurements after which no further round begins
 * @returns what was found of each, and milliseconds of the measurements; of none where the engine
 *   lacks a kernel
 */
export async function trialsOf(
  device: Tuned,
  { name, values, cases }: Tuning,
  left: number,
): Promise<[trials: Trial[], ms: number]> {
  const all = cases.map(({ slots, plan }) => ({
    slots,
    plan: Uint8Array.from(atob(plan), (c) => c.charCodeAt(0)),
  }));
  if (device.wasm.lacks(all.flatMap(({ plan }) => [...kernelsOf(plan)])).length) return [[], 0];
  const trials = untried(name, values);
  let took = 0;
  for (const { slots, plan } of all)
    await device.aside(plan, slots.map(givenOf), async (on) => {
      const results = slots.flatMap(({ kind }, i) => (kind === "result" ? [i] : []));
      const plans = await compared(device, name, trials, results, on);
      if (plan === all.at(-1)!.plan) took = await measure(device.gpu, plans, left);
    });
  return [trials, took];
}

type Pair = [trial: Trial, plan: GpuPlan];

/** Runs a plan with each value. Returns those that were right in all plans so far. */
async function compared(
  device: Tuned,
  name: string,
  trials: readonly Trial[],
  results: readonly number[],
  { load, expected }: Aside,
): Promise<Pair[]> {
  const { gpu, tuned } = device;
  const wanted = (await expected(results)).map(floats);
  const left = trials.filter(({ refused }) => !refused);
  const plans = await loaded(gpu, left, (trial) => load({ ...tuned, [name]: trial.value }));
  const transfers = new Transfers(gpu);
  const pairs: Pair[] = [];
  for (const [i, trial] of left.entries()) {
    const plan = plans[i];
    const found = plan && (await resultsOf(gpu, transfers, plan, results));
    if (!found) {
      if (gpu.lost) throw gpu.lost;
      trial.refused = true;
      trial.difference = Infinity;
      continue;
    }
    for (const [i, data] of found.entries())
      trial.difference = Math.max(trial.difference, difference(wanted[i]!, floats(data)));
    if (trial.right) pairs.push([trial, plan]);
  }
  transfers.close();
  return pairs;
}

/** Plans with their programs; undefined where a compiler refuses one. */
async function loaded(
  { device }: Gpu,
  trials: readonly Trial[],
  load: (trial: Trial) => GpuPlan,
): Promise<(GpuPlan | undefined)[]> {
  device.pushErrorScope("validation");
  let plans: GpuPlan[];
  let heard: Promise<unknown>;
  try {
    plans = trials.map(load);
  } finally {
    heard = device.popErrorScope().catch(() => undefined); // lost
  }
  await heard;
  const compiled = plans.map((plan) =>
    plan.compiled().then(
      () => plan,
      () => undefined,
    ),
  );
  return Promise.all(compiled);
}

/**
 * Runs a plan and reads its results, by a way that takes no errors of other work from its reads.
 * Undefined where the GPU refuses a command.
 */
async function resultsOf(
  gpu: Gpu,
  transfers: Transfers,
  plan: GpuPlan,
  results: readonly number[],
): Promise<Uint8Array<ArrayBuffer>[] | undefined> {
  const { initCount, steps } = plan.parts;
  const places = results.map((slot) => plan.bufferOf(slot));
  // NaN, in place of what the value before it has left
  for (const { block, offset, bytes } of places) transfers.fill(block.gpu, offset, bytes, 255);
  gpu.device.pushErrorScope("validation");
  let refused: Promise<unknown>;
  try {
    if (initCount) await plan.run(0, initCount);
    await plan.run(initCount, steps.length);
    gpu.submit();
  } finally {
    refused = gpu.device.popErrorScope().catch(() => undefined); // lost
  }
  if (await refused) return undefined;
  return transfers.read(
    places.map(({ block, offset, bytes }) => ({ gpu: block.gpu, offset, bytes })),
  );
}

/** Measures values in turns, as often as there is time for. Returns milliseconds. */
async function measure(gpu: Gpu, pairs: readonly Pair[], left: number): Promise<number> {
  const begin = performance.now();
  const once = await timesOf(
    gpu,
    pairs.map(([, plan]): Part => [plan, 1]),
  );
  once.forEach((ms, i) => {
    pairs[i]![0].ms = ms;
  });
  const runs = once.map(runs_of);
  const parts = pairs.map(([, plan], i): Part => [plan, runs[i]!]);
  for (let rounds = 0; goes_on(rounds, runs, left - (performance.now() - begin)); rounds++)
    for (const [i, ms] of (await timesOf(gpu, parts)).entries()) {
      const [trial] = pairs[i]!;
      trial.ms = rounds ? Math.min(trial.ms, ms) : ms;
    }
  return performance.now() - begin;
}

/** A plan, and how often it runs. */
type Part = [plan: GpuPlan, runs: number];

/** Milliseconds of a run of each part; they run one after the other. */
async function timesOf(gpu: Gpu, parts: readonly Part[]): Promise<number[]> {
  if (!parts.length) return [];
  gpu.submit();
  const times = gpu.device.features.has("timestamp-query")
    ? await byTimestamps(gpu.device, parts)
    : await byWaits(gpu.device, parts);
  return times.map((ms, i) => ms / parts[i]![1]);
}

function encoded(
  device: GPUDevice,
  parts: readonly Part[],
  queries?: GPUQuerySet,
): GPUCommandEncoder {
  const encoder = device.createCommandEncoder();
  parts.forEach(([plan, runs], i) => {
    const pass = encoder.beginComputePass(
      queries && {
        timestampWrites: {
          querySet: queries,
          beginningOfPassWriteIndex: 2 * i,
          endOfPassWriteIndex: 2 * i + 1,
        },
      },
    );
    for (let k = 0; k < runs; k++) plan.dispatch(pass);
    pass.end();
  });
  return encoder;
}

/** The GPU's own clock, of which browsers round off the last digits. */
async function byTimestamps(device: GPUDevice, parts: readonly Part[]): Promise<number[]> {
  const count = 2 * parts.length;
  const queries = device.createQuerySet({ type: "timestamp", count });
  const from = device.createBuffer({ size: 8 * count, usage: QUERY_RESOLVE | COPY_SRC });
  const to = device.createBuffer({ size: 8 * count, usage: MAP_READ | COPY_DST });
  try {
    const encoder = encoded(device, parts, queries);
    encoder.resolveQuerySet(queries, 0, count, from, 0);
    encoder.copyBufferToBuffer(from, 0, to, 0, 8 * count);
    device.queue.submit([encoder.finish()]);
    await to.mapAsync(MAP_READ);
    const at = new BigUint64Array(to.getMappedRange(0, 8 * count).slice(0));
    // a clock may jump
    return parts.map((_, i) => Math.max(Number(at[2 * i + 1]! - at[2 * i]!) / 1e6, 0));
  } finally {
    queries.destroy();
    from.destroy();
    to.destroy();
  }
}

async function byWaits(device: GPUDevice, parts: readonly Part[]): Promise<number[]> {
  const out: number[] = [];
  for (const part of parts) {
    const commands = encoded(device, [part]).finish();
    const begin = performance.now();
    device.queue.submit([commands]);
    await device.queue.onSubmittedWorkDone();
    out.push(performance.now() - begin);
  }
  return out;
}
