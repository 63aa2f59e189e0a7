// Chooses tunables of shaders by measuring them, before the first plan with one of their kernels.
// The rules are logic/gpu/tuning.py; the plans are python/edgewise/compiler/gpu/tuned.py.

import { TUNINGS, type Tuning } from "../../gen/tuned.ts";
import { difference } from "../../logic/gpu/self_test.ts";
import { fastest, MAX_MS, rounds_of, runs_of, Trial } from "../../logic/gpu/tuning.ts";
import { EdgewiseError } from "../../shared/errors.ts";
import { folder } from "../../shared/files/folders.ts";
import type { Device } from "../device.ts";
import type { Aside } from "./device.ts";
import type { Gpu } from "./gpu.ts";
import type { GpuPlan } from "./plan.ts";
import { digestOf, floats, givenOf } from "./self-test.ts";
import { kernelsOf } from "./steps.ts";

/** A GPU on which plans can be tried between others that wait. */
interface Tuned {
  readonly gpu: Gpu;
  readonly wasm: Device;
  /** Values of tunables that were chosen. */
  readonly tuned: Record<string, number>;
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
 * What there was no time to measure has its default, until the next visit.
 */
export async function tune(device: Tuned, kernels: readonly string[]): Promise<void> {
  const { gpu, tuned } = device;
  const found = await known(gpu);
  let left = MAX_MS;
  let fresh = false;
  for (const tuning of TUNINGS) {
    const { name, kernel } = tuning;
    if (!kernels.includes(kernel)) continue;
    let value = found[name];
    if (value === undefined) {
      const [trials, took] = await trialsOf(device, tuning, left).catch((e: unknown) => {
        if (!(e instanceof EdgewiseError)) throw e;
        return [[], MAX_MS] as [Trial[], number];
      });
      left -= took;
      value = trials.length ? fastest(trials) : tuning.values[0]!;
      if (left > 0 && trials.length) {
        found[name] = value;
        fresh = true;
      }
    }
    tuned[name] = value;
  }
  if (fresh)
    await folder("gpu", true)
      .then((files) => files?.write(fileOf(gpu), new Blob([JSON.stringify(found)])))
      .catch(() => undefined); // it is measured again
}

/**
 * Tries the values of a tunable.
 * @param left milliseconds of measurements after which no further one begins
 * @returns what was found of each, and milliseconds; of none where the engine lacks the kernel
 */
export async function trialsOf(
  device: Tuned,
  { name, values, slots, plan: base64 }: Tuning,
  left: number,
): Promise<[trials: Trial[], ms: number]> {
  const plan = Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
  if (device.wasm.lacks([...kernelsOf(plan)]).length) return [[], 0];
  const result = slots.findIndex(({ kind }) => kind === "result");
  return device.aside(plan, slots.map(givenOf), async ({ load, read, expected }) => {
    const wanted = floats((await expected([result]))[0]!);
    device.gpu.device.pushErrorScope("validation"); // of a compiler that refuses a variant
    const plans = values.map((value) => load({ ...device.tuned, [name]: value }));
    const refused = device.gpu.device.popErrorScope();
    const failed = new Set<GpuPlan>();
    await Promise.all(plans.map((one) => one.compiled().catch(() => failed.add(one))));
    await refused;
    const begin = performance.now();
    const trials = values.map((value) => new Trial(value, Infinity, 0));
    for (const [i, trial] of trials.entries()) {
      if (performance.now() - begin > left) break;
      if (failed.has(plans[i]!)) continue;
      await plans[i]!.run(0, plans[i]!.parts.steps.length);
      const [found] = await read([result]);
      trial.difference = difference(wanted, floats(found!));
    }
    const rest = () => left - (performance.now() - begin);
    await measure(
      device.gpu,
      // the default may be more exact than the engine
      trials.flatMap((trial, i) =>
        trial.right || (!i && trial.difference < Infinity) ? [[trial, plans[i]!]] : [],
      ),
      rest,
    );
    return [trials, performance.now() - begin];
  });
}

type Pair = [trial: Trial, plan: GpuPlan];

/** Measures values in turns, as often as there is time for. */
async function measure(gpu: Gpu, pairs: readonly Pair[], left: () => number): Promise<void> {
  if (left() <= 0) return;
  const once = pairs.map(([, plan]): Part => [plan, 1]);
  const first = await timesOf(gpu, once);
  first.forEach((ms, i) => {
    pairs[i]![0].ms = ms;
  });
  const rounds = rounds_of(first, left());
  const parts = pairs.map(([, plan], i): Part => [plan, runs_of(first[i]!)]);
  const all = Array.from({ length: rounds }, () => parts).flat();
  (await timesOf(gpu, all)).forEach((ms, i) => {
    const [trial] = pairs[i % pairs.length]!;
    trial.ms = Math.min(trial.ms || Infinity, ms);
  });
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
    const at = new BigUint64Array(to.getMappedRange().slice(0));
    return parts.map((_, i) => Number(at[2 * i + 1]! - at[2 * i]!) / 1e6);
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
