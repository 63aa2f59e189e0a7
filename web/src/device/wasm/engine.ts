// The wasm device: instantiates core/'s WebAssembly without Emscripten's glue (the interface is
// described in wasm/Makefile), starts its threads and converts its error codes to errors. Each
// Engine has its own memory: closing it frees everything, and a model that corrupts it affects no
// other.

import { KERNELS } from "../../gen/kernels.ts";
import { LAYOUT } from "../../gen/plan_format.ts";
import { type EdgewiseError, EngineError, OutOfMemory } from "../../shared/errors.ts";
import { type Choice, type DeviceInfo, deviceInfo, WIDE_FLAVOUR } from "../../shared/platform.ts";
import { Share } from "../../shared/share.ts";
import { megabytes, message } from "../../shared/words.ts";
import type { Buffer, Device, Host, Pages, PlanHandle, PlanInfo, Watcher } from "../device.ts";
import { type DeviceOptions, MEDIA } from "../options.ts";
import { slotsOfPlan, stepsOf } from "../plan-header.ts";
import { type EngineExports, isWide, unsigned } from "./exports.ts";
import { type FailurePlace, failureOf } from "./failures.ts";
import { chosenModule, instantiate } from "./module.ts";
import { open, register, reportThreads } from "./registry.ts";
import { endThreads, startThreads, type Thread } from "./threads.ts";

/**
 * An instance of the engine with its own memory. Addresses are unsigned, sizes are in bytes. All
 * failures are EdgewiseErrors.
 */
export class Engine implements Device {
  /** Set once the engine has trapped; it must not be called again. */
  failure: EdgewiseError | undefined;
  /** Runs plans in place of the engine while a profile records. */
  watcher: Watcher | undefined;
  /** Number of plan runs. */
  runs = 0;
  private readonly described = new Map<PlanHandle, PlanInfo>();
  /** Arenas of plans that have several. */
  private readonly temps = new Map<PlanHandle, Buffer[]>();
  /** Slots of plans that are bound in pages. */
  private readonly paged = new Map<PlanHandle, Map<number, Pages>>();
  private closed = false;
  /** Threads that have a part of the page's processors. */
  claims = 0;
  private out = 0;
  private readonly share = new Share((threads, steps) =>
    this.exports.ew_share?.(this.handle, threads, steps),
  );
  readonly host: Host = {
    engine: 0,
    alloc: (bytes) => this.alloc(bytes, "generation"),
    free: (address) => this.free(address),
    write: (address, bytes) => this.bytes(address, bytes.length).set(bytes),
    floats: (address, count) => new Float32Array(this.memory.buffer, address, count),
    read: (address, bytes) => this.bytes(address, bytes).slice(),
    call: (name, ...args) => {
      const f = this.exports[name];
      if (typeof f !== "function")
        throw new EngineError(
          `the engine has no function ${name}`,
          "",
          "The engine and edgewise.js are of different versions.",
        );
      return this.call(() => (f as (...a: number[]) => number | undefined)(...args)) ?? 0;
    },
  };

  private constructor(
    readonly exports: EngineExports,
    readonly memory: WebAssembly.Memory,
    private readonly handle: number,
    readonly choice: Choice,
    private readonly threads: readonly Thread[],
    /** Milliseconds from the compiled module to the ready engine. */
    readonly instantiateMs: number,
    /** Options that it was opened with. */
    readonly options: DeviceOptions,
    /** Bytes that the memory can grow to. */
    readonly maxBytes: number,
  ) {}

  /**
   * Downloads, compiles and instantiates the engine, and starts its threads. If threads cannot be
   * started, continues with one; `choice.whyNotThreads` then has the reason.
   * @param beside whether it is beside a GPU, which does most of the work
   */
  static open(options: DeviceOptions, beside = false): Promise<Engine> {
    return register(Engine.opened(options, beside));
  }

