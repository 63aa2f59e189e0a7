// Training on ONNX Runtime Training's artifacts. Python reads and compiles them for each set of
// shapes (onnxruntime_training/artifact_files/calls.py); steps run here without Python.

import type { Device } from "../../device/device.ts";
import { fasterOf, openDevice, targetOf } from "../../device/open.ts";
import type { DeviceOptions } from "../../device/options.ts";
import { warm } from "../../device/warm.ts";
import type { ManifestSlot, Weight } from "../../gen/schema.ts";
import type { ArtifactsAnswer, ArtifactsInfo, PlainTensor } from "../../protocol/artifacts.ts";
import type { Urls } from "../../protocol/loading.ts";
import { throwIfAborted } from "../../shared/abort.ts";
import { EngineError, InputError } from "../../shared/errors.ts";
import { Compiler } from "../compiler-client.ts";
import { Weights } from "../model/weights.ts";
import type { ProgramInfo, StateInfo } from "../package/manifest.ts";
import { Replay } from "./recovery/replay.ts";
import { Session, STEP } from "./session.ts";

const WHERE = "training artifacts";

/** Python, as a compiler; replaced in tests. */
export type PythonCompiler = Pick<Compiler, "compile" | "end">;

/** A TrainingSession in the worker. */
export class ArtifactSession {
  private weights: Weights;
  private readonly have = new Set<string>();
  /** What is in the weights. */
  private readonly parts: { weights: Weight[]; data: Uint8Array }[] = [];
  /** Writes the first values of states. */
  private begin: (() => void) | undefined;
  private replay: Replay | undefined;
  private readonly sessions = new Map<string, Session>();
  /** The session that owns the states. */
  private first: Session | undefined;
  /** Parameters that were set before the first step. */
  private readonly early = new Map<string, Uint8Array<ArrayBuffer>>();
  private seed = 0n;
  private fresh = true;
  /** Whether there are gradients. */
  private trained = false;
  private rate: number;

  private constructor(
    public device: Device,
    private readonly python: PythonCompiler,
    readonly info: ArtifactsInfo,
  ) {
    this.weights = new Weights(device, { weights: new Map() });
    this.rate = info.learning_rate;
  }

  /**
   * Loads artifacts.
   * @throws ModelError, InputError, UnsupportedOp
   */
  static async open(
    files: Map<string, Blob>,
    urls: Urls,
    options: Pick<DeviceOptions, "device" | "flavour" | "threads">,
    signal: AbortSignal,
    startPython: (urls: Urls, signal: AbortSignal) => PythonCompiler = (...args) =>
      new Compiler(...args),
  ): Promise<ArtifactSession> {
    // compared with Python's download, the full engine is small
    const opening = openDevice({ ...urls, ...options, full: true });
    opening.catch(() => undefined);
    const python = startPython(urls, signal);
    try {
      // Python need not wait for a processor
      const target = options.device === "wasm" ? "cpu" : targetOf(await opening);
      const request = { of: "artifacts", call: "open", target };
      const compiling = python.compile(files, request, () => undefined);
      void opening.then(warm, () => undefined);
      const { manifest } = await compiling;
      const device = await opening;
      return new ArtifactSession(device, python, {
        ...(JSON.parse(manifest) as ArtifactsInfo),
        device: device.info,
      });
    } catch (e) {
      python.end();
      opening.then(
        (device) => device.close(),
        () => undefined,
      );
      throw e;
    }
  }

  private model(kind: "train" | "eval"): { inputs: string[]; outputs: string[] } {
    const found = this.info[kind];
    if (!found)
      throw new InputError(
        "there is no evaluation model",
        "TrainingSession",
        "Pass evalModel to create.",
      );
    return found;
  }

  private async session(
    kind: "train" | "eval",
    feeds: Record<string, PlainTensor>,
  ): Promise<Session> {
    const { inputs } = this.model(kind);
    checkFeeds(feeds, inputs);
    if (kind === "eval" && !this.first) {
      const { inputs: wanted } = this.info.train;
      if (wanted.some((n) => !feeds[n]))
        throw new InputError(
          "the evaluation model has different inputs from the training model",
          "runEvalStep",
          "Make a training step first.",
        );
      // creates the states
      await this.session("train", Object.fromEntries(wanted.map((n) => [n, feeds[n]!])));
    }
    const shapes = Object.fromEntries(
      inputs.map((name) => [name, [feeds[name]!.type, feeds[name]!.dims]]),
    );
    const key = kind + JSON.stringify(shapes);
    let session = this.sessions.get(key);
    if (!session) {
      session = await this.compile(kind, shapes);
      this.sessions.set(key, session);
    }
    return session;
  }

