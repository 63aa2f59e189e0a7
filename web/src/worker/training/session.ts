// A training program on a device: its plans, its states (tensors that persist between runs), its
// runs. Mirrors python/edgewise/host/training/session.py.

import type { Buffer, Device, PlanHandle } from "../../device/device.ts";
import type { ManifestSlot } from "../../gen/schema.ts";
import { is_kept, is_of_optimizer, is_result } from "../../logic/training/checkpoints.ts";
import { EngineError, OutOfMemory } from "../../shared/errors.ts";
import { seedOfRun } from "../../shared/seeds.ts";
import { megabytes } from "../../shared/words.ts";
import type { Weights } from "../model/weights.ts";
import { NOTES } from "../package/container.ts";
import type { ProgramInfo, StateInfo, TrainingPlan } from "../package/manifest.ts";
import { ahead } from "./recovery/ahead.ts";

/** Name of the state with the number of updates, int64 [1]. */
export const STEP = "training/step";
/**
 * Name of the state with the adapter's scale: 1 in training, chosen by the caller in generation.
 */
export const SCALE = "adapter/scale";
/** Name of the state with the number of updates that averages of weights are of, int64 [1]. */
const AVERAGED = "average/updates";

/** Name of the input with the weights of the losses of labels, float32 [batch, sequence]. */
const WEIGHTS = "token_weights";
/** Name of the output with the losses of labels, float32 [batch, sequence]. */
export const LOSSES = "token_losses";

/** Token ids and labels, [batch, sequence]. Labels of -100 are ignored. */
export interface Batch {
  ids: BigInt64Array;
  labels: BigInt64Array;
  /** Of `accumulate`: weights of the losses of labels. */
  weights?: Float32Array<ArrayBuffer>;
  /** Further inputs. */
  more?: Record<string, Uint8Array>;
}

/**
 * Whether accumulated losses are sums with weights; packages of earlier versions average those of a
 * batch.
 */
export function weighs(program: ProgramInfo): boolean {
  return program.plans.get("accumulate")!.slots.some(({ name }) => name === WEIGHTS);
}

/** Builds a session again after a GPU was lost. */
export interface Rebuilding {
  /** Makes plans and states on another device, with the values of a copy. */
  rebuild(device: Device, weights: Weights): Promise<void>;
  /** Repeats the updates since then. */
  repeat(): Promise<void>;
}

/** The plans and states of a training program, on a device. */
export class Session {
  /**
   * Number of forward passes with dropout; determines, with seed and states, the result of a run.
   */
  runs = 0;
  recovery: Rebuilding | undefined;
  private readonly states = new Map<string, Buffer>();
  private readonly own: Buffer[] = [];
  private readonly buffers = new Map<string, Buffer>();
  private readonly plans = new Map<TrainingPlan, PlanHandle>();

  /**
   * Allocates nothing yet; `initialize` does.
   * @param device where to run
   * @param program the training program
   * @param files the package's parts, for the plans
   * @param weights weights of the model
   * @param seed seed of the adapters' initial values and of dropout
   * @param where name for errors
   * @param share a session of the same model with other shapes, whose states are used
   */
  constructor(
    private device: Device,
    readonly program: ProgramInfo,
    private readonly files: Map<string, Uint8Array>,
    private weights: Weights,
    public seed: bigint,
    private readonly where: string,
    private readonly share?: Session,
  ) {}

  /** Forgets a lost GPU; `initialize` must follow, on the device in its place. */
  move(device: Device, weights: Weights): void {
    Object.assign(this, { device, weights });
    for (const made of [this.states, this.buffers, this.plans]) made.clear();
    this.own.length = 0;
  }

  /** Whether the device is a GPU, which another device can replace. */
  get replaceable(): boolean {
    return !!this.device.replacement;
  }

  /** Whether it was lost. */
  get lost(): boolean {
    return !!this.device.lost;
  }