  private static async opened(options: DeviceOptions, beside: boolean): Promise<Engine> {
    const chosen = await chosenModule(options);
    const { module } = chosen;
    let { choice } = chosen;
    const started = performance.now();
    const wide = isWide(module);
    const { memory, most } = makeMemory(choice.flavour !== "simd128", wide);
    const exports = await instantiate(module, memory);
    exports.__wasm_call_ctors();

    let handle = exports.ew_open(choice.threads);
    if (!handle) throw new OutOfMemory("the engine could not be opened", "", "Close other tabs.");
    let threads: Thread[] = [];
    if (choice.threads > 1) {
      try {
        threads = await startThreads(
          module,
          memory,
          exports,
          handle,
          choice.threads,
          options.threadUrl,
        );
      } catch (e) {
        // the threads that did start were ended together with their memory: start over without
        choice = {
          flavour: choice.flavour,
          threads: 1,
          whyNotThreads: `threads could not be started: ${message(e)}`,
        };
        const { memory: again, most: mostAgain } = makeMemory(true, wide);
        const single = await instantiate(module, again);
        single.__wasm_call_ctors();
        handle = single.ew_open(1);
        return new Engine(
          single,
          again,
          handle,
          choice,
          [],
          performance.now() - started,
          options,
          mostAgain,
        ).prepare(beside);
      }
    }
    return new Engine(
      exports,
      memory,
      handle,
      choice,
      threads,
      performance.now() - started,
      options,
      most,
    ).prepare(beside);
  }

  private prepare(beside: boolean): this {
    open.add(this);
    if (!beside) this.claims = this.choice.threads;
    reportThreads();
    (this.host as { engine: number }).engine = this.handle;
    this.out = unsigned(this.exports.ew_alloc(64));
    if (!this.out)
      throw new OutOfMemory("the engine could not allocate any memory", "", "Close other tabs.");
    return this;
  }

  get info(): DeviceInfo {
    return deviceInfo(this.choice, this.options.device, this.options.whyNotGpu);
  }

  /** Whether addresses are of 64 bits. */
  get wide(): boolean {
    return this.choice.flavour === WIDE_FLAVOUR;
  }

  /** Bytes of memory held. Does not shrink until `close`. */
  get memoryBytes(): number {
    return this.closed ? 0 : this.memory.buffer.byteLength;
  }

  /** Checksum of the kernel table; a plan must carry the same value. */
  get tableHash(): number {
    return this.call(() => this.exports.ew_table_hash()) >>> 0;
  }

  /**
   * The subset of the named kernels that this build does not contain. The name `media` means the
   * functions that resample pictures and sound.
   */
  lacks(kernels: readonly string[]): string[] {
    return kernels.filter((name) =>
      name === MEDIA
        ? !this.exports.ew_resize_open
        : !this.call(() => this.exports.ew_has_kernel(KERNELS.findIndex(([k]) => k === name))),
    );
  }

  /**
   * Allocates 64-byte aligned memory, zeroed unless `unset`: zeroing fresh memory that is
   * overwritten at once would be most of the cost of loading.
   * @throws OutOfMemory
   */
  private alloc(bytes: number, what: string, unset = false): number {
    const full = () =>
      new OutOfMemory(
        `out of memory for ${what} (${megabytes(bytes)})`,
        "",
        `The engine holds ${megabytes(this.memoryBytes)} of at most ` +
          `${megabytes(this.maxBytes)}. Use a smaller ` +
          "or a more strongly quantized model, fewer sequences at once, or close other tabs.",
      );
    if (!(bytes >= 0 && bytes <= this.maxBytes)) throw full();
    const address = unsigned(
      this.call(() => this.exports[unset ? "ew_alloc_unset" : "ew_alloc"](Math.max(1, bytes))),
    );
    if (!address) throw full();
    return address;
  }

  /** Frees memory returned by `alloc`; 0 is ignored. */
  private free(address: number): void {
    if (address && !this.closed && !this.failure) this.exports.ew_free(address);
  }

