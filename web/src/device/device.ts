// The interface between a device and the code that runs models on it. Python compiles plans, C
// loads and checks them, a device runs them: WebAssembly on the CPU (wasm/), or a GPU (webgpu/).
//
// Operations are queued in call order. Only `read`, and functions based on it, wait for their
// completion; a device may defer all work until the first `read`.

import type { EdgewiseError } from "../shared/errors.ts";
import type { Choice, DeviceInfo } from "../shared/platform.ts";
import type { DeviceOptions } from "./options.ts";

/** A range of a device's memory. Its contents are accessed through {@link Device} only. */
export interface Buffer {
  /** Size in bytes. */
  readonly bytes: number;
  /** Whether it has turned out that there was no memory for it. */
  readonly failed?: boolean;
  /**
   * A sub-range, which shares this range's memory and is freed with it.
   * @param offset in bytes from the beginning of this range
   * @param bytes default: up to the end
   */
  part(offset: number, bytes?: number): Buffer;
}

/** Equal parts of a weight, of which some are in memory at a time. */
export interface Pages {
  readonly count: number;
  /** `count` entries (ew_page_entry of core/engine.h). */
  readonly table: Buffer;
  /**
   * Brings a page at once, and puts its address into the table.
   * @throws ModelError, PackageError if it cannot be read
   */
  bring(page: number): void;
}

/** A loaded and checked plan; a handle issued by the device. */
export type PlanHandle = number & { readonly __plan: unique symbol };

/** Properties of a loaded plan, for profiles and for planning the memory of its init steps. */
export interface PlanInfo {
  /** Name of the plan in profiles. */
  title: string;
  /** Notes of the package about the plan (python/edgewise/compiler/plan/notes.py). */
  notes: Uint8Array | undefined;
  arenaBytes: number;
  /** Number of init steps. */
  initCount: number;
  /** Kernel of each step, excluding init steps. */
  kernels: string[];
  /** Minimum and maximum of the first register. */
  range: [low: number, high: number];
  /** Current value of the first register. */
  first: number;
}

/** Runs plans in place of the device while a profile records them. */
export interface Watcher {
  run(plan: PlanHandle, where: string): void;
}

/**
 * C functions that always run on the CPU (core/sampling/sampling.h), and their memory, which the
 * addresses refer to.
 */
export interface Host {
  /** The engine, for functions that use its threads. */
  readonly engine: number;
  /**
   * Allocates zeroed memory.
   * @throws OutOfMemory
   */
  alloc(bytes: number): number;
  /** Frees memory returned by `alloc`. */
  free(address: number): void;
  /** Copies bytes to an address. */
  write(address: number, bytes: Uint8Array): void;
  /** The float32 numbers at an address, until memory is next allocated. */
  floats(address: number, count: number): Float32Array;
  /** Copies bytes from an address. */
  read(address: number, bytes: number): Uint8Array<ArrayBuffer>;
  /** Calls a function of core/sampling, core/media or core/search. */
  call(name: string, ...args: number[]): number;
}

/** A token, given a function that draws one from the scores in the host's memory. */
export type Chosen = (draw: () => number) => number;

/** Runs of a language model's plan for one token. */
export interface TokenRuns {
  plan: PlanHandle;
  where: string;
  /** Has the first token's id, int64. */
  input: Buffer;
  /** The register of the number of tokens before it, and its value. */
  register: number;
  past: number;
  /** Tokens to choose at most. */
  most: number;
}

/** Chooses the tokens of one generation. */
export interface Chooser {
  /** Chooses from the logits of the latest run; undefined where all of them are needed. */
  choose(): Promise<Chosen | undefined>;
  /**
   * Runs a token, then each one that is chosen: with one wait for several of them. For greedy
   * generation.
   * @returns the tokens that were chosen; none where all logits are needed, from a run of its own
   */
  ahead?(runs: TokenRuns): Promise<number[]>;
}

/** Chooses tokens on a device. */
export interface Picker {
  /**
   * Begins a generation.
   * @param members of ew_sampling
   * @param work address of its scores in the host's memory
   * @returns undefined where all logits of each token are needed
   */
  begin(members: Readonly<Record<string, number>>, work: number): Chooser | undefined;
}

/** Memory and plans of one model on a device. All failures are EdgewiseErrors. */
export interface Device {
  /** The build and number of threads, and why there are no more. */
  readonly choice: Choice;
  /** Description for pages. */
  readonly info: DeviceInfo;
  /** Options that it was opened with. */
  readonly options: DeviceOptions;
  /** Milliseconds from the compiled module to the ready device. */
  readonly instantiateMs: number;
  /** Checksum of the kernel table; a plan must carry the same value. */
  readonly tableHash: number;
  /** Bytes of memory currently held. */
  readonly memoryBytes: number;
  /** Bytes that it can hold, where that is known. */
  readonly maxBytes?: number;
  /** Number of plan runs so far. */
  readonly runs: number;
  /** The profile that records runs, if any. */
  watcher: Watcher | undefined;
  /** Functions on the CPU. */
  readonly host: Host;
  /** The CPU beside a GPU, for work that is too small for that. */
  readonly processor?: Device;

  /** The subset of the named kernels that the device does not implement. */
  lacks(kernels: readonly string[]): string[];

