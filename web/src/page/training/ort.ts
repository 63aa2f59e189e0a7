// ONNX Runtime Web's training API (release 1.19): users come over by changing the import.

import type { ArtifactsInfo } from "../../protocol/artifacts.ts";
import { InputError } from "../../shared/errors.ts";
import type { DeviceInfo, Flavour } from "../../shared/platform.ts";
import { factor } from "../../shared/schedules.ts";
import { Client } from "../client.ts";
import { type DeviceChoice, deviceOf } from "../device.ts";
import { env, full, urls } from "../env.ts";
import { type Profile, watched } from "../profile.ts";
import {
  picked,
  plain,
  plainOf,
  Tensor,
  type Tensors,
  type TensorType,
  tensor,
} from "../tensor.ts";

type File = string | URL | Uint8Array | ArrayBuffer | Blob;

/** What a session is made of: addresses, or files' bytes; with onnxruntime-web 1.19's names. */
export interface TrainingSessionCreateOptions {
  /** The checkpoint: parameters, and the optimizer's state where it has one. */
  checkpointState: File;
  /** training_model.onnx. */
  trainModel: File;
  /** eval_model.onnx; without it there is no `runEvalStep` and no `exportModel`. */
  evalModel?: File;
  /** optimizer_model.onnx; without it there is no `runOptimizerStep`. */
  optimizerModel?: File;
}

/** Options of {@link TrainingSession.create}. */
export interface TrainingSessionOptions extends DeviceChoice {
  /** The engine's build. Default: `env.flavour`. */
  flavour?: Flavour | "auto";
  /** Threads that compute, 1 to 64. Default: `env.threads`. */
  threads?: number;
  /** Stops the loading: the promise rejects with {@link Aborted}. */
  signal?: AbortSignal;
}

/** A parameter of a session; `requires_grad`: it is trained. */
export interface TrainingParameter {
  name: string;
  type: TensorType;
  dims: readonly number[];
  requires_grad: boolean;
}

/**
 * A learning rate that rises linearly from 0 over the first steps and falls linearly to 0, as
 * onnxruntime.training.api.LinearLRScheduler.
 *
 * ```js
 * const scheduler = await LinearLRScheduler.create(session, 10, 100, 1e-3); // the first update has
 * the rate 0, as there
 * await session.runOptimizerStep();
 * await scheduler.step(); // after each update
 * ```
 */
export class LinearLRScheduler {
  private count = 0;

  private constructor(
    private readonly session: TrainingSession,
    private readonly warmup: number,
    private readonly total: number,
    private readonly initial: number,
  ) {}

  /**
   * Sets the session's rate for its first update.
   * @param warmupStepCount updates in which the rate rises. @param totalStepCount updates after
   *   which it is 0. @param initialRate the rate at the end of the rise.
   * @throws InputError: counts that are no whole numbers, or a rate that is no number
   */
  static async create(
    session: TrainingSession,
    warmupStepCount: number,
    totalStepCount: number,
    initialRate: number,
  ): Promise<LinearLRScheduler> {
    for (const [name, n] of [
      ["warmupStepCount", warmupStepCount],
      ["totalStepCount", totalStepCount],
    ] as const)
      if (!Number.isInteger(n) || n < 0)
        throw new InputError(
          `${String(n)} is no number of steps`,
          name,
          "Give a whole number from 0 on.",
        );
    if (!Number.isFinite(initialRate))
      throw new InputError(`${String(initialRate)} is no learning rate`, "initialRate");
    const made = new LinearLRScheduler(session, warmupStepCount, totalStepCount, initialRate);
    await made.set();
    return made;
  }

  /** Sets the rate for the next update; to be called after each. */
  async step(): Promise<void> {
    this.count++;
    await this.set();
  }

  private set(): Promise<void> {
    return this.session.setLearningRate(
      this.initial * factor("linear", this.count, this.total, this.warmup),
    );
  }
}

/** How a call of a {@link TrainingSession} can be stopped. */
export interface StepOptions {
  /** Rejects it with {@link Aborted}; the session stays as it was and can be used on. */
  signal?: AbortSignal;
}

/**
 * A training session on artifacts (`training_model.onnx`, `eval_model.onnx`,
 * `optimizer_model.onnx`, `checkpoint`), made by `edgewise.training.artifacts` or by ONNX Runtime
 * Training.
 *
 * ```js
 * const session = await TrainingSession.create({ checkpointState: "checkpoint", trainModel:
 * "training_model.onnx", evalModel: "eval_model.onnx", optimizerModel: "optimizer_model.onnx" });
 * const { loss } = await session.runTrainStep({ input, labels }); // names as in
 * session.trainingInputNames
 * await session.runOptimizerStep();
 * await session.lazyResetGrad();
 * ```
 *
 * It computes in a worker; Python (`env.pyodideUrl`, `env.wheelUrl`) compiles the models there when
 * batches of new shapes come. Its methods are those of ONNX Runtime Web 1.19; `saveCheckpoint`,
 * `exportModel`, `learningRate`, `setSeed` and `parameters` are more.
 */
