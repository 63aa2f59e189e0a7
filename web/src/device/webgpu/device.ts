// The WebGPU device: plans that the engine in C has checked, on the browser's GPU, and steps that
// have no shader in WebAssembly.

import { KERNELS } from "../../gen/kernels.ts";
import { ERRORS } from "../../gen/plan_format.ts";
import { SHADERS } from "../../gen/shaders.ts";
import { packed_dots } from "../../logic/gpu/link.ts";
import { Pace } from "../../logic/gpu/pace.ts";
import type { Program } from "../../logic/gpu/wgsl.ts";
import { type EdgewiseError, EngineError, OutOfMemory } from "../../shared/errors.ts";
import type { Choice, DeviceInfo } from "../../shared/platform.ts";
import { message } from "../../shared/words.ts";
import type { Buffer, Device, Host, Picker, PlanHandle, PlanInfo, Watcher } from "../device.ts";
import type { DeviceOptions } from "../options.ts";
import { Engine } from "../wasm/engine.ts";
import { failureOf } from "../wasm/failures.ts";
import { type ChoiceDevice, ChoicePrograms, GpuPicker } from "./choice.ts";
import type { GpuContext } from "./context.ts";
import { Gpu, hasDots } from "./gpu.ts";
import { Arenas, GpuMemory, type GpuRange, noMemory } from "./memory.ts";
import { Order } from "./order.ts";
import { Pipelines } from "./pipelines.ts";
import { type Aside, GpuPlan } from "./plan.ts";
import { kernelsOf } from "./steps.ts";
import { Transfers, type WordRange, wordsOf } from "./transfer.ts";
import { loadParts, missingParts } from "./variants.ts";

const INDEX = Number(Object.entries(ERRORS).find(([, [name]]) => name === "INDEX")![0]);
/** A GPU that is lost again within this time is not tried again. */
const PATIENCE_MS = 300_000;
const range = (buffer: Buffer): GpuRange => buffer as GpuRange;

/** A GPU and the engine that checks its plans. Failures of work that waits come with a read. */
export class GpuDevice implements Device, GpuContext, ChoiceDevice {
  readonly pipelines: Pipelines;
  readonly pace: Pace;
  readonly texts = new Map<string, Program>();
  readonly machine = new Map([["dot_of_packed", packed_dots(hasDots())]]);
  runs = 0;
  /** Why it was chosen, by `auto`. */
  why = "";
  readonly refused = new Map<string, string>();
  readonly tuned: Record<string, number> = {};
  /** Kernels and forms that were tested; undefined: none are. */
  private tested: Set<string> | undefined;
  watcher: Watcher | undefined;
  private readonly memory: GpuMemory;
  private readonly transfers: Transfers;
  private readonly order = new Order();
  private readonly plans = new Map<PlanHandle, GpuPlan>();
  /** What is between the steps of all plans. */
  private readonly arenas = new Arenas(this.plans.values.bind(this.plans), {
    allocate: (bytes) => this.allocate(bytes, "what is between steps"),
    release: (range) => this.memory.release(range),
  });
  /** Allocations whose success is not yet known. */
  private readonly scopes = new Set<Promise<void>>();
  /** Copies of buffers in the host's memory: address and bytes. */
  private readonly copies = new Map<Buffer, [address: number, bytes: number]>();

  private choices: ChoicePrograms | undefined;
  /** What took its place when it was lost. */
  private next: GpuDevice | undefined;
  /** Plans that were loaded before they were asked for. */
  private readonly begun = new Map<Uint8Array, PlanHandle>();
  /** Plans that the engine holds for it. */
  private readonly loaded = new Set<PlanHandle>();
  /** Whether the engine beside it serves others, too: `close` leaves that as it was. */
  guest = false;

