// A report on the GPU of a visitor: whether it computes rightly, and how fast, beside the engine.

import type { Buffer, Device, PlanHandle } from "../../device/device.ts";
import { gpuPart } from "../../device/open.ts";
import type { GpuDevice } from "../../device/webgpu/device.ts";
import { onBoth } from "../../device/webgpu/self-test.ts";
import { trialsOf } from "../../device/webgpu/tuning.ts";
import { CASES, type ReportCase } from "../../gen/gpu_report.ts";
import { PLAN, SLOTS } from "../../gen/self_test.ts";
import { TUNINGS, type Tuning } from "../../gen/tuned.ts";
import { TOLERANCE } from "../../logic/gpu/self_test.ts";
import { fastest } from "../../logic/gpu/tuning.ts";
import type {
  GpuCase,
  GpuComparison,
  GpuReport,
  GpuReportRequest,
  GpuTrial,
} from "../../protocol/gpu-report.ts";
import { throwIfAborted } from "../../shared/abort.ts";
import { EngineError } from "../../shared/errors.ts";
import { VERSION } from "../../shared/version.ts";
import { message } from "../../shared/words.ts";
import { inWasm, onGpu } from "./times.ts";

/** Dispatches of the test whether a GPU slows down or holds more and more. */
const DISPATCHES = 10_000;
/** A GPU in software gets as many as it can do in this time. */
const DISPATCHES_MS = 10_000;
const READS = 15;
/** For the values of a tunable. */
const TRIALS_MS = 2000;

/** Given to the page while it is made. */
export type Told = (event: { done: number; total: number; name: string }) => void;

/**
 * Measures the GPU.
 * @param tell is called before each part
 * @throws EngineError there is none; Aborted
 */
export async function reportOf(
  { urls, flavour, threads, seconds }: GpuReportRequest,
  signal: AbortSignal,
  tell: Told,
): Promise<GpuReport> {
  const end = performance.now() + 1000 * seconds;
  const { GpuDevice } = await gpuPart.load!();
  const options = { ...urls, flavour, threads, full: true, device: "webgpu" as const };
  const gpu = await GpuDevice.open(options, false);
  try {
    const tunings = gpu.gpu.software ? [] : TUNINGS; // which has other shaders
    const total = tunings.length + CASES.length + 2;
    tell({ done: 0, total, name: "the test before the first use" });
    const started = performance.now();
    const test = await onBoth(gpu, gpu.wasm, PLAN, SLOTS, async (_, compare) => {
      const apart = await compare();
      return SLOTS.flatMap(({ name, kind }, i) =>
        kind === "result" ? [compared(name, apart[i]!)] : [],
      );
    });
    const test_ms = performance.now() - started;
    const left: Record<string, string> = {};
    const variants: GpuTrial[] = [];
    for (const [i, tuning] of tunings.entries()) {
      throwIfAborted(signal);
      tell({ done: i + 1, total, name: `variants of ${tuning.kernel}` });
      if (performance.now() > end) left[tuning.name] = "there was no time for it";
      else
        try {
          variants.push(...(await tried(gpu, tuning)));
        } catch (e) {
          if (gpu.lost) throw gpu.lost;
          left[tuning.name] = message(e);
        }
    }
    const cases: GpuCase[] = [];
    for (const [i, one] of CASES.entries()) {
      throwIfAborted(signal);
      tell({ done: tunings.length + i + 1, total, name: one.name });
      if (performance.now() > end) left[one.name] = "there was no time for it";
      else
        try {
          cases.push(await measured(gpu, one));
        } catch (e) {
          if (gpu.lost) throw gpu.lost;
          left[one.name] = message(e);
        }
    }
    throwIfAborted(signal);
    tell({ done: total - 1, total, name: `${DISPATCHES} dispatches` });
    const repeated = await onBoth(gpu, gpu.wasm, PLAN, SLOTS, (plan, _, buffers) =>
      repeat(gpu, plan, buffers.at(-1)!),
    );
    return {
      version: VERSION,
      date: new Date().toISOString(),
      browser: navigator.userAgent,
      adapter: adapterOf(gpu),
      engine: { flavour: gpu.choice.flavour, threads: gpu.choice.threads },
      test,
      test_ms,
      cases,
      variants,
      tuned: { ...gpu.tuned },
      left,
      ...repeated,
    };
  } finally {
    gpu.close();
  }
}