  /** A view of the engine's memory. Calls may grow the memory and thereby invalidate it. */
  private bytes(address: number, length: number): Uint8Array<ArrayBuffer> {
    return new Uint8Array(this.memory.buffer as ArrayBuffer, address, length);
  }

  allocate(bytes: number, what: string, unset: boolean | "weight" | "state" = false): Buffer {
    return new LinearBuffer(this.alloc(bytes, what, unset && unset !== "state"), bytes);
  }

  release(buffer: Buffer | undefined): void {
    if (buffer) this.free(addressOf(buffer));
  }

  write(buffer: Buffer, data: Uint8Array, at = 0): void {
    this.bytes(addressOf(buffer) + at, data.length).set(data);
  }

  fill(buffer: Buffer, value = 0, at = 0, bytes = buffer.bytes - at): void {
    this.bytes(addressOf(buffer) + at, bytes).fill(value);
  }

  async read(buffer: Buffer, at = 0, bytes = buffer.bytes - at): Promise<Uint8Array<ArrayBuffer>> {
    return this.bytes(addressOf(buffer) + at, bytes).slice();
  }

  copy(source: Buffer, target: Buffer, bytes = source.bytes): void {
    this.bytes(addressOf(target), bytes).set(this.bytes(addressOf(source), bytes));
  }

  checksum(buffer: Buffer, at: number, bytes: number): string {
    this.call(() => this.exports.ew_xxh64(addressOf(buffer) + at, bytes, this.out));
    return new DataView(this.memory.buffer)
      .getBigUint64(this.out, true)
      .toString(16)
      .padStart(16, "0");
  }

  async hosted(buffer: Buffer): Promise<number> {
    return addressOf(buffer);
  }

  /**
   * Loads and checks a plan. `where` is its name in errors; `title` and `notes` are for profiles.
   */
  loadPlan(
    bytes: Uint8Array,
    where: string,
    title = where,
    notes?: Uint8Array,
    kinds: readonly string[] = [],
  ): PlanHandle {
    const copy = this.alloc(bytes.length, "a plan", true);
    try {
      this.bytes(copy, bytes.length).set(bytes);
      this.check(
        this.call(() => this.exports.ew_plan_load(this.handle, copy, bytes.length, this.out)),
        where,
        true,
      );
      const view = new DataView(this.memory.buffer);
      const plan = (
        this.wide ? Number(view.getBigUint64(this.out, true)) : view.getUint32(this.out, true)
      ) as PlanHandle;
      this.described.set(plan, { title, notes, ...stepsOf(bytes) });
      try {
        this.bindTemps(plan, bytes, kinds);
      } catch (e) {
        this.freePlan(plan);
        throw e;
      }
      return plan;
    } finally {
      this.free(copy);
    }
  }

  /** Binds the slots in which a plan for another device has its arenas. */
  private bindTemps(plan: PlanHandle, bytes: Uint8Array, kinds: readonly string[]): void {
    if (!kinds.includes("temp")) return;
    const temps: Buffer[] = [];
    this.temps.set(plan, temps);
    for (const [slot, { bytes: size }] of slotsOfPlan(bytes)!.entries())
      if (kinds[slot] === "temp") {
        temps.push(this.allocate(size, "what is between steps"));
        this.bind(plan, slot, temps.at(-1)!);
      }
  }

  bind(plan: PlanHandle, slot: number, buffer: Buffer, where = ""): void {
    this.check(
      this.call(() => this.exports.ew_plan_bind(plan, slot, addressOf(buffer), buffer.bytes)),
      where || `slot ${slot}`,
    );
  }

  bindPages(plan: PlanHandle, slot: number, pages: Pages, where: string): void {
    const { table, count } = pages;
    this.check(
      this.call(() => this.exports.ew_plan_pages(plan, slot, addressOf(table), count)),
      where,
    );
    if (!this.paged.has(plan)) this.paged.set(plan, new Map());
    this.paged.get(plan)!.set(slot, pages);
  }