export class TrainingSession {
  private constructor(
    private readonly client: Client,
    private readonly info: ArtifactsInfo,
  ) {}

  /**
   * Reads the artifacts.
   * @throws ModelError: a file is broken or is none. UnsupportedOp, MissingGradient: later, by the
   *   first step of such a model. InputError.
   */
  static async create(
    files: TrainingSessionCreateOptions,
    options: TrainingSessionOptions = {},
  ): Promise<TrainingSession> {
    const given: Record<string, Blob | string> = {};
    const names = {
      checkpoint: files.checkpointState,
      train: files.trainModel,
      eval: files.evalModel,
      optimizer: files.optimizerModel,
    };
    for (const [name, file] of Object.entries(names)) {
      if (file === undefined || file === null || file === "") {
        if (name === "checkpoint" || name === "train")
          throw new InputError(
            "it is missing",
            name === "train" ? "trainModel" : "checkpointState",
            "Give an address, or the file's bytes.",
          );
      } else
        given[name] =
          typeof file === "string" || file instanceof URL
            ? full(String(file))
            : file instanceof Blob
              ? file
              : new Blob([file as BlobPart]);
    }
    const device = deviceOf(options);
    const client = new Client(full(env.workerUrl));
    try {
      return new TrainingSession(
        client,
        await client.call(
          "artifacts_open",
          {
            files: given,
            urls: urls(),
            device,
            flavour: options.flavour ?? env.flavour,
            threads: options.threads ?? env.threads,
          },
          { signal: options.signal },
        ),
      );
    } catch (e) {
      client.end();
      throw e;
    }
  }

  /** What it runs on, and why on nothing faster. */
  get device(): DeviceInfo {
    return { ...this.info.device };
  }
  /** What `runTrainStep` is fed, in the model's order. */
  get trainingInputNames(): readonly string[] {
    return this.info.train.inputs;
  }
  /** What it gives, the loss first. */
  get trainingOutputNames(): readonly string[] {
    return this.info.train.outputs;
  }
  /** What `runEvalStep` is fed. @throws InputError: there is no evaluation model */
  get evalInputNames(): readonly string[] {
    return this.evaluation().inputs;
  }
  /** What it gives. @throws InputError: there is no evaluation model */
  get evalOutputNames(): readonly string[] {
    return this.evaluation().outputs;
  }

  private evaluation(): { inputs: string[]; outputs: string[] } {
    if (!this.info.eval)
      throw new InputError(
        "there is no evaluation model",
        "TrainingSession",
        "Pass evalModel to create.",
      );
    return this.info.eval;
  }

  /** The parameters in the order of `getContiguousParameters`, the trained ones first. */
  get parameters(): TrainingParameter[] {
    return this.info.parameters.map(({ name, dtype, shape, trainable }) => ({
      name,
      type: dtype as TensorType,
      dims: shape,
      requires_grad: trainable,
    }));
  }

  /**
   * Forward and backward; adds to the gradients. Returns the outputs, the loss first; with
   * `fetches` (names) only those.
   * @throws InputError: a feed is missing, unknown, or of another type or shape. MissingGradient,
   *   UnsupportedOp: of a model that cannot be trained. OutOfMemory. Aborted: `signal` stopped it;
   *   gradients are as before, unless it was computing already. What follows works.
   */
  async runTrainStep(
    feeds: Tensors,
    fetches?: readonly string[] | Record<string, unknown>,
    { signal }: StepOptions = {},
  ): Promise<Tensors> {
    return picked(
      await this.client.call("artifacts_run", { kind: "train", feeds: plain(feeds) }, { signal }),
      fetches,
    );
  }

  /**
   * Forward with dropout off, on the evaluation model. @throws InputError: there is none, or a feed
   * does not fit. Aborted
   */
  async runEvalStep(
    feeds: Tensors,
    fetches?: readonly string[] | Record<string, unknown>,
    { signal }: StepOptions = {},
  ): Promise<Tensors> {
    this.evaluation();
    return picked(
      await this.client.call("artifacts_run", { kind: "eval", feeds: plain(feeds) }, { signal }),
      fetches,
    );
  }

  /**
   * Updates the parameters by the accumulated gradients.
   * @throws InputError: there is no optimizer model, or there are no gradients. Aborted: `signal`
   *   stopped it; parameters are as before, unless it was computing already
   */
  runOptimizerStep({ signal }: StepOptions = {}): Promise<void> {
    return this.client.call("artifacts_update", {}, { signal });
  }

  /** The next `runTrainStep` begins with gradients of zero. */
  lazyResetGrad(): Promise<void> {
    return this.client.call("artifacts_reset", {});
  }

