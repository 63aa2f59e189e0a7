// TrainingSession: the training API of ONNX Runtime Web 1.19.

import { factor } from "../../logic/training/schedules.ts";
import type { ArtifactsInfo } from "../../protocol/artifacts.ts";
import { Aborted, InputError } from "../../shared/errors.ts";
import { blobOf, checkList, optionsOf } from "../../shared/inputs.ts";
import type { DeviceInfo, Flavour } from "../../shared/platform.ts";
import type { Priority } from "../../shared/priority.ts";
import { checkSeed } from "../../shared/seeds.ts";
import { type Client, startClient } from "../client.ts";
import { type DeviceChoice, deviceOf } from "../device.ts";
import { env, full, urls } from "../env.ts";
import { type Fetches, fetchesAndOptions } from "../inference/fetches.ts";
import { type Profile, watched } from "../profile.ts";
import { copyOf, picked, plain, Tensor, type Tensors, type TensorType, tensor } from "../tensor.ts";

type File = string | URL | Uint8Array | ArrayBuffer | Blob;

/** Files of a training session, by address or content. Names as in onnxruntime-web 1.19. */
export interface TrainingSessionCreateOptions {
  /** The checkpoint: parameters and, optionally, the optimizer's state. */
  checkpointState: File;
  /** training_model.onnx. */
  trainModel: File;
  /** eval_model.onnx; required by `runEvalStep` and `exportModel`. */
  evalModel?: File;
  /** optimizer_model.onnx; required by `runOptimizerStep`. */
  optimizerModel?: File;
}

/** Options of {@link TrainingSession.create}. */
export interface TrainingSessionOptions extends DeviceChoice {
  /** Build of the engine. Default: `env.flavour`. */
  flavour?: Flavour | "auto";
  /** Number of compute threads, 1 to 64. Default: `env.threads`. */
  threads?: number;
  /**
   * How soon its calls get processors where other pipelines and sessions of the page compute, too.
   * Default: "user-visible".
   */
  priority?: Priority;
  /** Cancels loading: the promise rejects with {@link Aborted}. */
  signal?: AbortSignal;
}

/** A parameter of a session; `requires_grad`: whether it is trained. */
export interface TrainingParameter {
  name: string;
  type: TensorType;
  dims: readonly number[];
  requires_grad: boolean;
}

/**
 * A learning rate that rises linearly from 0 during warm-up and then falls linearly to 0. Mirrors
 * onnxruntime.training.api.LinearLRScheduler.
 *
 * ```js
 * // As there, the first update has the rate 0.
 * const scheduler = await LinearLRScheduler.create(session, 10, 100, 1e-3);
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
   * Makes a scheduler and sets the session's rate for its first update.
   * @param session session to control
   * @param warmupStepCount number of updates during which the rate rises
   * @param totalStepCount number of updates after which the rate is 0
   * @param initialRate rate at the end of the warm-up
   * @throws InputError if a count is not a non-negative integer, or the rate is not finite
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
          `${String(n)} is not a number of steps`,
          name,
          "Give a non-negative integer.",
        );
    if (typeof session?.setLearningRate !== "function")
      throw new InputError("it is no TrainingSession", "session", "Give one.");
    if (!Number.isFinite(initialRate))
      throw new InputError(`${String(initialRate)} is not a learning rate`, "initialRate");
    const made = new LinearLRScheduler(session, warmupStepCount, totalStepCount, initialRate);
    await made.set();
    return made;
  }

  /** Sets the rate of the next update; call it after each update. */
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

/** Options of the calls of a {@link TrainingSession}. */
export interface StepOptions {
  /** Cancels the call, which rejects with {@link Aborted}. The session remains usable. */
  signal?: AbortSignal;
}

/** The names of the files in requests to the worker. */
const FILES = {
  checkpointState: "checkpoint",
  trainModel: "train",
  evalModel: "eval",
  optimizerModel: "optimizer",
} as const;

/** @throws InputError if a required file is missing, or a file is none */
function artifacts(files: TrainingSessionCreateOptions): Record<string, Blob | string> {
  const given: Record<string, Blob | string> = {};
  const all = optionsOf(files, "files");
  for (const [option, name] of Object.entries(FILES)) {
    const file = all[option as keyof typeof FILES];
    if (file === undefined || file === null || file === "") {
      if (name === "checkpoint" || name === "train")
        throw new InputError("it is missing", option, "Give an address, or the file's bytes.");
    } else
      given[name] =
        typeof file === "string" || file instanceof URL ? full(String(file)) : blobOf(file, option);
  }
  return given;
}

/**
 * A training session on artifacts (`training_model.onnx`, `eval_model.onnx`,
 * `optimizer_model.onnx`, `checkpoint`), made by `edgewise.training.artifacts` or by ONNX Runtime
 * Training.
 *
 * ```js
 * const session = await TrainingSession.create({
 *   checkpointState: "checkpoint",
 *   trainModel: "training_model.onnx",
 *   evalModel: "eval_model.onnx",
 *   optimizerModel: "optimizer_model.onnx",
 * });
 * const { loss } = await session.runTrainStep({ input, labels }); // see trainingInputNames
 * await session.runOptimizerStep();
 * await session.lazyResetGrad();
 * ```
 *
 * It computes in a worker, where Python (`env.pyodideUrl`, `env.wheelUrl`) compiles the models for
 * each new set of batch shapes. The methods are those of ONNX Runtime Web 1.19; `saveCheckpoint`,
 * `exportModel`, `setLearningRate`, `setSeed`, `profile` and `parameters` are additions.
 */