  /** @param restarted when it took the place of a lost one, as of performance.now() */
  private constructor(
    readonly gpu: Gpu,
    readonly wasm: Engine,
    readonly options: DeviceOptions,
    private readonly restarted = -Infinity,
  ) {
    this.pipelines = new Pipelines(gpu);
    this.pace = new Pace(gpu.software);
    this.transfers = new Transfers(gpu);
    this.memory = new GpuMemory(gpu, (make, failed) => {
      gpu.device.pushErrorScope("out-of-memory");
      const buffer = make();
      const heard = gpu.device
        .popErrorScope()
        .then((e) => e && this.order.fail(failed()))
        .catch(() => undefined) // lost
        .then(() => void this.scopes.delete(heard));
      this.scopes.add(heard);
      return buffer;
    });
    gpu.device.onuncapturederror = ({ error }) =>
      this.order.fail(
        error instanceof GPUOutOfMemoryError
          ? noMemory(`of the GPU (${error.message})`)
          : new EngineError(
              `the GPU refused a command (${error.message})`,
              "webgpu",
              "Report this; the device 'wasm' runs the model.",
            ),
      );
  }

  /**
   * Opens the GPU, and the engine in WebAssembly beside it.
   * @param tested false: also a GPU that computes wrongly, for a report on it
   * @throws EngineError there is no GPU, or one that computes wrongly; InputError, OutOfMemory
   */
  static async open(options: DeviceOptions, tested = true): Promise<GpuDevice> {
    const opening = Engine.open(options, true);
    opening.catch(() => undefined);
    let gpu: Gpu;
    try {
      gpu = await Gpu.open(options.device === "webgpu");
    } catch (e) {
      opening.then(
        (engine) => engine.close(),
        () => undefined,
      );
      throw e;
    }
    const engine = await opening.catch((e: unknown) => {
      gpu.device.destroy();
      throw e;
    });
    const opened = new GpuDevice(gpu, engine, options);
    if (!tested) return opened;
    return opened.checked().catch((e: unknown) => {
      gpu.close();
      engine.close();
      throw e;
    });
  }

  /**
   * Itself, after the test of its GPU. Kernels and forms of plans that are loaded afterwards are
   * tested, and shaders tuned. Throws EngineError if that computes wrongly.
   */
  async checked(): Promise<this> {
    const { checkGpu } = await import("./self-test.ts");
    await checkGpu(this, this.wasm);
    this.tested = new Set();
    return this;
  }

  /**
   * Opens a GPU that is none in software beside an engine, to measure it: call `checked` before its
   * results are used. Throws as `open`.
   */
  static async beside(wasm: Engine): Promise<GpuDevice> {
    return new GpuDevice(await Gpu.open(false), wasm, wasm.options);
  }

  /** Frees what the engine holds for it. */
  private abandon(): void {
    const { wasm, plans, copies } = this;
    for (const handle of [...this.loaded]) this.unload(handle);
    for (const plan of plans.values()) plan.free();
    plans.clear();
    for (const [address] of copies.values()) wasm.host.free(address);
    copies.clear();
  }

  get lost(): EdgewiseError | undefined {
    return this.gpu.lost;
  }

  async replacement(error?: unknown): Promise<Device | undefined> {
    const { gpu, wasm, options } = this;
    const full = error instanceof OutOfMemory && error;
    if (full) {
      gpu.lost ??= full;
      gpu.device.destroy();
    }
    if (!gpu.lost || gpu.closed) return undefined;
    const again = this.next && (full || this.next.gpu.lost);
    this.abandon();
    this.next?.abandon(); // it could not be filled
    this.next?.gpu.close();
    const now = performance.now();
    try {
      if (again || now - this.restarted < PATIENCE_MS) throw gpu.lost;
      const other = await Gpu.open(options.device === "webgpu");
      this.next = new GpuDevice(other, wasm, options, now);
      this.next.why = this.why;
      if (this.tested) this.next.tested = new Set();
      return this.next;
    } catch (e) {
      const words = message(e) === message(gpu.lost) ? "again" : `and then ${message(e)}`;
      Object.assign(wasm.options, { whyNotGpu: `${gpu.lost.what}, ${words}` });
      return wasm;
    }
  }

  get processor(): Device {
    return this.wasm;
  }
  get choice(): Choice {
    return this.wasm.choice;
  }
  get host(): Host {
    return this.wasm.host;
  }
  get instantiateMs(): number {
    return this.wasm.instantiateMs;
  }
  get tableHash(): number {
    return this.wasm.tableHash;
  }
  get memoryBytes(): number {
    return this.wasm.memoryBytes + this.memory.bytes;
  }