  /** Compiles a model for the shapes of its feeds. The first session creates the states. */
  private async compile(kind: "train" | "eval", feeds: Record<string, unknown>): Promise<Session> {
    const { first } = this;
    const { manifest, files } = await this.python.compile(
      first ? new Map() : await this.states(),
      { of: "artifacts", call: "program", kind, feeds, have: [...this.have], first: !first },
      () => undefined,
    );
    const described = JSON.parse(manifest) as Described;
    if (!first) await this.choose(described, files);
    const part = { weights: described.weights, data: files.get("weights")! };
    this.parts.push(part);
    this.place(part);
    const program = programOf(kind, described, this.rate);
    const { device, weights, seed } = this;
    const session = new Session(device, program, files, weights, seed, WHERE, first);
    if (!first) {
      const write = (name: string, data: Uint8Array) => {
        const state = program.states.get(name);
        if (state && state.bytes === data.length) session.writeState(state, data);
      };
      this.begin = () => {
        session.initialize(true);
        for (const [state, file] of Object.entries(described.moments))
          write(state, files.get(file)!);
        write(STEP, new Uint8Array(BigInt64Array.of(BigInt(described.step)).buffer));
      };
      await this.start(session);
    }
    return session;
  }

  /** Takes a GPU, where `auto` was asked for and it runs the plans of a step faster. */
  private async choose(
    described: Described,
    files: ReadonlyMap<string, Uint8Array>,
  ): Promise<void> {
    const { plans } = programOf("train", described, this.rate);
    const works = (["accumulate", "update"] as const).flatMap((name) => {
      const { file, slots } = plans.get(name) ?? {};
      const plan = file && files.get(file);
      return plan ? [{ plan, kinds: slots!.map(({ kind }) => kind), times: 1 }] : [];
    });
    const device = await fasterOf(this.device, () => works);
    if (device === this.device) return;
    this.device = device;
    this.info.device = device.info;
    this.weights = new Weights(device, { weights: new Map() });
  }

  /** Makes the states of the first session. */
  private async start(session: Session): Promise<void> {
    this.first = session;
    this.replay = new Replay(session);
    let begun = false;
    try {
      await this.kept(() => {
        const here = !begun; // or on another device already
        begun = true;
        if (here) this.begin!();
        return session.ready();
      });
    } catch (e) {
      this.first = this.replay = undefined;
      throw e;
    }
    this.early.clear();
  }

  private place({ weights, data }: { weights: Weight[]; data: Uint8Array }): void {
    this.weights.add({ weights: new Map(weights.map((w) => [w.name, w])) });
    for (const { name, offset, bytes } of weights) {
      this.have.add(name);
      this.device.write(this.weights.buffer(name), data.subarray(offset, offset + bytes));
    }
  }

  /** Does work with the states; if a GPU was lost, again with the device in its place. */
  private kept<T>(work: () => Promise<T>): Promise<T> {
    const move = async (error: unknown) => {
      const device = await this.device.replacement?.(error);
      if (!device) return false;
      this.device = device;
      this.weights = new Weights(device, { weights: new Map() });
      for (const part of this.parts) this.place(part);
      for (const session of new Set([this.first!, ...this.sessions.values()]))
        session.move(device, this.weights);
      this.begin!();
      return true;
    };
    return this.replay ? this.replay.kept(work, move) : work();
  }

  /**
   * Runs a batch; `train` accumulates gradients.
   * @throws InputError if feeds do not match the model
   */
  async run(
    kind: "train" | "eval",
    feeds: Record<string, PlainTensor>,
    signal: AbortSignal,
  ): Promise<ArtifactsAnswer> {
    const session = await this.session(kind, feeds);
    throwIfAborted(signal); // a plan compiled meanwhile is kept for the next step
    const plan = kind === "train" ? "accumulate" : "evaluate";
    const { slots } = session.program.plans.get(plan)!;
    const data: Record<string, Uint8Array> = {};
    for (const slot of slots) {
      const fed = slot.kind === "input" ? feeds[slot.name] : undefined;
      if (fed && fed.data.length !== slot.bytes)
        throw new InputError(
          `it has ${fed.data.length} bytes, its type and dims take ${slot.bytes}`,
          `feed '${slot.name}'`,
          "Give data of the tensor's own type and size.",
        );
      if (fed) data[slot.name] = fed.data;
    }
    const train = kind === "train";
    const values = await this.counted(train, data, (reset) => {
      if (reset) this.first!.reset();
      session.pass(plan, data);
      return () => this.outputs(kind, session, slots);
    });
    return { values, ...(this.info.device.gpu ? { device: this.device.info } : {}) };
  }