  /**
   * Initializes all states: parameters from the package, adapters randomly, all others with zeros.
   * @param accumulates whether gradients will be accumulated
   */
  initialize(accumulates: boolean): void {
    this.within(() => {
      for (const state of this.program.states.values()) {
        // only accumulation stores gradients
        if (state.kind === "gradient" && !accumulates) continue;
        this.device.fill(this.buffer(state), 0, 0, state.bytes);
      }
      for (const kind of accumulates ? (["accumulate", "update"] as const) : (["train"] as const))
        if (this.program.plans.has(kind)) this.load(kind);
      const plan = this.make("initialize");
      try {
        this.write64("seed", seedOfRun(this.seed, -1));
        this.device.run(plan, `${this.where}, initialize`);
      } finally {
        this.device.freePlan(plan);
      }
      if (this.program.plans.has("magnitudes")) this.once("magnitudes");
      this.runs = 0;
    });
  }

  /** Runs a plan that is not needed again. */
  private once(kind: TrainingPlan): void {
    const plan = this.make(kind);
    try {
      this.device.run(plan, `${this.where}, ${kind}`);
    } finally {
      this.device.freePlan(plan);
    }
  }

  /**
   * Forward and backward pass, and update.
   * @returns the loss before the update: mean cross entropy in nats per token
   */
  train(batch: Batch, learningRate: number): Promise<number> {
    this.writeFloat("learning_rate", learningRate);
    return this.forward("train", batch);
  }

  /**
   * Forward and backward pass, adding to the gradients.
   * @returns the sum of the losses of labels times their weights
   */
  accumulate(batch: Batch): Promise<number> {
    return this.forward("accumulate", batch);
  }

  /** Updates with the accumulated gradients, multiplied by `scale`. Does not reset them. */
  update(learningRate: number, scale = 1): void {
    this.load("update");
    this.writeFloat("learning_rate", learningRate);
    this.writeFloat("gradient_scale", scale);
    this.run("update");
  }

  /** Whether there are averages of the weights. */
  private async averages(): Promise<boolean> {
    const count = this.program.states.get(AVERAGED);
    return !!count && (await this.readState(count)).some((byte) => byte);
  }

  /** Does some work while the weights are their averages, where there are some. */
  async averaged<T>(work: () => Promise<T>): Promise<T> {
    const swaps = await this.averages();
    if (swaps) this.swap();
    try {
      return await work();
    } finally {
      if (swaps) this.swap();
    }
  }

  /** Makes the averages the weights; the next update begins new ones. */
  async takeAverages(): Promise<void> {
    if (!(await this.averages())) return;
    this.swap();
    this.writeState(this.program.states.get(AVERAGED)!, new Uint8Array(8));
  }

  /** Exchanges the weights with their averages. */
  private swap(): void {
    this.load("swap");
    this.run("swap");
  }

  /** Sets the accumulated gradients to zero. */
  reset(): void {
    for (const state of this.program.states.values()) {
      const at = state.kind === "gradient" ? this.states.get(state.name) : undefined;
      if (at) this.device.fill(at, 0, 0, state.bytes);
    }
  }

  /**
   * Forward pass without dropout.
   * @returns the loss, as `train`
   */
  evaluate(batch: Batch): Promise<number> {
    return this.forward("evaluate", batch);
  }

  /** Forward pass without dropout. Returns the losses of labels, each at the place before it. */
  async score(batch: Batch): Promise<Float32Array> {
    await this.evaluate(batch);
    return new Float32Array((await this.output(LOSSES)).buffer);
  }

  private async forward(
    kind: "train" | "accumulate" | "evaluate",
    { ids, labels, weights, more }: Batch,
  ): Promise<number> {
    const bytes = (a: BigInt64Array | Float32Array) =>
      new Uint8Array(a.buffer as ArrayBuffer, a.byteOffset, a.byteLength);
    const weighed = weights && { [WEIGHTS]: bytes(weights) };
    this.pass(kind, { input_ids: bytes(ids), labels: bytes(labels), ...weighed, ...more });
    const loss = await this.device.read(this.buffers.get("loss")!, 0, 4);
    return new DataView(loss.buffer).getFloat32(0, true);
  }