  get info(): DeviceInfo {
    const { flavour, threads } = this.choice;
    const onWasm: Record<string, string> = {};
    let [downloads, uploads] = [0, 0];
    for (const { places } of this.plans.values()) {
      Object.assign(onWasm, places.onWasm);
      downloads += places.downloads;
      uploads += places.uploads;
    }
    return {
      name: "webgpu",
      flavour,
      threads,
      why: this.why,
      gpu: {
        adapter: this.gpu.name,
        pipelines: this.pipelines.size,
        onWasm,
        tuned: { ...this.tuned },
        downloads,
        uploads,
      },
    };
  }

  lacks(kernels: readonly string[]): string[] {
    return this.wasm.lacks(kernels);
  }

  /** Nothing is done on a lost GPU, and the next read says so. */
  add(work: () => void | Promise<void>): void {
    if (!this.gpu.lost) this.order.add(work);
  }

  // ---- memory
  allocate(bytes: number, what: string, use: boolean | "weight" | "state" = false): GpuRange {
    if (typeof use === "boolean") return this.memory.allocate(bytes, what);
    const buffer = this.memory.shared(bytes, what, use);
    if (use === "state") this.fill(buffer);
    return buffer;
  }

  release(buffer: Buffer | undefined): void {
    if (!buffer || this.gpu.lost) return;
    this.add(() => {
      const [address] = this.copies.get(buffer) ?? [0];
      if (address) this.host.free(address);
      this.copies.delete(buffer);
      this.memory.release(range(buffer));
    });
  }

  write(buffer: Buffer, data: Uint8Array, at = 0): void {
    const bytes = this.order.idle ? data : data.slice();
    this.add(() => this.store(buffer, bytes, at));
  }

  store(buffer: Buffer, data: Uint8Array, at: number): void | Promise<void> {
    const to = range(buffer);
    if (!data.length || this.transfers.write(to, data, at)) return;
    const [words, first] = wordsOf(to, at, data.length);
    const own = data.slice(); // the caller may change it meanwhile
    return this.transfers.read([words]).then(([old]) => {
      old!.set(own, to.offset + at - first);
      this.transfers.put(words.gpu, words.offset, old!);
    });
  }

  fill(buffer: Buffer, value = 0, at = 0, bytes = buffer.bytes - at): void {
    const to = range(buffer);
    const begin = to.offset + at;
    const whole = begin + bytes === to.limit ? Math.ceil(bytes / 4) * 4 : bytes;
    if (begin % 4 || whole % 4) this.write(buffer, new Uint8Array(bytes).fill(value), at);
    else this.add(() => this.transfers.fill(to.block.gpu, begin, whole, value));
  }

  read(buffer: Buffer, at = 0, bytes = buffer.bytes - at): Promise<Uint8Array<ArrayBuffer>> {
    return this.reading(() => this.fetch(buffer, at, bytes));
  }

  readAll(
    ranges: readonly (readonly [buffer: Buffer, bytes: number])[],
  ): Promise<Uint8Array<ArrayBuffer>[]> {
    // with one map, unless its buffer would be too large
    return ranges.reduce((sum, [, bytes]) => sum + bytes, 0) > this.gpu.bufferBytes / 2
      ? Promise.all(ranges.map(([buffer, bytes]) => this.read(buffer, 0, bytes)))
      : this.reading(() => this.fetchAll(ranges.map(([buffer, bytes]) => [buffer, 0, bytes])));
  }