  /**
   * Runs a batch, and notes it for a lost GPU.
   * @param pass runs it, after it has reset the gradients or not, and returns how to read from it
   */
  private async counted<T>(
    train: boolean,
    data: Readonly<Record<string, Uint8Array>>,
    pass: (reset: boolean) => () => Promise<T>,
  ): Promise<T> {
    const first = this.first!;
    const { runs } = first;
    const reset = train && this.fresh;
    const bytes = Object.values(data).reduce((sum, { length }) => sum + length, 0);
    try {
      const read = await this.kept(() => pass(reset)());
      if (train) {
        this.fresh = false;
        this.trained = true;
        await this.replay!.add(() => void pass(reset), bytes);
      }
      return read;
    } catch (e) {
      // a GPU's errors come with what is read: the run counts, but has changed no gradients
      if (train && first.runs > runs && !this.replay!.interrupted)
        await this.replay!.add(() => {
          if (reset) first.reset();
          first.runs++;
        });
      throw e;
    }
  }

  private async outputs(
    kind: "train" | "eval",
    session: Session,
    slots: readonly ManifestSlot[],
  ): Promise<Record<string, PlainTensor>> {
    const out: Record<string, PlainTensor> = {};
    for (const [i, name] of this.model(kind).outputs.entries()) {
      const slot = slots.find((s) => s.kind === "output" && s.name === (i ? name : "loss"));
      if (!slot) continue;
      const data = await session.output(slot.name);
      out[name] = { type: slot.dtype, dims: slot.shape, data };
    }
    return out;
  }

  /**
   * Updates the parameters with the accumulated gradients, which are not reset.
   * @throws InputError if there is no optimizer model, or there are no gradients
   */
  async update(): Promise<void> {
    if (!this.info.optimizer)
      throw new InputError(
        "there is no optimizer model",
        "runOptimizerStep",
        "Pass optimizerModel to create.",
      );
    if (!this.first || !this.trained)
      throw new InputError(
        "there are no gradients",
        "runOptimizerStep",
        "Call runTrainStep first.",
      );
    // Also after lazyResetGrad, as in ONNX Runtime: the next training step resets the gradients.
    const { first, rate } = this;
    first.update(rate);
    await this.replay!.add(() => first.update(rate));
  }

  /** Resets the gradients before the next training step. */
  reset(): void {
    this.fresh = true;
  }

  /**
   * Returns the learning rate, after setting it if `rate` is given.
   * @throws InputError if it is invalid
   */
  learningRate(rate?: number): number {
    if (rate !== undefined) {
      if (!(rate >= 0 && rate < Infinity))
        throw new InputError(
          `it is ${String(rate)}`,
          "learning rate",
          "Give a number such as 0.001.",
        );
      this.rate = rate;
    }
    return this.rate;
  }

  /** Sets the seed of dropout. */
  async setSeed(seed: bigint): Promise<void> {
    const { first } = this;
    this.seed = seed;
    if (!first) return;
    const set = () => {
      first.seed = seed;
    };
    set();
    await this.replay!.add(set);
  }

  private state(name: string): StateInfo | undefined {
    const state = this.first?.program.states.get(name);
    return state && (state.kind === "parameter" || state.kind === "buffer") ? state : undefined;
  }

  private parameter(name: string): ArtifactsInfo["parameters"][number] {
    const found = this.info.parameters.find((p) => p.name === name);
    if (!found)
      throw new InputError(
        "there is no such parameter",
        `parameter '${name}'`,
        `Some of them: ${this.info.parameters
          .slice(0, 8)
          .map((p) => p.name)
          .join(", ")}.`,
      );
    return found;
  }

  /** Current values of parameters, by name. */
  async read(names: string[]): Promise<Record<string, PlainTensor>> {
    const out: Record<string, PlainTensor> = {};
    const missing: string[] = [];
    for (const name of names) {
      const { dtype, shape } = this.parameter(name);
      const state = this.state(name);
      const data = state
        ? await this.kept(() => this.first!.readState(state))
        : this.early.get(name)?.slice();
      if (data) out[name] = { type: dtype, dims: shape, data };
      else missing.push(name);
    }
    if (missing.length) {
      const { files } = await this.python.compile(
        new Map(),
        { of: "artifacts", call: "read", names: missing },
        () => undefined,
      );
      for (const name of missing)
        out[name] = {
          type: this.parameter(name).dtype,
          dims: this.parameter(name).shape,
          data: files.get(name)!,
        };
    }
    return out;
  }