function compared(name: string, difference: number): GpuComparison {
  return {
    name,
    difference: Number.isFinite(difference) ? difference : null,
    right: difference <= TOLERANCE,
  };
}

async function measured(gpu: GpuDevice, one: ReportCase): Promise<GpuCase> {
  const { name, kernels, slots, operations, bytes, plan: base64 } = one;
  const missing = gpu.lacks(kernels);
  if (missing.length)
    throw new EngineError(`the engine lacks ${missing.join(", ")}`, name, "Serve the full one.");
  return onBoth(gpu, gpu.wasm, base64, slots, async (plan, compare, buffers) => {
    const started = performance.now();
    await gpu.ready();
    const compile_ms = performance.now() - started;
    const worst = Math.max(...(await compare()));
    const wasm_ms = inWasm(gpu.wasm, plan);
    const result = buffers[slots.findIndex(({ kind }) => kind === "result")]!;
    const gpu_ms = await onGpu(gpu, plan, result);
    return {
      ...compared(name, worst),
      gpu_ms,
      wasm_ms,
      gops: operations ? operations / gpu_ms / 1e6 : undefined,
      gbs: bytes / gpu_ms / 1e6,
      compile_ms,
    };
  });
}

/** Every value of a tunable, with more time than before a plan; cases run with the chosen one. */
async function tried(gpu: GpuDevice, tuning: Tuning): Promise<GpuTrial[]> {
  await gpu.ready();
  const [trials] = await trialsOf(gpu, tuning, TRIALS_MS);
  if (trials.length) gpu.tuned[tuning.name] = fastest(trials);
  return trials.map(({ value, right, refused, difference, ms }) => ({
    ...compared(`${tuning.name} ${value}`, difference),
    right,
    refused,
    ms,
    chosen: value === gpu.tuned[tuning.name],
  }));
}

/** Runs the steps of a plan 10,000 times in all, a tenth at a time. */
async function repeat(
  gpu: Device,
  plan: PlanHandle,
  result: Buffer,
): Promise<Pick<GpuReport, "dispatch_us" | "read_ms" | "drift" | "growth">> {
  const steps = gpu.describe(plan).kernels.length;
  const read = () => gpu.read(result, 0, 4);
  gpu.run(plan, "self-test");
  await read();
  const reads: number[] = [];
  for (let i = 0; i < READS; i++) {
    const start = performance.now();
    await read();
    reads.push(performance.now() - start);
  }
  const before = gpu.memoryBytes;
  const times: number[] = [];
  const runs = Math.ceil(DISPATCHES / 10 / steps);
  const end = performance.now() + DISPATCHES_MS;
  for (let i = 0; i < 10 && (i < 2 || performance.now() < end); i++) {
    const start = performance.now();
    for (let j = 0; j < runs; j++) gpu.run(plan, "self-test");
    await read();
    times.push(performance.now() - start);
  }
  return {
    dispatch_us: (1000 * Math.min(...times)) / (runs * steps),
    read_ms: reads.sort((a, b) => a - b)[READS >> 1]!,
    drift: times.at(-1)! / times[0]!,
    growth: gpu.memoryBytes - before,
  };
}

function adapterOf({ gpu }: GpuDevice): GpuReport["adapter"] {
  const { device, name, software, subgroups } = gpu;
  const info: Partial<GPUAdapterInfo> = device.adapterInfo ?? {};
  const limits: Record<string, number> = {};
  // its properties are getters of the prototype
  for (const limit in device.limits)
    limits[limit] = device.limits[limit as keyof GPUSupportedLimits] as number;
  return {
    name,
    vendor: info.vendor ?? "",
    architecture: info.architecture ?? "",
    device: info.device ?? "",
    software,
    subgroups,
    features: [...device.features, ...(navigator.gpu.wgslLanguageFeatures ?? [])].sort(),
    limits,
  };
}