  /** Runs a plan on feeds of its sizes. Its outputs are then available by `output`. */
  pass(kind: "train" | "accumulate" | "evaluate", feeds: Record<string, Uint8Array>): void {
    this.within(() => this.load(kind));
    for (const [name, data] of Object.entries(feeds)) this.write(name, data);
    const counted = this.share ?? this;
    if (kind !== "evaluate") this.write64("seed", seedOfRun(counted.seed, counted.runs));
    this.run(kind);
    if (kind !== "evaluate") counted.runs++;
  }

  /** Copies an output of the last run. */
  output(name: string): Promise<Uint8Array<ArrayBuffer>> {
    return this.device.read(this.buffers.get(name)!);
  }

  private run(kind: TrainingPlan): void {
    this.device.run(this.plans.get(kind)!, `${this.where}, ${kind}`);
  }

  // Memory

  /** The buffer of a state. Those of adapters are shared with the decoder's plans. */
  buffer(state: StateInfo): Buffer {
    if (this.share) return this.share.buffer(state);
    let buffer = this.states.get(state.name);
    if (!buffer) {
      if (state.kind === "adapter") buffer = this.weights.adapter(state.name, state.bytes);
      else {
        const what = `the ${state.kind} '${state.name}'`;
        buffer = this.device.allocate(state.bytes, what, "state");
        this.own.push(buffer);
      }
      this.states.set(state.name, buffer);
    }
    return buffer;
  }

  /** Copies the contents of a state. */
  readState(state: StateInfo): Promise<Uint8Array<ArrayBuffer>> {
    return this.device.read(this.buffer(state), 0, state.bytes);
  }

  /**
   * Copies states, by name.
   * @param together whether with one map, as the states are now. Otherwise with a map for 16 MB,
   *   and no step may be made meanwhile
   */
  async copies(
    states: readonly StateInfo[],
    together: boolean,
  ): Promise<Map<string, Uint8Array<ArrayBuffer>>> {
    const read = this.reader(states, together ? Infinity : undefined);
    const values = new Map<string, Uint8Array<ArrayBuffer>>();
    for (const name of states.map((s) => s.name).sort()) values.set(name, await read(name));
    return values;
  }

  /** Writes states by name; others stay. */
  fill(values: ReadonlyMap<string, Uint8Array>): void {
    for (const [name, data] of values) this.writeState(this.program.states.get(name)!, data);
  }

  /** A function that copies states by name; on a GPU about so many bytes at once. */
  reader(
    states: readonly StateInfo[] = this.kept,
    most?: number,
  ): (name: string) => Promise<Uint8Array<ArrayBuffer>> {
    const places = new Map(states.map((s) => [s.name, [this.buffer(s), s.bytes] as const]));
    return ahead(this.device, places, most);
  }

  /** Writes to a state at offset `at` (default: 0). */
  writeState(state: StateInfo, data: Uint8Array, at = 0): void {
    this.device.write(this.buffer(state), data, at);
  }

  /**
   * Memory of training besides the model, in bytes: states, and the largest arena of its plans,
   * which is shared with the decoder's plans.
   */
  get memory(): { states: number; arena: number } {
    let states = 0;
    for (const name of this.states.keys()) states += this.program.states.get(name)!.bytes;
    let arena = 0;
    for (const kind of this.plans.keys())
      arena = Math.max(arena, this.program.plans.get(kind)!.arenaBytes);
    return { states, arena };
  }

  /** The buffer of an input or output, which plans share by name. */
  private slot({ name, bytes }: ManifestSlot): Buffer {
    let buffer = this.buffers.get(name);
    if (!buffer || buffer.bytes < bytes) {
      buffer = this.device.allocate(bytes, name);
      this.own.push(buffer);
      this.buffers.set(name, buffer);
    }
    return buffer;
  }