  /**
   * Sets parameters, all or none.
   * @throws InputError for unknown names, wrong sizes, and frozen parameters after training has
   *   begun
   */
  async write(values: Record<string, Uint8Array<ArrayBuffer>>): Promise<void> {
    for (const [name, data] of Object.entries(values)) {
      const { bytes, trainable } = this.parameter(name);
      if (data.length !== bytes)
        throw new InputError(
          `${data.length} bytes are not its ${bytes}`,
          `parameter '${name}'`,
          "Give as many numbers as it has.",
        );
      if (!trainable && this.first)
        throw new InputError(
          "it is frozen, and training has begun",
          `parameter '${name}'`,
          "Set it in the checkpoint instead.",
        );
    }
    for (const [name, data] of Object.entries(values)) {
      const state = this.state(name);
      if (state) {
        const again = () => this.first!.writeState(state, data);
        again();
        await this.replay!.add(again, data.length);
      } else this.early.set(name, data);
    }
  }

  /** All states except gradients, for Python. */
  private async states(): Promise<Map<string, Blob>> {
    const blobs = new Map<string, Blob>();
    for (const [name, data] of this.early) blobs.set(name, new Blob([data]));
    for (const state of this.first?.program.states.values() ?? [])
      if (state.kind !== "gradient")
        blobs.set(state.name, new Blob([await this.kept(() => this.first!.readState(state))]));
    return blobs;
  }

  /** Makes a checkpoint file, in Python. */
  async save(withOptimizer: boolean): Promise<Uint8Array<ArrayBuffer>> {
    const states = await this.states();
    const counter = this.first?.program.states.get(STEP);
    const step = counter
      ? Number(new DataView(await states.get(STEP)!.arrayBuffer()).getBigInt64(0, true))
      : 0;
    const { files } = await this.python.compile(
      states,
      { of: "artifacts", call: "save", step, rate: this.rate, with_optimizer: withOptimizer },
      () => undefined,
    );
    return files.get("checkpoint") ?? fail();
  }

  /** Exports the evaluation model up to the given outputs, in Python. */
  async export(outputs: string[]): Promise<Uint8Array<ArrayBuffer>> {
    const { files } = await this.python.compile(
      await this.states(),
      { of: "artifacts", call: "export", outputs },
      () => undefined,
    );
    return files.get("model.onnx") ?? fail();
  }

  /** Ends Python and closes the device. */
  close(): void {
    this.python.end();
    this.device.close();
  }
}

/** @throws InputError if a feed is missing or unknown */
function checkFeeds(feeds: Record<string, PlainTensor>, inputs: readonly string[]): void {
  const remedy = `Feed ${inputs.join(", ")}.`;
  for (const name of inputs)
    if (!feeds[name]) throw new InputError("it is missing", `feed '${name}'`, remedy);
  const unknown = Object.keys(feeds).find((name) => !inputs.includes(name));
  if (unknown !== undefined)
    throw new InputError("the model has no such input", `feed '${unknown}'`, remedy);
}

function fail(): never {
  throw new EngineError(
    "Python gave no file",
    WHERE,
    "This is a bug in Edgewise; please report it.",
  );
}

/** A compiled model. */
export interface Described {
  plans: Record<string, { file: string; slots: ManifestSlot[]; arena_bytes: number }>;
  weights: Weight[];
  states: StateInfo[];
  moments: Record<string, string>;
  step: number;
}

/** A compiled model as a training program, whose batches have no fixed meaning. */
export function programOf(kind: string, { plans, states }: Described, rate: number): ProgramInfo {
  return {
    name: kind,
    batch: 0,
    sequence: 0,
    lora: null,
    saved: [],
    optimizer: { type: "", lr: rate },
    maxGradNorm: null,
    accumulation: undefined,
    padTokenId: undefined,
    eosTokenId: undefined,
    source: undefined,
    plans: new Map(
      Object.entries(plans).map(([k, p]) => [
        k as "train",
        { file: p.file, slots: p.slots, arenaBytes: p.arena_bytes },
      ]),
    ),
    states: new Map(states.map((s) => [s.name, s])),
  };
}
