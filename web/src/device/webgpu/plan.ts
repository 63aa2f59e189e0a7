// A plan whose steps run on a GPU; steps without a shader run in WebAssembly, between copies of
// what they read and write. The twin of python/edgewise/host/webgpu/loaded.py.

import { RECORD_BYTES } from "../../logic/gpu/link.ts";
import { folded } from "../../logic/gpu/variants.ts";
import { REGISTERS } from "../../logic/gpu/wgsl.ts";
import { OutOfMemory, PlanError } from "../../shared/errors.ts";
import { megabytes } from "../../shared/words.ts";
import type { PlanHandle } from "../device.ts";
import { type ResolvedStep, resolveSteps } from "../wasm/resolve.ts";
import type { GpuContext, PlanContext } from "./context.ts";
import { Launch } from "./launch.ts";
import type { GpuRange } from "./memory.ts";
import { Mirrors } from "./mirror.ts";
import { alone, readProgram, WITHOUT } from "./program.ts";
import { type PlanParts, partsOf } from "./steps.ts";
import { operationsOf } from "./variants.ts";

/**
 * Launches of the first submit of a run, with which the GPU starts while the rest is encoded, and
 * of the next ones. The last one waits for what reads its result.
 */
const CHUNK = 64;
const MORE = 512;

/** Launches first to end - 1 of a plan, all on the GPU or all in WebAssembly. */
interface Run {
  first: number;
  end: number;
  onGpu: boolean;
}

/** What runs where, for `info`. */
export interface PlanPlaces {
  dispatches: number;
  /** Why the steps of a kernel run in WebAssembly. */
  onWasm: Record<string, string>;
  /** Bytes copied between GPU and WebAssembly within runs. */
  downloads: number;
  uploads: number;
}

/** A plan on both devices, whose slots have memory of their own. */
export interface Aside {
  /** The plan on the GPU, with these values of tunables. */
  load(tuned?: Readonly<Record<string, number>>): GpuPlan;
  /** The contents of slots on the GPU. */
  read(slots: readonly number[]): Promise<Uint8Array<ArrayBuffer>[]>;
  /** Those after a run in the engine. */
  expected(slots: readonly number[]): Promise<Uint8Array<ArrayBuffer>[]>;
}

/** A plan that the engine in C has checked, on a GPU. */
export class GpuPlan implements PlanContext {
  readonly parts: PlanParts;
  operations: readonly number[] = [];
  /** Present values of the registers. */
  registers: number[];
  /** The plan's own: constants, a record per step, registers, the first error. */
  readonly buffers: Record<"constants" | "records" | "registers" | "errors", GPUBuffer>;
  /** Whether a step can find an index that is out of range. */
  readonly fails: boolean;
  /** Name of the latest run, for errors. */
  running = "";
  /** Whether a run has ended whose errors were not read. */
  unchecked = false;
  /** How steps run on the GPU, one or several together; undefined for a step in WebAssembly. */
  readonly launches: (Launch | undefined)[] = [];
  /** Number of the first step of each, and of the step after the last. */
  private readonly firsts: number[] = [];
  private readonly reasons = new Map<number, string>();
  private readonly bound = new Map<number, GpuRange>();
  private readonly dirty = new Set<number>();
  /** Launches that bind a slot. */
  private readonly users = new Map<number, number[]>();
  private fresh = true;
  private mirrors: Mirrors | undefined;
  /** Of all steps but init steps. */
  private whole: Run[] | undefined;
  /** The same once their pipelines have been made, until other memory is connected. */
  private made: readonly Run[] | undefined;
  /** Launches whose grids follow registers. */
  private movers: Launch[] = [];
  /** Registers of the latest run of all launches, and by how much they had changed. */
  private latest: readonly number[] | undefined;
  private changes: readonly number[] | undefined;
  /** The next such run, encoded while the GPU works, for the registers that it probably has. */
  private next: { registers: readonly number[]; commands: GPUCommandBuffer } | undefined;

  /**
   * @param handle of the engine in C
   * @param kinds of the slots
   * @param tuned values of tunables of its shaders
   */
  constructor(
    readonly device: GpuContext,
    readonly handle: PlanHandle,
    bytes: Uint8Array,
    readonly kinds: readonly string[],
    readonly where: string,
    tuned = device.tuned,
  ) {
    this.parts = partsOf(bytes, tuned);
    const { steps, constants, registers } = this.parts;
    if (registers.length > REGISTERS || registers.flat().some((x) => x !== (x | 0)))
      throw new PlanError("its registers exceed those of a GPU", where, "Use the device 'wasm'.");
    this.registers = registers.map(([low]) => low);
    this.parts.derive(this.registers);
    const { gpu } = device;
    this.buffers = {
      constants: gpu.buffer(constants.length),
      records: gpu.buffer(RECORD_BYTES * Math.max(steps.length, 1), true),
      registers: gpu.buffer(4 * REGISTERS, true),
      errors: gpu.buffer(16),
    };
    if (constants.length) {
      const words = new Uint8Array(Math.ceil(constants.length / 4) * 4);
      words.set(constants);
      gpu.write(this.buffers.constants, 0, words);
    }
    try {
      this.fails = this.choose(bytes);
    } catch (e) {
      this.free();
      throw e;
    }
    if (this.reasons.size) this.mirrors = new Mirrors(this);
  }