  /**
   * Runs a plan: brings the pages that it waits for, and waits for its turn. Returns the code that
   * the run ends with, or PAUSED.
   */
  private whole(plan: PlanHandle, run: () => number): number {
    this.share.begin();
    let code = this.call(run);
    while (code === AWAY || code === TURN) {
      if (code === TURN) this.share.turn();
      else {
        const { operand, detail } = this.lastError();
        this.paged.get(plan)!.get(operand)!.bring(Number(detail));
      }
      code = this.call(() => this.exports.ew_plan_go_on(plan));
    }
    return code;
  }

  /** Unbinds a slot: runs that use it fail until it is bound again. */
  unbind(plan: PlanHandle, slot: number): void {
    this.check(
      this.call(() => this.exports.ew_plan_bind(plan, slot, 0, 0)),
      `slot ${slot}`,
    );
  }

  /** Whether steps other than init steps use a slot. */
  inRuns(plan: PlanHandle, slot: number): boolean {
    return (this.call(() => this.exports.ew_plan_slot_use(plan, slot)) & 2) !== 0;
  }

  /** First init step that uses a slot, and one past the last; [0, 0] if there is none. */
  initSpan(plan: PlanHandle, slot: number): [begin: number, end: number] {
    const at = (end: number) =>
      this.call(() => this.exports.ew_plan_slot_init(plan, slot, end)) >>> 0;
    return [at(0), at(1)];
  }

  /**
   * Sets a register, on which symbolic values of the plan depend.
   * @throws PlanError if the value is out of range
   */
  register(plan: PlanHandle, register: number, value: number): void {
    this.check(
      this.call(() => this.exports.ew_plan_register(plan, register, BigInt(value))),
      `register ${register}`,
    );
    if (register === 0) this.described.get(plan)!.first = value;
  }

  /**
   * Runs the init steps, which fill `computed` slots from weights.
   * @throws as {@link run}
   */
  init(plan: PlanHandle, where: string): void {
    this.check(
      this.whole(plan, () => this.exports.ew_plan_init(plan)),
      where,
    );
  }

  /**
   * Runs a range of the init steps. Only the slots that they use must be bound.
   * @throws as {@link run}
   */
  initSteps(plan: PlanHandle, first: number, count: number, where: string): void {
    this.check(
      this.whole(plan, () => this.exports.ew_plan_init_steps(plan, first, count)),
      where,
    );
  }

  /**
   * Runs all steps except init steps.
   * @throws InputError if an index in the data is out of range
   * @throws OutOfMemory, EngineError
   */
  run(plan: PlanHandle, where: string): void {
    this.runs++;
    if (this.watcher) this.watcher.run(plan, where);
    else
      this.check(
        this.whole(plan, () => this.exports.ew_plan_run(plan)),
        where,
      );
  }

  runSome(plan: PlanHandle, where: string, trips: number): boolean {
    const code = this.whole(plan, () => this.exports.ew_plan_run_some(plan, trips));
    if (code !== PAUSED) this.runs++;
    this.check(code === PAUSED ? 0 : code, where);
    return code !== PAUSED;
  }

  limitTrips(plan: PlanHandle, limit: number): number {
    return this.call(() => this.exports.ew_plan_trips(plan, Math.min(limit, 0xffffffff))) >>> 0;
  }

  /**
   * Runs one step; `step` does not count init steps. The engine has no clock, so profiles run a
   * plan step by step to measure it.
   */
  runStep(plan: PlanHandle, step: number, where: string): void {
    this.runSteps(plan, step, 1, where);
  }

  /** Runs steps; `first` does not count init steps. Only the slots that they use must be bound. */
  runSteps(plan: PlanHandle, first: number, count: number, where: string): void {
    this.check(
      this.whole(plan, () => this.exports.ew_plan_run_steps(plan, first, count, 0)),
      where,
    );
  }

  async ready(): Promise<void> {}

  /** Properties of a plan, for profiles. */
  describe(plan: PlanHandle): PlanInfo {
    return this.described.get(plan)!;
  }