export class TrainingSession {
  private constructor(
    private readonly client: Client,
    private readonly info: ArtifactsInfo,
  ) {}

  /**
   * Loads the artifacts.
   * @throws InputError if a required file is not given
   * @throws ModelError if a file is damaged
   * @throws UnsupportedOp, MissingGradient later, in the first step, if the model uses an operator
   *   without implementation or gradient
   */
  static async create(
    files: TrainingSessionCreateOptions,
    options: TrainingSessionOptions = {},
  ): Promise<TrainingSession> {
    const given = artifacts(files);
    options = optionsOf(options);
    const device = deviceOf(options);
    const client = await startClient(options.priority);
    try {
      return new TrainingSession(
        client,
        await client.call(
          "artifacts_open",
          {
            files: given,
            urls: await urls(),
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

  /** The device in use, and why no faster one is used. */
  get device(): DeviceInfo {
    return { ...this.info.device };
  }
  /** Inputs of `runTrainStep`, in the model's order. */
  get trainingInputNames(): readonly string[] {
    return this.info.train.inputs;
  }
  /** Outputs of `runTrainStep`, the loss first. */
  get trainingOutputNames(): readonly string[] {
    return this.info.train.outputs;
  }
  /**
   * Inputs of `runEvalStep`.
   * @throws InputError if there is no evaluation model
   */
  get evalInputNames(): readonly string[] {
    return this.evaluation().inputs;
  }
  /**
   * Outputs of `runEvalStep`.
   * @throws InputError if there is no evaluation model
   */
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

  /** The parameters in the order of `getContiguousParameters`: trained ones first. */
  get parameters(): TrainingParameter[] {
    return this.info.parameters.map(({ name, dtype, shape, trainable }) => ({
      name,
      type: dtype as TensorType,
      dims: shape,
      requires_grad: trainable,
    }));
  }

  /**
   * Forward and backward pass, adding to the gradients.
   * @param feeds a tensor for each input
   * @param fetches outputs to return. Default: all, the loss first
   * @param options `signal`: cancels the step
   * @returns outputs by name
   * @throws InputError if a feed is missing, unknown, or of another type or shape
   * @throws MissingGradient, UnsupportedOp if the model cannot be trained
   * @throws Aborted if `signal` cancelled it; gradients are unchanged unless the step had begun
   * @throws OutOfMemory
   */
  runTrainStep(feeds: Tensors, options?: StepOptions): Promise<Tensors>;
  runTrainStep(
    feeds: Tensors,
    fetches: Fetches | undefined,
    options?: StepOptions,
  ): Promise<Tensors>;
  async runTrainStep(
    feeds: Tensors,
    fetches?: Fetches | StepOptions,
    options?: StepOptions,
  ): Promise<Tensors> {
    return this.stepOf("train", this.info.train.outputs, feeds, fetches, options);
  }

  /**
   * Runs the evaluation model, with dropout off. Arguments as {@link runTrainStep}.
   * @throws InputError if there is no evaluation model, or a feed does not match it
   * @throws Aborted
   */
  runEvalStep(feeds: Tensors, options?: StepOptions): Promise<Tensors>;
  runEvalStep(
    feeds: Tensors,
    fetches: Fetches | undefined,
    options?: StepOptions,
  ): Promise<Tensors>;
  async runEvalStep(
    feeds: Tensors,
    fetches?: Fetches | StepOptions,
    options?: StepOptions,
  ): Promise<Tensors> {
    return this.stepOf("eval", this.evaluation().outputs, feeds, fetches, options);
  }

  private async stepOf(
    kind: "train" | "eval",
    names: readonly string[],
    feeds: Tensors,
    fetches: Fetches | StepOptions | undefined,
    given: StepOptions | undefined,
  ): Promise<Tensors> {
    const what = kind === "train" ? "runTrainStep" : "runEvalStep";
    const { outputs, options } = fetchesAndOptions(names, fetches, given, what);
    const { signal } = options;
    const { values, device } = await this.client.call(
      "artifacts_run",
      { kind, feeds: plain(feeds) },
      { signal },
    );
    if (device) this.info.device = device;
    return picked(values, outputs === names ? Object.keys(values) : outputs);
  }

  /**
   * Updates the parameters with the accumulated gradients.
   * @throws InputError if there is no optimizer model, or there are no gradients
   * @throws Aborted if `signal` cancelled it; parameters are unchanged unless the update had begun
   */
  async runOptimizerStep(options: StepOptions = {}): Promise<void> {
    const { signal } = optionsOf(options);
    return this.client.call("artifacts_update", {}, { signal });
  }

  /** Resets the gradients: the next `runTrainStep` starts from zero. */
  lazyResetGrad(): Promise<void> {
    return this.client.call("artifacts_reset", {});
  }

  /** Total number of elements of the (trainable) parameters. */
  async getParametersSize(trainableOnly = true): Promise<number> {
    return this.chosen(trainableOnly).reduce((sum, p) => sum + p.bytes / 4, 0);
  }

  /**
   * Concatenates the (trainable) parameters.
   * @returns float32 tensor of shape [getParametersSize(trainableOnly)]
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
   * Sets the (trainable) parameters from a buffer in the format of `getContiguousParameters`.
   * @param buffer float32 elements or their bytes
   * @throws InputError if the size differs, or frozen parameters are set after training has begun
   */
  async loadParametersBuffer(
    buffer: Uint8Array | Float32Array,
    trainableOnly = true,
  ): Promise<void> {
    if (!ArrayBuffer.isView(buffer))
      throw new InputError("it is no buffer", "loadParametersBuffer", "Give a Float32Array.");
    const bytes = new Uint8Array(buffer.buffer, buffer.byteOffset, buffer.byteLength);
    const chosen = this.chosen(trainableOnly);
    const total = chosen.reduce((sum, p) => sum + p.bytes, 0);
    if (bytes.length !== total)
      throw new InputError(
        `it has ${bytes.length} bytes, the parameters have ${total}`,
        "loadParametersBuffer",
        "Pass the data of the tensor that getContiguousParameters returned.",
      );
    const values: Record<string, Uint8Array<ArrayBuffer>> = {};
    let at = 0;
    for (const { name, bytes: n } of chosen) {
      values[name] = bytes.slice(at, at + n);
      at += n;
    }
    await this.client.call("artifacts_write", { values });
  }

  /**
   * The current value of a parameter.
   * @throws InputError if there is no parameter of this name
   */
  async getParameter(name: string): Promise<Tensor> {
    return tensor((await this.client.call("artifacts_read", { names: [name] }))[name]!);
  }

  /**
   * Sets a parameter.
   * @throws InputError if there is no parameter of this name, its type or shape differs, or it is
   *   frozen and training has begun
   */
  async setParameter(name: string, value: Tensor): Promise<void> {
    const { type, dims, data } = copyOf(value, `parameter '${String(name)}'`);
    const known = this.info.parameters.find((p) => p.name === name);
    if (known && (type !== known.dtype || dims.join() !== known.shape.join()))
      throw new InputError(
        `it is ${type} [${dims.join(", ")}], ${known.dtype} ` +
          `[${known.shape.join(", ")}] is expected`,
        `parameter '${name}'`,
        "Convert or reshape it.",
      );
    await this.client.call("artifacts_write", { values: { [name]: data } });
  }

  private chosen(trainableOnly: boolean): ArtifactsInfo["parameters"] {
    return this.info.parameters.filter((p) => !trainableOnly || p.trainable);
  }

  /** The optimizer's current learning rate. */
  getLearningRate(): Promise<number> {
    return this.client.call("artifacts_rate", { rate: undefined });
  }

  /**
   * Sets the learning rate of the following updates. A schedule sets it before each update.
   * @throws InputError if it is negative or not a number
   */
  async setLearningRate(rate: number): Promise<void> {
    await this.client.call("artifacts_rate", { rate });
  }

  /**
   * Sets the seed of dropout. Default: 0.
   * @throws InputError if it is not an integer from 0 to 2^63 - 1
   */
  async setSeed(seed: number | bigint): Promise<void> {
    await this.client.call("artifacts_seed", { seed: checkSeed(seed, "setSeed") ?? 0n });
  }

  /**
   * The state as a checkpoint file (ODTC, readable by ONNX Runtime), with or without the
   * optimizer's state.
   */
  async saveCheckpoint(
    includeOptimizerState = true,
    options: StepOptions = {},
  ): Promise<Uint8Array<ArrayBuffer>> {
    const { signal } = optionsOf(options);
    return this.client.call("artifacts_save", { optimizer: includeOptimizerState }, { signal });
  }

  /**
   * Exports the evaluation model up to the given outputs as an ONNX file with the current
   * parameters.
   * @throws InputError if there is no evaluation model, or no such output
   * @throws Aborted if `signal` cancelled it
   */
  async exportModel(
    outputNames: readonly string[],
    options: StepOptions = {},
  ): Promise<Uint8Array<ArrayBuffer>> {
    const { signal } = optionsOf(options);
    checkList(outputNames, "outputNames");
    return this.client.call("artifacts_export", { outputs: [...outputNames] }, { signal });
  }

  /**
   * Profiles what `work` does with this session: `await session.profile(() =>
   * session.runTrainStep(feeds))`. Not part of ONNX Runtime.
   * @throws what `work` throws
   */
  profile(work: () => unknown): Promise<Profile> {
    return watched(this.client, undefined, work);
  }

  /** Ends the worker and frees all memory. */
  async release(): Promise<void> {
    this.client.end(new Aborted("the session was released", "", "Make a new one."));
  }
}