  private load(kind: TrainingPlan): void {
    if (!this.plans.has(kind)) this.plans.set(kind, this.make(kind));
  }

  private make(kind: TrainingPlan): PlanHandle {
    const { device, program, weights } = this;
    const { file, slots } = program.plans.get(kind)!;
    const place = `${this.where}, ${file}`;
    const plan = device.loadPlan(
      this.files.get(file)!,
      place,
      file,
      this.files.get(NOTES),
      slots.map(({ kind }) => kind),
    );
    try {
      slots.forEach((slot, i) => {
        let buffer: Buffer;
        if (slot.kind === "computed" || slot.kind === "temp") return;
        if (slot.kind === "weight") buffer = weights.buffer(slot.name);
        else if (slot.kind === "state") buffer = this.buffer(program.states.get(slot.name)!);
        else buffer = this.slot(slot);
        device.bind(plan, i, buffer, `${place}, slot '${slot.name}'`);
      });
      weights.compute([{ plan, slots, where: place }], false);
      return plan;
    } catch (e) {
      device.freePlan(plan);
      throw e;
    }
  }

  private write(name: string, bytes: Uint8Array): void {
    const buffer = this.buffers.get(name);
    if (buffer) this.device.write(buffer, bytes);
  }

  private writeFloat(name: string, x: number): void {
    this.write(name, new Uint8Array(Float32Array.of(x).buffer));
  }

  private write64(name: string, x: bigint): void {
    this.write(name, new Uint8Array(BigInt64Array.of(x).buffer));
  }

  /**
   * Resolves when the device has all that it was given.
   * @throws OutOfMemory, EngineError
   */
  ready(): Promise<void> {
    return this.device.ready().catch((e: unknown) => this.explain(e));
  }

  private within<T>(work: () => T): T {
    try {
      return work();
    } catch (e) {
      return this.explain(e);
    }
  }

  /** Throws an error; adds memory requirements and remedies where it is out of memory. */
  private explain(e: unknown): never {
    if (!(e instanceof OutOfMemory)) throw e;
    const { batch, sequence, states, plans } = this.program;
    let wanted = 0;
    for (const state of states.values()) wanted += state.bytes;
    const arena = Math.max(...Array.from(plans.values(), (p) => p.arenaBytes));
    const { memoryBytes, maxBytes } = this.device;
    const most = maxBytes === undefined ? "" : ` of at most ${megabytes(maxBytes)}`;
    throw new OutOfMemory(
      `training '${this.program.name}' does not fit into memory: it takes ` +
        `${megabytes(wanted)} for states and ${megabytes(arena)} for a step of ${batch} × ` +
        `${sequence} tokens; the engine holds ${megabytes(memoryBytes)}${most}`,
      e.where,
      "Train adapters instead of all parameters, compile the program with a smaller batch, " +
        "shorter sequences or checkpointing, or close other tabs.",
    );
  }

  /** Frees everything that is not shared with the decoder. */
  free(): void {
    for (const plan of this.plans.values()) this.device.freePlan(plan);
    for (const buffer of this.own) this.device.release(buffer);
    this.plans.clear();
    this.states.clear();
    this.buffers.clear();
    this.own.length = 0;
  }

  /** The states that are the result of training: parameters or adapters. */
  get results(): StateInfo[] {
    return this.allStates.filter((s) => is_result(s.kind));
  }

  /** The optimizer's states, with the number of its updates. */
  get moments(): StateInfo[] {
    return this.kept.filter((s) => is_of_optimizer(s.kind));
  }

  /** The states, with gradients. */
  get allStates(): StateInfo[] {
    return [...this.program.states.values()];
  }

  /** The states to save in a checkpoint: all except gradients. */
  get kept(): StateInfo[] {
    const kept = this.allStates.filter((s) => is_kept(s.kind));
    for (const state of kept)
      if (!this.states.has(state.name))
        throw new EngineError(
          `the state '${state.name}' has no memory`,
          this.where,
          "This is a bug in Edgewise; please report it.",
        );
    return kept;
  }
}
