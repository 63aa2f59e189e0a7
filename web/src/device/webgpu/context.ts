// What the parts of a plan need of each other: interfaces of device.ts and plan.ts.

import type { Pace } from "../../logic/gpu/pace.ts";
import type { Program } from "../../logic/gpu/wgsl.ts";
import type { Buffer, PlanHandle } from "../device.ts";
import type { Engine } from "../wasm/engine.ts";
import type { ResolvedStep } from "../wasm/resolve.ts";
import type { Gpu } from "./gpu.ts";
import type { GpuRange } from "./memory.ts";
import type { Pipelines } from "./pipelines.ts";
import type { PlanParts } from "./steps.ts";

/** What plans need of a GpuDevice. */
export interface GpuContext {
  readonly gpu: Gpu;
  readonly wasm: Engine;
  readonly pipelines: Pipelines;
  /** How much the GPU is given before it is waited for. */
  readonly pace: Pace;
  /** What shaders refer to that differs between machines. */
  readonly machine: Map<string, string>;
  /** Values of tunables of shaders that were chosen. */
  readonly tuned: Readonly<Record<string, number>>;
  /** Kernels and forms that this GPU computes wrongly, and why. */
  readonly refused: ReadonlyMap<string, string>;
  /** Programs by what their text depends on. */
  readonly texts: Map<string, Program>;
  /**
   * Reads now, and with it the errors of runs.
   * @throws InputError if a step found an index that is out of range
   */
  fetch(buffer: Buffer, at: number, bytes: number): Promise<Uint8Array<ArrayBuffer>>;
  /** Writes now. Returns a promise where words have to be read first. */
  store(buffer: Buffer, data: Uint8Array, at: number): void | Promise<void>;
}

/** What steps need of a GpuPlan. */
export interface PlanContext {
  readonly device: GpuContext;
  /** Of the engine in C. */
  readonly handle: PlanHandle;
  readonly parts: PlanParts;
  /** Of each step. */
  readonly operations: readonly number[];
  /** Of the slots. */
  readonly kinds: readonly string[];
  readonly where: string;
  /** Present values of the registers. */
  readonly registers: readonly number[];
  /** The plan's own: constants, a record per step, registers, the first error. */
  readonly buffers: Readonly<Record<"constants" | "records" | "registers" | "errors", GPUBuffer>>;
  /** Steps as they would run now. */
  resolve(first: number, count: number): ResolvedStep[];
  /** The memory of a slot. */
  bufferOf(slot: number): GpuRange;
}