  /** Number of elements of all parameters. */
  async getParametersSize(trainableOnly = true): Promise<number> {
    return this.chosen(trainableOnly).reduce((sum, p) => sum + p.bytes / 4, 0);
  }

  /**
   * All parameters, flattened and one behind the other: float32 [getParametersSize(trainableOnly)].
   */
  async getContiguousParameters(trainableOnly = true): Promise<Tensor> {
    const chosen = this.chosen(trainableOnly);
    const values = await this.client.call("artifacts_read", { names: chosen.map((p) => p.name) });
    const all = new Float32Array(chosen.reduce((sum, p) => sum + p.bytes / 4, 0));
    let at = 0;
    for (const { name, bytes } of chosen) {
      all.set(
        new Float32Array(values[name]!.data.buffer, values[name]!.data.byteOffset, bytes / 4),
        at,
      );
      at += bytes / 4;
    }
    return new Tensor("float32", all, [all.length]);
  }

  /**
   * Sets all parameters from bytes (or float32 numbers) as `getContiguousParameters` gives them.
   * @throws InputError: there are more or fewer, or frozen ones once training has begun
   */
  async loadParametersBuffer(
    buffer: Uint8Array | Float32Array,
    trainableOnly = true,
  ): Promise<void> {
    const bytes = new Uint8Array(buffer.buffer, buffer.byteOffset, buffer.byteLength);
    const chosen = this.chosen(trainableOnly);
    const total = chosen.reduce((sum, p) => sum + p.bytes, 0);
    if (bytes.length !== total)
      throw new InputError(
        `it has ${bytes.length} bytes, the parameters have ${total}`,
        "loadParametersBuffer",
        "Give the data of what getContiguousParameters gave.",
      );
    const values: Record<string, Uint8Array<ArrayBuffer>> = {};
    let at = 0;
    for (const { name, bytes: n } of chosen) {
      values[name] = bytes.slice(at, at + n);
      at += n;
    }
    await this.client.call("artifacts_write", { values });
  }

  /** One parameter as it is now. @throws InputError: there is none of this name */
  async getParameter(name: string): Promise<Tensor> {
    return tensor((await this.client.call("artifacts_read", { names: [name] }))[name]!);
  }

  /**
   * Sets one parameter. @throws InputError: there is none of this name, its type or dims are
   * others, or it is frozen and training has begun
   */
  async setParameter(name: string, value: Tensor): Promise<void> {
    const known = this.info.parameters.find((p) => p.name === name);
    if (known && (value.type !== known.dtype || value.dims.join() !== known.shape.join()))
      throw new InputError(
        `it is ${value.type} [${value.dims.join(", ")}], ${known.dtype} ` +
          `[${known.shape.join(", ")}] is wanted`,
        `parameter '${name}'`,
        "Convert or reshape it.",
      );
    await this.client.call("artifacts_write", { values: { [name]: plainOf(value).data } });
  }

  private chosen(trainableOnly: boolean): ArtifactsInfo["parameters"] {
    return this.info.parameters.filter((p) => !trainableOnly || p.trainable);
  }

  /** The optimizer's learning rate. */
  getLearningRate(): Promise<number> {
    return this.client.call("artifacts_rate", { rate: undefined });
  }

  /**
   * Of the updates from now on; a schedule sets it before each. @throws InputError: it is below 0
   * or no number
   */
  async setLearningRate(rate: number): Promise<void> {
    await this.client.call("artifacts_rate", { rate });
  }

  /** What dropout follows from. Default: 0. */
  setSeed(seed: number | bigint): Promise<void> {
    return this.client.call("artifacts_seed", { seed: BigInt(seed) });
  }

  /**
   * The checkpoint file (ODTC, which ONNX Runtime reads, too), with the optimizer's state or
   * without.
   */
  saveCheckpoint(
    includeOptimizerState = true,
    { signal }: StepOptions = {},
  ): Promise<Uint8Array<ArrayBuffer>> {
    return this.client.call("artifacts_save", { optimizer: includeOptimizerState }, { signal });
  }

  /**
   * The evaluation model up to these outputs as a plain ONNX file, with the parameters as they are
   * now.
   * @throws InputError: there is no evaluation model, or no such output. Aborted: `signal` stopped
   *   it
   */
  exportModel(
    outputNames: readonly string[],
    { signal }: StepOptions = {},
  ): Promise<Uint8Array<ArrayBuffer>> {
    return this.client.call("artifacts_export", { outputs: [...outputNames] }, { signal });
  }

  /**
   * Where the time of what `work` does with this session goes: `await session.profile(() =>
   * session.runTrainStep(feeds))`. Not in ONNX Runtime. Throws what `work` throws.
   */
  profile(work: () => unknown): Promise<Profile> {
    return watched(this.client, undefined, work);
  }

  /** Ends the worker and gives back all memory. */
  async release(): Promise<void> {
    this.client.end();
  }
}