  /**
   * Decides where each step runs, and begins to compile programs; which ones run together is
   * written in the plan. Init steps run alone, since the host runs them in pieces.
   * @returns whether a step can find an index that is out of range
   */
  private choose(bytes: Uint8Array): boolean {
    const { steps, initCount, largest, slotBytes } = this.parts;
    const resolved = this.resolve(0, steps.length);
    this.operations = steps.map((step, i) => operationsOf(step, resolved[i]!, slotBytes, largest));
    const program = readProgram(bytes, this.parts, resolved, this.where);
    if (!program && steps.length > 1) console.warn(`edgewise: ${this.where} ${WITHOUT}`);
    let failing = false;
    let first = 0;
    while (first < steps.length) {
      const group = first < initCount ? undefined : program?.get(first);
      let launch = new Launch(this, group ?? alone(first), failing);
      // a GPU that binds less than others
      if (group && launch.reason) launch = new Launch(this, alone(first), failing);
      const { reason } = launch;
      this.firsts.push(first);
      if (reason) {
        this.reasons.set(first, reason);
        this.launches.push(undefined);
      } else {
        launch.prepare();
        failing ||= launch.fails;
        const number = this.launches.push(launch) - 1;
        this.dirty.add(number);
        for (const slot of launch.slots) {
          const known = this.users.get(slot);
          if (known) known.push(number);
          else this.users.set(slot, [number]);
        }
      }
      first += launch.steps.length;
    }
    this.firsts.push(first);
    return failing;
  }

  /** Names of what it runs, as tests of GPUs have them. */
  get forms(): string[] {
    return [...new Set(this.launches.flatMap((launch) => launch?.forms ?? []))];
  }

  /** Steps as they would run now. */
  resolve(first: number, count: number): ResolvedStep[] {
    return resolveSteps(this.device.wasm, this.handle, first, count, this.where);
  }

  /** The memory of a slot. */
  bufferOf(slot: number): GpuRange {
    const found = this.bound.get(slot);
    if (!found)
      throw new PlanError(
        `slot ${slot} is not bound`,
        this.where,
        "This is a bug in Edgewise; please report it with the model.",
      );
    return found;
  }

  bind(slot: number, buffer: GpuRange, where: string): void {
    const bytes = this.parts.slotBytes[slot];
    const { bindingBytes } = this.device.gpu;
    if (this.parts.grows[slot] && buffer.bytes > bindingBytes)
      throw new OutOfMemory(
        `the cache takes ${megabytes(buffer.bytes)}: this GPU binds ${megabytes(bindingBytes)}`,
        where || this.where,
        "Give a shorter prompt or a smaller max_new_tokens, or use the device 'wasm'.",
      );
    if (bytes === undefined || (buffer.bytes < bytes && !this.parts.grows[slot]))
      throw new PlanError(
        `slot ${slot} of ${bytes ?? 0} bytes is bound to ${buffer.bytes} bytes`,
        where || this.where,
        "The package is damaged: build it again.",
      );
    this.bound.set(slot, buffer);
    this.mirrors?.moved(slot);
    for (const i of this.users.get(slot) ?? []) this.dirty.add(i);
  }

  /** Init steps have run, of this plan or of another one. */
  computed(): void {
    this.mirrors?.computed();
  }

  unbind(slot: number): void {
    this.bound.delete(slot);
  }

  /** Sets a register whose value the engine has checked. */
  register(index: number, value: number): void {
    this.registers[index] = value;
    this.parts.derive(this.registers);
    this.fresh = true;
  }

  /**
   * Runs steps first to end - 1, init steps counted. Returns at once if all of them are on the GPU
   * and their pipelines have been made.
   */
  run(first: number, end: number): void | Promise<void> {
    const runs = this.runs(first, end);
    this.refresh(runs);
    const waits = this.unmade(runs);
    const { pace } = this.device;
    const work = this.work(first, end);
    const much = work > pace.bound || pace.waits(work);
    if (waits.length || much || runs.some(({ onGpu }) => !onGpu)) return this.runLater(waits, runs);
    pace.give(work, performance.now());
    if (runs === this.made && runs.length === 1) this.again(runs[0]!);
    else for (const run of runs) this.onGpu(run);
  }