  /**
   * Allocates memory.
   * @param bytes size in bytes
   * @param what purpose, for the error
   * @param unset skip zeroing, for memory that is overwritten at once; "weight": and which then is
   *   only read; "state": zeroed memory of a state, which steps update. Default: false
   * @throws OutOfMemory
   */
  allocate(bytes: number, what: string, unset?: boolean | "weight" | "state"): Buffer;
  /** Frees a buffer returned by `allocate`; undefined is ignored. */
  release(buffer: Buffer | undefined): void;
  /** Copies `data` into a buffer at offset `at` (default: 0). */
  write(buffer: Buffer, data: Uint8Array, at?: number): void;
  /** Sets `bytes` bytes (default: to the end) from offset `at` (default: 0) on to `value` (0). */
  fill(buffer: Buffer, value?: number, at?: number, bytes?: number): void;
  /** Copies `bytes` bytes (default: to the end) from offset `at` (default: 0) on. */
  read(buffer: Buffer, at?: number, bytes?: number): Promise<Uint8Array<ArrayBuffer>>;
  /**
   * Copies the beginnings of several buffers, where that takes less time than to read each: on
   * devices that wait for a read.
   */
  readAll?(
    ranges: readonly (readonly [buffer: Buffer, bytes: number])[],
  ): Promise<Uint8Array<ArrayBuffer>[]>;
  /** Copies the first `bytes` bytes (default: all) of `source` to the beginning of `target`. */
  copy(source: Buffer, target: Buffer, bytes?: number): void;
  /** XXH64 of a range, as 16 hexadecimal digits; only on wasm, whose memory C can read. */
  checksum?(buffer: Buffer, at: number, bytes: number): string;
  /**
   * Address of a buffer's contents in the host's memory, for C functions that read it. Valid until
   * the next run. Does not copy on wasm, whose memory is the host's.
   */
  hosted(buffer: Buffer): Promise<number>;

  /**
   * Chooses tokens from the logits of a language model, on devices where that needs less than a
   * copy of them.
   * @param logits an allocated buffer of float32; call it when the model is loaded
   * @param count of the logits of a token
   */
  picker?(logits: Buffer, count: number): Picker;

  /**
   * Loads and checks a plan.
   * @param bytes the plan
   * @param where name for errors
   * @param title name in profiles. Default: `where`
   * @param notes the package's notes, for profiles
   * @param kinds kinds of its slots; those of kind `temp` are bound by the device
   * @throws PlanError, OutOfMemory
   */
  loadPlan(
    bytes: Uint8Array,
    where: string,
    title?: string,
    notes?: Uint8Array,
    kinds?: readonly string[],
  ): PlanHandle;
  /** Begins to load a plan, which {@link loadPlan} gets with the same bytes, while weights come. */
  loadSoon?(...plan: Parameters<Device["loadPlan"]>): void;
  /** Frees a plan; buffers bound to its slots stay. */
  freePlan(plan: PlanHandle): void;
  /**
   * Binds a buffer to a slot. It must not be freed while the plan runs.
   * @throws PlanError if it is too small
   */
  bind(plan: PlanHandle, slot: number, buffer: Buffer, where?: string): void;
  /**
   * Binds a slot whose parts are brought when steps need them; only on wasm. The slot must be of a
   * weight that products of experts alone read.
   */
  bindPages?(plan: PlanHandle, slot: number, pages: Pages, where: string): void;
  /** Unbinds a slot: runs that use it fail until it is bound again. */
  unbind(plan: PlanHandle, slot: number): void;
  /** Whether steps other than init steps use a slot. */
  inRuns(plan: PlanHandle, slot: number): boolean;
  /** First init step that uses a slot, and one past the last; [0, 0] if there is none. */
  initSpan(plan: PlanHandle, slot: number): [begin: number, end: number];
  /**
   * Sets a register, on which shapes and offsets depend.
   * @throws PlanError if the value is out of range
   */
  register(plan: PlanHandle, register: number, value: number): void;
  /**
   * Runs the init steps, which compute constants from weights.
   * @throws as {@link run}
   */
  init(plan: PlanHandle, where: string): void;
  /** Runs a range of the init steps. Only the slots that they use must be bound. */
  initSteps(plan: PlanHandle, first: number, count: number, where: string): void;
  /**
   * Runs all steps except init steps.
   * @throws InputError if an index in the data is out of range
   * @throws OutOfMemory, EngineError
   */
  run(plan: PlanHandle, where: string): void;
  /**
   * Begins {@link run}, or goes on with it, for `trips` iterations of loops. Only for plans with
   * loops, which not every device has. It begins again if the device has run another plan.
   * @returns whether the run is complete
   */
  runSome?(plan: PlanHandle, where: string, trips: number): boolean;
  /**
   * Sets the maximum number of iterations in a run of a plan with loops.
   * @returns iterations of its latest run
   */
  limitTrips?(plan: PlanHandle, limit: number): number;
  /** Runs one step, for profiles; `step` does not count init steps. */
  runStep(plan: PlanHandle, step: number, where: string): void;
  /** Properties of a plan. */
  describe(plan: PlanHandle): PlanInfo;

  /**
   * After a GPU was lost, the device in its place: a new one, or the CPU. It has the same `host`,
   * but no buffers and plans. Undefined where it was not lost.
   * @param error what failed on it: one that was out of memory is given up
   */
  replacement?(error?: unknown): Promise<Device | undefined>;
  /** Why a GPU can no longer be used. */
  readonly lost?: EdgewiseError | undefined;

  /**
   * Resolves when all that was queued is done and all programs are compiled.
   * @throws the error of what failed meanwhile, such as OutOfMemory
   */
  ready(): Promise<void>;

  /** Of a GPU: whether the engine beside it serves others, too, and `close` leaves that open. */
  guest?: boolean;

  /** Frees all memory and ends the threads. Idempotent. */
  close(): void;
}