  reading<T>(work: () => Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      const begin = () => {
        try {
          this.order.thrown();
          work().then(resolve, reject);
        } catch (e) {
          reject(e);
        }
      };
      if (this.gpu.lost) reject(this.gpu.lost);
      else this.order.add(begin);
    });
  }

  async fetch(buffer: Buffer, at: number, bytes: number): Promise<Uint8Array<ArrayBuffer>> {
    const [data] = await this.fetchAll([[buffer, at, bytes]]);
    return data!;
  }

  private async fetchAll(
    ranges: readonly (readonly [buffer: Buffer, at: number, bytes: number])[],
    failures?: number,
  ): Promise<Uint8Array<ArrayBuffer>[]> {
    const places = ranges.map(([buffer, at, bytes]) => wordsOf(range(buffer), at, bytes));
    const found = await this.fetchWords(
      places.map(([words]) => words),
      failures,
    );
    return found.map((data, i) => {
      const [buffer, at, bytes] = ranges[i]!;
      const begin = range(buffer).offset + at - places[i]![1];
      return data.length === bytes ? data : data.slice(begin, begin + bytes);
    });
  }

  /** @param failures after which it hears of others; undefined: of all, and of plans that ran */
  async fetchWords(
    words: readonly WordRange[],
    failures?: number,
  ): Promise<Uint8Array<ArrayBuffer>[]> {
    const own = failures !== undefined;
    const heard = () => (own ? this.order.since(failures) : this.order.thrown());
    const plans = own ? [] : [...this.plans.values()].filter(({ unchecked }) => unchecked);
    for (const plan of plans) plan.unchecked = false;
    const errors = plans.map((plan) => ({ gpu: plan.buffers.errors, offset: 0, bytes: 8 }));
    if (words.every(({ bytes }) => !bytes) && !plans.length)
      return words.map(() => new Uint8Array(0));
    const { submitted } = this.pace;
    const reading = this.transfers.read([...words, ...errors]);
    for (const plan of plans) plan.anticipate();
    const data = await reading.catch((e: unknown) => {
      heard(); // of which it may have come
      throw e;
    });
    this.pace.read(submitted);
    const found = data.splice(words.length);
    await Promise.all(this.scopes); // an allocation that this read waited for may have failed
    const wrong = found.flatMap((error, i) => this.indexError(plans[i]!, error) ?? []);
    heard();
    if (wrong.length) throw wrong[0];
    return data;
  }

  indexError(plan: GpuPlan, words: Uint8Array<ArrayBuffer>): Error | undefined {
    const view = new DataView(words.buffer, words.byteOffset, 8);
    const step = view.getUint32(0, true) - 1;
    if (step < 0) return undefined;
    this.transfers.put(plan.buffers.errors, 0, new Uint8Array(16));
    const name = plan.parts.steps[step]!.kernel;
    return failureOf(INDEX, plan.running, false, {
      step,
      operand: -1,
      kernel: KERNELS.findIndex(([kernel]) => kernel === name),
      detail: BigInt(view.getInt32(4, true)),
    });
  }

  copy(source: Buffer, target: Buffer, bytes = source.bytes): void {
    const [from, to] = [range(source), range(target)];
    const whole = Math.ceil(bytes / 4) * 4;
    const fits = bytes === whole || to.offset + bytes === to.limit;
    this.add(() => {
      if (fits && from.offset % 4 === 0 && to.offset % 4 === 0)
        this.transfers.copy(from.block.gpu, from.offset, to.block.gpu, to.offset, whole);
      else return this.fetch(from, 0, bytes).then((data) => this.store(to, data, 0));
    });
  }

  picker(logits: Buffer, count: number): Picker {
    this.choices ??= new ChoicePrograms(this.gpu);
    return new GpuPicker(this, this.choices, range(logits), count);
  }

  async hosted(buffer: Buffer): Promise<number> {
    const data = await this.read(buffer);
    let [address, bytes] = this.copies.get(buffer) ?? [0, -1];
    if (bytes < data.length) {
      if (address) this.host.free(address);
      address = this.host.alloc(data.length);
      bytes = data.length;
      this.copies.set(buffer, [address, bytes]);
    }
    this.host.write(address, data);
    return address;
  }

  async ready(): Promise<void> {
    await this.order.settled();
    const plans = Array.from(this.plans.values(), (plan) => plan.compiled());
    await Promise.all([...this.scopes, ...plans, this.choices?.made]);
    if (this.gpu.lost) throw this.gpu.lost;
    this.order.thrown();
  }

  // ---- plans
  loadPlan(
    bytes: Uint8Array,
    where: string,
    title = where,
    notes?: Uint8Array,
    kinds: readonly string[] = [],
  ): PlanHandle {
    if (this.gpu.lost) throw this.gpu.lost;
    const begun = this.begun.get(bytes);
    this.begun.delete(bytes);
    if (begun !== undefined) return begun;
    const handle = this.wasm.loadPlan(bytes, where, title, notes);
    this.loaded.add(handle);
    const make = (): void | Promise<void> => {
      const plan = new GpuPlan(this, handle, bytes, kinds, where);
      const forms = this.untested(plan.forms);
      const add = () => {
        this.plans.set(handle, plan);
        this.arenas.bind(plan);
      };
      if (!forms.length) return add();
      return this.computesWrongly(forms).then(
        (wrong) => {
          this.mark(forms);
          if (!wrong) return add();
          plan.free();
          return make(); // without them, which may have other forms
        },
        (e: unknown) => {
          plan.free();
          throw e;
        },
      );
    };
    try {
      const ready = this.prepared(kernelsOf(bytes));
      this.add(ready ? () => ready().then(make) : make);
    } catch (e) {
      this.freePlan(handle);
      throw e;
    }
    return handle;
  }

  /** Names that were not tested before; none where nothing is tested. */
  private untested(names: Iterable<string>): string[] {
    const { tested } = this;
    return tested ? [...names].filter((name) => !tested.has(name)) : [];
  }

  /** Notes that names were tested. */
  private mark(names: readonly string[]): void {
    for (const name of names) this.tested?.add(name);
  }

  /** Tests kernels or forms. Returns whether one of them is wrong. */
  private async computesWrongly(names: readonly string[]): Promise<boolean> {
    return (await import("./self-test.ts")).checkNames(this, names);
  }

  /** Loads the shaders of kernels, and tests them; undefined: that was done. */
  private prepared(kernels: Iterable<string>): (() => Promise<void>) | undefined {
    const parts = missingParts(kernels, this.machine, this.gpu.software);
    if (!parts.length && !this.untested(kernels).length) return undefined;
    return async () => {
      await loadParts(parts, this);
      const fresh = this.untested(kernels); // after the plans before it
      if (fresh.length) await this.computesWrongly(fresh);
      if (!this.gpu.software && fresh.some((kernel) => SHADERS[kernel]?.tune))
        await (await import("./tuning.ts")).tune(this, fresh);
      this.mark(fresh);
    };
  }

  async atOnce(
    bytes: Uint8Array,
    given: readonly Uint8Array[],
    wanted: readonly number[],
  ): Promise<[here: Uint8Array<ArrayBuffer>[], there: Uint8Array<ArrayBuffer>[]]> {
    return this.aside(bytes, given, async ({ load, read, expected }) => {
      const plan = load();
      const { initCount, steps } = plan.parts;
      if (initCount) await plan.run(0, initCount);
      await plan.run(initCount, steps.length);
      const found = read(wanted);
      return [await expected(wanted), await found];
    });
  }

  /**
   * Does work with a plan between others that wait.
   * @param given contents of its slots
   */
  async aside<T>(
    bytes: Uint8Array,
    given: readonly Uint8Array[],
    work: (on: Aside) => Promise<T>,
  ): Promise<T> {
    const { wasm, memory, machine, gpu } = this;
    const { failures } = this.order; // those before are of other work
    const where = "self-test";
    const handle = wasm.loadPlan(bytes, where);
    const loaded: GpuPlan[] = [];
    const there: GpuRange[] = [];
    const here: Buffer[] = [];
    try {
      await loadParts(missingParts(kernelsOf(bytes), machine, gpu.software), this);
      const kinds = given.map(() => "state");
      for (const [slot, data] of given.entries()) {
        there.push(memory.allocate(data.length, "the test of a GPU"));
        here.push(wasm.allocate(data.length, "the test of a GPU"));
        wasm.bind(handle, slot, here[slot]!);
        wasm.write(here[slot]!, data);
        await this.store(there[slot]!, data, 0);
      }
      return await work({
        load: (tuned) => {
          const plan = new GpuPlan(this, handle, bytes, kinds, where, tuned);
          loaded.push(plan);
          this.plans.set(handle, plan);
          for (const [slot, buffer] of there.entries()) plan.bind(slot, buffer, where);
          return plan;
        },
        read: (slots) =>
          this.fetchAll(
            slots.map((i) => [there[i]!, 0, given[i]!.length]),
            failures,
          ),
        expected: (slots) => {
          wasm.init(handle, where);
          wasm.run(handle, where);
          return Promise.all(slots.map((i) => wasm.read(here[i]!)));
        },
      });
    } finally {
      wasm.freePlan(handle);
      for (const plan of loaded) plan.free();
      this.plans.delete(handle);
      for (const buffer of here) wasm.release(buffer);
      for (const buffer of there) memory.release(buffer);
    }
  }

  loadSoon(...plan: Parameters<Device["loadPlan"]>): void {
    this.choices ??= new ChoicePrograms(this.gpu);
    this.begun.set(plan[0], this.loadPlan(...plan));
  }

  freePlan(handle: PlanHandle): void {
    if (this.gpu.lost) return;
    this.add(() => {
      this.unload(handle);
      this.plans.get(handle)?.free();
      this.plans.delete(handle);
      this.arenas.mend();
    });
  }

  /** Frees a plan in the engine, once: its handle may then be another plan's. */
  private unload(handle: PlanHandle): void {
    if (this.loaded.delete(handle)) this.wasm.freePlan(handle);
  }

  plan(handle: PlanHandle): GpuPlan {
    const plan = this.plans.get(handle);
    if (plan) return plan;
    throw new EngineError("a plan could not be loaded", "webgpu", "Load the model again.");
  }

  bind(handle: PlanHandle, slot: number, buffer: Buffer, where = ""): void {
    this.add(() => this.plan(handle).bind(slot, range(buffer), where));
  }

  unbind(handle: PlanHandle, slot: number): void {
    this.add(() => this.plan(handle).unbind(slot));
  }

  inRuns(plan: PlanHandle, slot: number): boolean {
    return this.wasm.inRuns(plan, slot);
  }

  initSpan(plan: PlanHandle, slot: number): [begin: number, end: number] {
    return this.wasm.initSpan(plan, slot);
  }

  register(handle: PlanHandle, register: number, value: number): void {
    this.add(() => {
      this.wasm.register(handle, register, value);
      this.plan(handle).register(register, value);
    });
  }

  init(handle: PlanHandle, where: string): void {
    this.go(handle, where, (plan) => [0, plan.parts.initCount]);
  }

  initSteps(handle: PlanHandle, first: number, count: number, where: string): void {
    if (count) this.go(handle, where, () => [first, first + count]);
  }

  run(handle: PlanHandle, where: string): void {
    this.runs++;
    if (this.watcher) this.watcher.run(handle, where);
    else this.go(handle, where, ({ parts }) => [parts.initCount, parts.steps.length]);
  }

  runStep(handle: PlanHandle, step: number, where: string): void {
    this.runSteps(handle, step, 1, where);
  }

  /** Runs steps; `first` does not count init steps. */
  runSteps(handle: PlanHandle, first: number, count: number, where: string): void {
    this.go(handle, where, ({ parts: { initCount: init } }) => [
      init + first,
      init + first + count,
    ]);
  }

  /** Runs work on a plan in the order of calls; not after a failure that no read has reported. */
  within(handle: PlanHandle, where: string, work: (plan: GpuPlan) => void | Promise<void>): void {
    this.add(() => {
      if (this.order.failed) return;
      const plan = this.plan(handle);
      plan.running = where;
      return work(plan);
    });
  }

  private go(
    handle: PlanHandle,
    where: string,
    steps: (plan: GpuPlan) => [first: number, end: number],
  ): void {
    this.within(handle, where, (plan) => {
      const [first, end] = steps(plan);
      if (first === end) return;
      if (first < plan.parts.initCount) for (const one of this.plans.values()) one.computed();
      return plan.run(first, end);
    });
  }

  describe(plan: PlanHandle): PlanInfo {
    return this.wasm.describe(plan);
  }

  close(): void {
    if (this.guest) this.abandon();
    this.transfers.close();
    this.memory.close();
    this.gpu.close();
    if (!this.guest) this.wasm.close();
  }
}