  /** Runs all launches, with commands that `anticipate` has encoded if they are the right ones. */
  private again(run: Run): void {
    const { next, latest, registers } = this;
    this.changes = latest && registers.map((x, i) => x - latest[i]!);
    this.latest = [...registers];
    this.next = undefined;
    if (next?.registers.every((x, i) => x === registers[i])) {
      this.device.gpu.take(next.commands);
      this.unchecked ||= this.fails;
    } else this.onGpu(run);
  }

  /**
   * Encodes the next run as if registers changed as they did before the last one: only they are
   * written then. Called while the GPU works.
   */
  anticipate(): void {
    const { made, changes, registers, parts } = this;
    if (!made || !changes || this.next) return;
    const expected = registers.map((x, i) => x + changes[i]!);
    parts.derive(expected);
    if (!parts.registers.every(([low, high], i) => expected[i]! >= low && expected[i]! <= high))
      return;
    const encoder = this.device.gpu.device.createCommandEncoder();
    const pass = encoder.beginComputePass();
    this.registers = expected;
    this.dispatch(pass);
    this.registers = registers;
    pass.end();
    this.next = { registers: expected, commands: encoder.finish() };
  }

  /** Operations of a run. */
  private get operationsOfRun(): number {
    return this.work(this.parts.initCount, this.operations.length);
  }

  /** Whether a run is more work than a GPU is given at once. */
  private get large(): boolean {
    return this.operationsOfRun > this.device.pace.bound;
  }

  /** Whether a launch takes several dispatches. */
  divides(launch: number): boolean {
    return this.work(...this.spanOf(launch)) > this.device.pace.bound;
  }

  /** Operations of steps. */
  private work(first: number, end: number): number {
    let total = 0;
    for (let i = first; i < end; i++) total += this.operations[i]!;
    return total;
  }

  /** Whether a run is in several parts: steps are in WebAssembly, or it is too much at once. */
  get mixed(): boolean {
    const { initCount } = this.parts;
    return this.large || this.launches.some((launch, i) => !launch && this.firsts[i]! >= initCount);
  }

  /**
   * Prepares `dispatch`. Returns a promise where pipelines are still being made, or the GPU has
   * enough to do.
   * @param runs that are to be submitted at once
   */
  connect(runs = 0): void | Promise<void> {
    this.refresh(this.all);
    const waits = this.unmade(this.all);
    const work = runs * this.operationsOfRun;
    if (waits.length || this.device.pace.waits(work))
      return Promise.all(waits).then(() => this.wait(work));
  }

  /** Notes runs that are submitted by `dispatch`. */
  give(runs: number): void {
    this.device.pace.give(runs * this.operationsOfRun, performance.now());
  }

  /** Adds the steps of a run to a pass; registers are the caller's. */
  dispatch(pass: GPUComputePassEncoder): void {
    this.move();
    for (const { first, end } of this.all) this.encode(pass, first, end);
  }

  /** Pipelines of launches that are still being made. */
  private unmade(runs: readonly Run[]): Promise<void>[] {
    const out: Promise<void>[] = [];
    if (runs === this.made) return out;
    for (const { first, end } of runs)
      for (let i = first; i < end; i++) this.launches[i]?.wait(out);
    if (runs === this.whole && !out.length) this.made = runs;
    return out;
  }

  /** Sets the grids that follow registers. */
  move(): void {
    for (const launch of this.movers) launch.move();
  }

  /** Adds launches to a pass. Their pipelines must have been made. */
  encode(pass: GPUComputePassEncoder, first: number, end: number): void {
    let last: GPUComputePipeline | undefined;
    for (let i = first; i < end; i++) {
      const { list } = this.launches[i]!;
      for (let k = 0; k < list.length; k++) {
        const { program, group, across, down } = list[k]!;
        if (!across) continue;
        if (program.pipeline !== last) pass.setPipeline((last = program.pipeline!));
        pass.setBindGroup(0, group);
        pass.dispatchWorkgroups(across, down);
      }
    }
  }

  private async runLater(waits: Promise<void>[], runs: readonly Run[]): Promise<void> {
    await Promise.all(waits);
    for (const run of runs)
      if (run.onGpu) await this.inPortions(run);
      else await this.mirrors!.run(this.firsts[run.first]!, this.firsts[run.end]!);
  }

  /** Runs of all launches but those of init steps. */
  private get all(): Run[] {
    const { initCount, steps } = this.parts;
    this.whole ??= this.runsOf(initCount, steps.length);
    return this.whole;
  }

  /** Runs of the launches with steps first to end - 1. */
  private runs(first: number, end: number): Run[] {
    const { initCount, steps } = this.parts;
    return first === initCount && end === steps.length ? this.all : this.runsOf(first, end);
  }

