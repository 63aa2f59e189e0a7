// What computes: the interface of a device to the code that runs models on it. Python compiles
// plans, C loads and checks them, a device runs them. The one implementation today is WebAssembly
// on the processor (wasm/).
//
// Work is queued in the order of the calls. Only `read` and what is built on it wait for its end,
// so a device need not have run anything before the first `read`.

import type { Choice, DeviceInfo } from "../shared/platform.ts";
import type { DeviceOptions } from "./options.ts";

/** A range of a device's memory. Its contents are reached through {@link Device} alone. */
export interface Buffer {
  /** Size in bytes. */
  readonly bytes: number;
  /**
   * A range inside this one, which shares its memory and is freed with it.
   * @param offset in bytes, from the beginning of this range
   * @param bytes default: up to the end
   */
  part(offset: number, bytes?: number): Buffer;
}

/** A plan that has been loaded and checked; a number that the device gave out. */
export type Plan = number & { readonly __plan: unique symbol };

/** What is known of a loaded plan, for profiles and for the memory of its init steps. */
export interface PlanInfo {
  /** The plan's name in profiles. */
  title: string;
  /** The package's notes on it (python/edgewise/plan/notes.py). */
  notes: Uint8Array | undefined;
  arenaBytes: number;
  /** Number of init steps. */
  initCount: number;
  /** Kernel of each step, without the init steps. */
  kernels: string[];
  /** Lowest and highest value of the first register. */
  range: [low: number, high: number];
  /** Present value of the first register. */
  first: number;
}

/** Runs plans in the device's place while a profile records them. */
export interface Watcher {
  run(plan: Plan, where: string): void;
}

/**
 * The C functions that run on the processor whatever the device is (core/sampling.h), and their
 * memory. Addresses are those of that memory.
 */
export interface Host {
  /** Address of so many bytes, zeroed. @throws OutOfMemory */
  alloc(bytes: number): number;
  /** Frees what `alloc` returned. */
  free(address: number): void;
  /** Copies bytes to an address. */
  write(address: number, bytes: Uint8Array): void;
  /** A copy of so many bytes. */
  read(address: number, bytes: number): Uint8Array<ArrayBuffer>;
  /** Calls a function of core/sampling.h. */
  call(name: string, ...args: number[]): number;
}

/** Memory and plans of one model on a device. Every failure is an EdgewiseError. */
export interface Device {
  /** The build and the threads, and why there are no more. */
  readonly choice: Choice;
  /** What a page is told of the device. */
  readonly info: DeviceInfo;
  /** What it was opened with. */
  readonly options: DeviceOptions;
  /** Milliseconds from the compiled module to the device that is ready. */
  readonly instantiateMs: number;
  /** Checksum of the kernel table; plans carry the same number. */
  readonly tableHash: number;
  /** Bytes of memory that are held at present. */
  readonly memoryBytes: number;
  /** Number of plan runs so far. */
  readonly runs: number;
  /** A profile that records the runs. */
  watcher: Watcher | undefined;
  /** C functions on the processor. */
  readonly host: Host;

  /** Those of the kernels, by name, that the device does not have. */
  lacks(kernels: readonly string[]): string[];

  /**
   * Allocates memory.
   * @param bytes its size
   * @param what it is for, for the error
   * @param unset contents may be anything: saves the zeroing of what is written at once
   * @throws OutOfMemory
   */
  allocate(bytes: number, what: string, unset?: boolean): Buffer;
  /** Frees what `allocate` returned; undefined is ignored. */
  release(buffer: Buffer | undefined): void;
  /** Copies bytes into a buffer, from byte `at` on (default: 0). */
  write(buffer: Buffer, data: Uint8Array, at?: number): void;
  /** Sets bytes to a value: `bytes` of them (default: to the end) from byte `at` (0) on. */
  fill(buffer: Buffer, value?: number, at?: number, bytes?: number): void;
  /** A copy of `bytes` (default: to the end) from byte `at` (default: 0) on. */
  read(buffer: Buffer, at?: number, bytes?: number): Promise<Uint8Array<ArrayBuffer>>;
  /** Copies the first bytes of a buffer to the beginning of another; default: all of `source`. */
  copy(source: Buffer, target: Buffer, bytes?: number): void;
  /** XXH64 of a range, as 16 hexadecimal digits. */
  checksum(buffer: Buffer, at: number, bytes: number): string;
  /**
   * The address in the host's memory of the contents of a buffer, for C functions that read it. It
   * is good until the next run. On wasm, which runs in that memory, nothing is copied.
   */
  hosted(buffer: Buffer): Promise<number>;

  /**
   * Loads and checks a plan.
   * @param where names it in errors
   * @param title and `notes` are for profiles
   * @throws PlanError, OutOfMemory
   */
  loadPlan(bytes: Uint8Array, where: string, title?: string, notes?: Uint8Array): Plan;
  /** Frees a plan; the buffers that its slots are bound to stay. */
  freePlan(plan: Plan): void;
  /**
   * Sets the memory of a slot, which must stay while the plan runs. @throws PlanError: too small
   */
  bind(plan: Plan, slot: number, buffer: Buffer, where?: string): void;
  /** A run that uses the slot fails until it is bound again. */
  unbind(plan: Plan, slot: number): void;
  /** Whether steps other than init steps use a slot. */
  inRuns(plan: Plan, slot: number): boolean;
  /** First init step that uses a slot, and the one after the last; [0, 0] if there is none. */
  initSpan(plan: Plan, slot: number): [begin: number, end: number];
  /** Sets a register, on which shapes and offsets depend. @throws PlanError: out of its range */
  register(plan: Plan, register: number, value: number): void;
  /** Runs the init steps, which compute constants from weights. @throws as `run` */
  init(plan: Plan, where: string): void;
  /** Runs some of the init steps, for which only the slots that they use must be bound. */
  initSteps(plan: Plan, first: number, count: number, where: string): void;
  /** Runs all steps but the init steps. @throws InputError: an index in the data is out of range */
  run(plan: Plan, where: string): void;
  /** Runs one step, counted without the init steps: for profiles. */
  runStep(plan: Plan, step: number, where: string): void;
  /** What is known of a plan. */
  describe(plan: Plan): PlanInfo;

  /** Frees all memory and ends the threads. Can be called twice. */
  close(): void;
}