  /** Frees a plan; buffers bound to its slots stay. */
  freePlan(plan: PlanHandle): void {
    this.described.delete(plan);
    this.paged.delete(plan);
    if (!this.closed && !this.failure) this.exports.ew_plan_free(plan);
    for (const buffer of this.temps.get(plan) ?? []) this.release(buffer);
    this.temps.delete(plan);
  }

  /** Ends the threads and releases the memory. Idempotent. */
  close(): void {
    if (this.closed) return;
    this.closed = true;
    try {
      if (!this.failure) this.exports.ew_close(this.handle);
    } catch {
      // it is discarded in any case
    }
    endThreads(this.threads);
    open.delete(this);
    reportThreads();
  }

  /**
   * Calls the engine. A trap (a bug, or stack overflow) marks this engine as failed permanently.
   */
  call<T>(f: () => T): T {
    if (this.failure) throw this.failure;
    if (this.closed)
      throw new EngineError(
        "the engine has been closed",
        "",
        "Make a new pipeline: this one was disposed of.",
      );
    try {
      return f();
    } catch (e) {
      if (e instanceof WebAssembly.RuntimeError || e instanceof RangeError)
        this.failure = new EngineError(
          `the engine stopped (${message(e)})`,
          "",
          "Make a new pipeline; if it happens again, please report it with the model.",
        );
      throw this.failure ?? e;
    }
  }

  /** Throws the error of a failed call. */
  check(code: number, where: string, loading = false): void {
    if (code !== 0) throw failureOf(code, where, loading, this.lastError());
  }

  /** Where the last call failed. */
  private lastError(): FailurePlace {
    const at = unsigned(this.exports.ew_last_error(this.handle));
    const view = new DataView(this.memory.buffer);
    return {
      step: view.getInt32(at + LAYOUT.error.at.step, true),
      operand: view.getInt32(at + LAYOUT.error.at.operand, true),
      kernel: view.getInt32(at + LAYOUT.error.at.kernel, true),
      detail: view.getBigInt64(at + LAYOUT.error.at.detail, true),
    };
  }
}

/** A range of linear memory. */
export class LinearBuffer implements Buffer {
  constructor(
    /** Address in linear memory. */
    readonly address: number,
    readonly bytes: number,
  ) {}

  part(offset: number, bytes = this.bytes - offset): Buffer {
    return new LinearBuffer(this.address + offset, bytes);
  }
}

/** Address of a buffer allocated by an {@link Engine}. */
export function addressOf(buffer: Buffer): number {
  return (buffer as LinearBuffer).address;
}

const PAGE = 65536;
const PAUSED = -1; // EW_PAUSED
const AWAY = -2; // EW_AWAY
const TURN = -3; // EW_TURN
const INITIAL_PAGES = 32;

/** Bytes that an engine with 32-bit addresses can have. */
export const MAX_NARROW = 0xffff_0000;

/**
 * Reserves address space for 4 GB, with 64-bit addresses 16 GB, or less if the device does not
 * allow that; the reservation is the maximum that the memory can grow to.
 */
function makeMemory(shared: boolean, wide: boolean): { memory: WebAssembly.Memory; most: number } {
  let last: unknown;
  for (const gigabytes of wide ? [16, 8] : [4, 2, 1, 0.5, 0.25]) {
    const maximum = gigabytes * (2 ** 30 / PAGE);
    const most = wide ? maximum * PAGE : Math.min(maximum * PAGE, MAX_NARROW);
    try {
      // TypeScript does not know BigInt limits
      const memory = new WebAssembly.Memory({
        ...(wide
          ? { initial: BigInt(INITIAL_PAGES), maximum: BigInt(maximum), address: "i64" }
          : { initial: INITIAL_PAGES, maximum }),
        shared,
      } as unknown as WebAssembly.MemoryDescriptor);
      return { memory, most };
    } catch (e) {
      last = e;
    }
  }
  throw new OutOfMemory(
    `the browser did not allocate memory for the engine (${message(last)})`,
    "",
    "Close other tabs.",
  );
}