  private runsOf(first: number, end: number): Run[] {
    const out: Run[] = [];
    this.launches.forEach((launch, i) => {
      const step = this.firsts[i]!;
      if (step < first || step >= end) return;
      const onGpu = launch !== undefined;
      const last = out.at(-1);
      if (last?.onGpu === onGpu) last.end = i + 1;
      else out.push({ first: i, end: i + 1, onGpu });
    });
    return out;
  }

  /** Writes registers and what has changed since the last run. */
  private refresh(runs: readonly Run[]): void {
    if (this.fresh && this.registers.length)
      this.device.gpu.write(this.buffers.registers, 0, new Int32Array(this.registers));
    this.fresh = false;
    const found = [...this.dirty].filter((i) =>
      runs.some(({ first, end }) => i >= first && i < end),
    );
    if (!found.length) return; // those of init steps may stay
    for (const i of found) {
      this.launches[i]!.connect();
      this.dirty.delete(i);
      this.made = this.next = undefined;
    }
    this.movers = this.launches.flatMap((launch) => launch?.movers ?? []);
  }

  private onGpu({ first, end }: Run): void {
    const { gpu } = this.device;
    this.move();
    let after = Math.min(first + CHUNK, end);
    for (let i = first; i < end; ) {
      if (i > first) gpu.submit();
      const pass = gpu.encoder().beginComputePass();
      this.encode(pass, i, after);
      pass.end();
      i = after;
      after = Math.min(i + MORE, end);
    }
    this.unchecked ||= this.fails;
  }

  /** Runs launches, and waits wherever the GPU has enough to do. */
  private async inPortions({ first, end }: Run): Promise<void> {
    const { pace } = this.device;
    const work = this.launches.map((_, i) => this.work(...this.spanOf(i)));
    for (let i = first; i < end; ) {
      const launch = this.launches[i]!;
      if (this.divides(i)) {
        this.move();
        for (const one of launch.members.length ? launch.members : [launch])
          await this.inPieces(one, this.work(one.index, one.index + one.steps.length));
        this.unchecked ||= this.fails;
        i++;
      } else {
        await this.wait(work[i]!);
        const after = pace.together(work, i, end);
        pace.give(this.work(this.firsts[i]!, this.firsts[after]!), performance.now());
        this.onGpu({ first: i, end: after, onGpu: true });
        i = after;
      }
    }
  }

  /** Runs the workgroups of a launch in several dispatches. */
  private async inPieces(launch: Launch, work: number): Promise<void> {
    const { gpu, pace } = this.device;
    try {
      for (const [i, { program, group }] of launch.list.entries()) {
        const count = launch.grids[i]!;
        for (let start = 0; start < count; ) {
          await this.wait(pace.bound);
          const size = pace.piece(count, start, work);
          launch.start(start);
          const pass = gpu.encoder().beginComputePass();
          pass.setPipeline(program.pipeline!);
          pass.setBindGroup(0, group);
          pass.dispatchWorkgroups(...folded(size));
          pass.end();
          pace.give((work * size) / count, performance.now());
          start += size;
        }
      }
    } finally {
      launch.start(0);
    }
  }

  /**
   * Waits until the GPU may be given more operations.
   * @throws EngineError it was lost meanwhile
   */
  private async wait(work: number): Promise<void> {
    const { gpu, pace } = this.device;
    if (!pace.waits(work)) return;
    gpu.submit();
    const begin = performance.now();
    await gpu.device.queue.onSubmittedWorkDone();
    if (gpu.lost) throw gpu.lost;
    const now = performance.now();
    pace.done(now, now - begin);
  }

  /** First step of a launch, and the one after its last. */
  spanOf(launch: number): [first: number, end: number] {
    return [this.firsts[launch]!, this.firsts[launch + 1]!];
  }

  /** What runs where. */
  get places(): PlanPlaces {
    const { initCount, steps } = this.parts;
    const onWasm: Record<string, string> = {};
    for (const [i, reason] of this.reasons) if (i >= initCount) onWasm[steps[i]!.kernel] = reason;
    return {
      dispatches: this.launches.reduce(
        (sum, launch, i) => sum + (this.firsts[i]! < initCount ? 0 : (launch?.dispatches ?? 0)),
        0,
      ),
      onWasm,
      downloads: this.mirrors?.downloads ?? 0,
      uploads: this.mirrors?.uploads ?? 0,
    };
  }

  /** Resolves when all programs have been compiled; rejects with the error of one. */
  async compiled(): Promise<void> {
    const all = this.runsOf(0, this.parts.steps.length);
    let waits: Promise<void>[];
    while ((waits = this.unmade(all)).length) await Promise.all(waits);
  }

  /** Frees what is the plan's own. */
  free(): void {
    this.mirrors?.free();
    for (const buffer of Object.values(this.buffers)) this.device.gpu.free(buffer);
  }
}
