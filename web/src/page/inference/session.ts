// InferenceSession: the API of ONNX Runtime Web.

import {
  BOUNDS,
  type Bounds,
  type ModelMetadata,
  type OpenInfo,
  type OpenRequest,
  type RunAnswer,
  type RunRequest,
  type ValueInfo,
  type WireValue,
} from "../../protocol/inference.ts";
import type { ProgressEvent } from "../../protocol/loading.ts";
import { throwIfAborted } from "../../shared/abort.ts";
import { Aborted, InputError, InputTypeError } from "../../shared/errors.ts";
import { hand } from "../../shared/files/source.ts";
import { checkFunction, optionsOf } from "../../shared/inputs.ts";
import { hasLines } from "../../shared/line.ts";
import type { DeviceInfo, Flavour } from "../../shared/platform.ts";
import { levelOf, type Priority, USUAL } from "../../shared/priority.ts";
import { checkSeed, seedOfRun } from "../../shared/seeds.ts";
import { startClient } from "../client.ts";
import { type DeviceChoice, deviceOf } from "../device.ts";
import { env, full, urls } from "../env.ts";
import { warn } from "../env-aliases.ts";
import { type Profile, watched } from "../profile.ts";
import { isTensor, MIN_COPY, type OnnxValue, Tensor, type TensorType } from "../tensor.ts";
import { fromWireOutput, toWireFeed } from "./convert.ts";
import { type Fetches, fetchesAndOptions } from "./fetches.ts";
import { InlineClient, type SessionClient } from "./inline-client.ts";
import { fileOf, isPackage, partOf } from "./model-files.ts";
import { Parcel, SpareBuffers } from "./spare.ts";
import { TimeLimit } from "./time-limit.ts";

/**
 * Options of {@link InferenceSession.create}. Unknown options are ignored, as in ONNX Runtime Web.
 */
export interface SessionOptions extends DeviceChoice {
  /**
   * External data files: `path` as in the model, `data` an address or bytes. Files that are not
   * listed are fetched from the model's folder.
   */
  externalData?: readonly { path: string; data: string | URL | Uint8Array | ArrayBuffer | Blob }[];
  /** Build of the engine. Default: `env.flavour`. */
  flavour?: Flavour | "auto";
  /** Number of compute threads, 1 to 64. Default: `env.threads`. */
  threads?: number;
  /**
   * How soon its calls get processors where other pipelines and sessions of the page compute, too.
   * Default: "user-visible". In the page's thread (`proxy: false`) it has no effect.
   */
  priority?: Priority;
  /**
   * Keep compiled plans in the browser's storage, so that the next visit needs no Python for the
   * same input shapes. Default: `env.cachePlans`.
   */
  cache?: boolean;
  /** Keep downloaded files in the browser's storage. Default: `env.cacheFiles`. */
  cache_files?: boolean | "auto";
  /**
   * Seed of the random numbers of all runs (operators such as RandomNormal without a seed of their
   * own): an integer from 0 to 2^63 - 1, above 2^53 as a bigint. Sessions with equal seeds draw
   * equal numbers in their first run, in their second run, and so on, in a page and in Python.
   * Default: random.
   */
  seed?: number | bigint;
  /**
   * Compute in a worker (ONNX Runtime Web's `env.wasm.proxy`). With `false` a run blocks the page's
   * thread, uses one compute thread, and saves the messages to and from the worker: for models that
   * take less than a few milliseconds. Feeds are then not copied and must stay unchanged until the
   * run has ended. Default: `env.proxy`.
   */
  proxy?: boolean;
  /**
   * Location of outputs, for all of them or by name: "cpu" (the default) returns them to the page;
   * "cpu-pinned" keeps them in the engine, for caches that are fed to the next run ({@link
   * Tensor}). Only numeric tensors can be kept. Other values mean "cpu".
   */
  preferredOutputLocation?: string | Readonly<Record<string, string>>;
  /**
   * Maximum number of loop iterations of a run, over all its loops; more throw ModelError. Default:
   * 2^20. This and the next three options are also in Python's SessionOptions.
   */
  max_loop_trips?: number;
  /**
   * Maximum number of plans that a run may compile, for instance in loops with growing tensors;
   * more throw ModelError. Default: 2^14.
   */
  max_compilations?: number;
  /**
   * Maximum bytes of the values that a run holds between plans; more throw OutOfMemory. Default:
   * 2^30, a quarter of the maximum size of the engine's memory.
   */
  max_memory_bytes?: number;
  /**
   * Maximum duration of a run in seconds; a longer run throws {@link Aborted}. Checked between
   * plans and in loops. Time in which it waits for calls of a higher priority counts. Default:
   * unlimited.
   */
  max_run_seconds?: number;
  /** Cancels loading: the promise rejects with {@link Aborted}. */
  signal?: AbortSignal;
  /** Receives the progress of files at addresses, as that of `pipeline`, and warnings. */
  progress_callback?: (event: ProgressEvent) => void;
  /** Other options (`graphOptimizationLevel`, ...) are accepted and have no effect. */
  [other: string]: unknown;
}

/**
 * Options of {@link InferenceSession.run}. Other fields of ONNX Runtime's RunOptions are ignored.
 */
export interface RunOptions {
  /** Cancels the run, in loops and between plans: it rejects with {@link Aborted}. */
  signal?: AbortSignal;
  /** Priority of this call. Default: the session's. */
  priority?: Priority;
  /**
   * Seed of this run's random numbers: an integer from 0 to 2^63 - 1. Default: follows from the
   * session's seed.
   */
  seed?: number | bigint;
  [other: string]: unknown;
}

/** An input or output as the model declares it. */
export interface ValueMetadata {
  /** Name in the model. */
  readonly name: string;
  /** False for sequences, maps and optionals. */
  readonly isTensor: boolean;
  /** Element type; for a map, the type of its values. */
  readonly type: TensorType;
  /**
   * Dimensions: sizes, or names of free dimensions ("" if unnamed). [] if the rank is unknown, as
   * in ONNX Runtime Web; undefined for what is no tensor.
   */
  readonly shape: readonly (number | string)[] | undefined;
  /**
   * Kind of a value that is not a tensor. Sequences are passed as arrays, maps as Map or object,
   * optionals as null or the value itself.
   */
  readonly kind?: "sequence" | "map" | "optional";
  /** Element of a sequence or an optional. */
  readonly element?: ValueMetadata;
  /** Type of the keys of a map. */
  readonly keyType?: string;
}

/**
 * Runs any ONNX model. Mirrors InferenceSession of ONNX Runtime Web.
 *
 * ```js
 * // Address, bytes, a File, or a package made by `edgewise build --dims`:
 * const session = await InferenceSession.create("model.onnx");
 * const pixel_values = new Tensor("float32", pixels, [1, 3, 224, 224]);
 * const { logits } = await session.run({ pixel_values });
 * await session.release();
 * ```
 *
 * It computes in a worker. A package needs no Python. For an .onnx file Python (`env.pyodideUrl`,
 * `env.wheelUrl`) compiles a plan for each new set of input shapes. Control flow, sequences,
 * strings and data-dependent shapes are executed between plans, without Python. The latest 16 plans
 * of each part of a model are kept in the browser's storage, so a returning page starts Python only
 * for shapes that it has no plan for.
 */
export class InferenceSession {
  private runs = 0;
  private dropped: number[] = [];
  private freeing: ReturnType<typeof setTimeout> | undefined;
  private readonly spare = new SpareBuffers();
  private readonly names: string[];
  /** Names of outputs that were fed again, and the latest of each that has a copy in the engine. */
  private readonly states = new Set<string>();
  private readonly kept = new Map<string, WeakRef<Tensor>>();

  private constructor(
    private readonly client: SessionClient,
    private readonly info: OpenInfo,
    private readonly seed: bigint | undefined,
    private readonly pinned: SessionOptions["preferredOutputLocation"],
    private readonly copies: boolean,
    private readonly limit: TimeLimit,
  ) {
    this.names = info.outputs.map((o) => o.name);
  }

  /**
   * Loads a model.
   * @param model address, bytes or file. The form `create(buffer, byteOffset, byteLength, options)`
   *   is supported as well.
   * @param options see {@link SessionOptions}
   * @throws ModelError, PackageError if a file is missing or damaged
   * @throws InputError if an option is invalid
   * @throws UnsupportedOp later, in the first run, if the model uses an unsupported operator
   */
  static async create(
    model: string | URL | Uint8Array | ArrayBuffer | Blob,
    options?: SessionOptions,
  ): Promise<InferenceSession>;
  static async create(
    buffer: ArrayBuffer,
    byteOffset: number,
    byteLength?: number,
    options?: SessionOptions,
  ): Promise<InferenceSession>;
  static async create(
    model: string | URL | Uint8Array | ArrayBuffer | Blob,
    a?: SessionOptions | number,
    byteLength?: number,
    last?: SessionOptions,
  ): Promise<InferenceSession> {
    const options = (typeof a === "number" ? last : a) ?? {};
    if (typeof options !== "object")
      throw new InputTypeError(
        "the options are no object",
        "InferenceSession.create",
        "Call create(model, options) or create(buffer, byteOffset, byteLength, options).",
      );
    const file =
      typeof a === "number"
        ? partOf(model as ArrayBuffer, a, byteLength)
        : model instanceof ArrayBuffer
          ? new Uint8Array(model)
          : model;
    const external = Object.fromEntries(
      (options.externalData ?? []).map(({ path, data }) => [
        path.replace(/^\.\//, ""),
        fileOf(data, `externalData '${path}'`),
      ]),
    );
    const seed = checkSeed(options.seed, "options.seed");
    const bounds = boundsOf(options);
    checkFunction("progress_callback", options.progress_callback);
    const proxy = options.proxy ?? env.proxy;
    const device = deviceOf(options, proxy);
    levelOf(options.priority, USUAL);
    const given = isPackage(file) ? hand(file, "model") : fileOf(file, "model");
    const client: SessionClient = proxy
      ? await startClient(options.priority)
      : await InlineClient.load(full(env.inlineUrl));
    try {
      const request: OpenRequest = {
        model: given,
        external,
        urls: await urls(),
        device,
        flavour: options.flavour ?? env.flavour,
        threads: proxy ? (options.threads ?? env.threads) : 1,
        cache: options.cache ?? env.cachePlans,
        cache_files: options.cache_files ?? env.cacheFiles,
        ...bounds,
      };
      const transfer =
        typeof request.model === "object" && "port" in request.model ? [request.model.port] : [];
      const info = await client.call("inference_open", request, {
        signal: options.signal,
        onProgress: options.progress_callback ?? onProgress,
        transfer,
      });
      if (proxy && !info.device.gpu && hasLines()) client.openLine?.();
      return new InferenceSession(
        client,
        info,
        seed,
        options.preferredOutputLocation,
        proxy,
        new TimeLimit(bounds.max_run_seconds),
      );
    } catch (e) {
      client.end();
      throw e;
    }
  }

  /** Names of the inputs, in the model's order. */
  get inputNames(): readonly string[] {
    return this.info.inputs.map((i) => i.name);
  }
  /** Names of the outputs, in the model's order. */
  get outputNames(): readonly string[] {
    return [...this.names];
  }
  /** Names, types and shapes of the inputs, as the file declares them. */
  get inputMetadata(): readonly ValueMetadata[] {
    return this.info.inputs.map(metadata);
  }
  /** Names, types and shapes of the outputs, as the file declares them. */
  get outputMetadata(): readonly ValueMetadata[] {
    return this.info.outputs.map(metadata);
  }
  /** What the file says about its model: labels and sizes are in `customMetadataMap`. */
  get metadata(): ModelMetadata {
    return this.info.metadata;
  }
  /** The device in use, and why no faster one is used. */
  get device(): DeviceInfo {
    return { ...this.info.device };
  }

  /**
   * Runs the model.
   * @param feeds a tensor for each input; an array for a sequence, a Map for a map, null (or
   *   nothing) for an empty optional
   * @param fetches outputs to compute: a list of names, or an object with names as keys and null as
   *   values. Default: all
   * @param options see {@link RunOptions}
   * @returns outputs by name. An output that is an input passed through, such as a cross-attention
   *   cache, is the very tensor that was fed
   * @throws InputError if a feed is missing, unknown, or of another type or shape
   * @throws ModelError if a node cannot be executed with its inputs, or a limit is exceeded
   * @throws UnsupportedOp, OutOfMemory, Aborted
   */
  run<V extends OnnxValue = Tensor>(
    feeds: Record<string, OnnxValue>,
    options?: RunOptions,
  ): Promise<Record<string, V>>;
  run<V extends OnnxValue = Tensor>(
    feeds: Record<string, OnnxValue>,
    fetches: Fetches | undefined,
    options?: RunOptions,
  ): Promise<Record<string, V>>;
  async run<V extends OnnxValue = Tensor>(
    feeds: Record<string, OnnxValue>,
    fetches?: Fetches | RunOptions,
    given?: RunOptions,
  ): Promise<Record<string, V>> {
    if (typeof feeds !== "object" || feeds === null || Array.isArray(feeds) || isTensor(feeds))
      throw new InputTypeError("the feeds are no object", "run", "Pass { name: tensor }.");
    const { outputs, options } = fetchesAndOptions(this.names, fetches, given, "run");
    throwIfAborted(options.signal); // before copies are promised that are not sent
    const seed =
      checkSeed(options.seed, "options.seed") ??
      (this.seed === undefined ? undefined : seedOfRun(this.seed, this.runs));
    levelOf(options.priority, USUAL);
    this.runs++;
    let values: WireValue[] | undefined;
    while (!values) values = await this.answered(feeds, outputs, seed, options);
    const out: Record<string, V> = {};
    for (let i = 0; i < outputs.length; i++)
      out[outputs[i]!] = this.output(values[i]!, feeds, outputs[i]!) as V;
    return out;
  }

  private output(v: WireValue, feeds: Record<string, OnnxValue>, name: string): OnnxValue {
    const made = fromWireOutput(v, feeds, this, name);
    if (v && "keep" in v && v.keep !== undefined) {
      this.kept.get(name)?.deref()?.forgetCopy();
      this.kept.set(name, new WeakRef(made as Tensor));
    }
    return made;
  }

  /**
   * From now on the engine keeps a copy of the latest output of this name.
   * @internal
   */
  returned(name: string): void {
    if (this.copies && name) this.states.add(name);
  }

  /** The worker's answer to a run; undefined: ask again, with feeds whose copies were lost. */
  private async answered(
    feeds: Record<string, OnnxValue>,
    outputs: readonly string[],
    seed: bigint | undefined,
    { signal, priority }: RunOptions,
  ): Promise<WireValue[] | undefined> {
    const wire: Record<string, WireValue> = {};
    const drop = this.dropped;
    this.dropped = [];
    const onLate = (late: unknown) => {
      for (const v of (late as RunAnswer).values)
        if (v && "pinned" in v) this.drop(v.pinned);
        else if (v && "keep" in v && v.keep !== undefined) this.drop(v.keep);
    };
    try {
      for (const name of Object.keys(feeds))
        wire[name] = toWireFeed(feeds[name], `feed '${name}'`, this);
      const request: RunRequest = {
        feeds: wire,
        outputs: [...outputs],
        seed,
        pinned: this.staying(outputs),
        kept: this.states.size ? { names: [...this.states], bytes: MIN_COPY } : undefined,
        copied: this.copies,
        drop,
      };
      const wrap = () => {
        const parcel = new Parcel(this.spare);
        for (const v of Object.values(wire)) parcel.pack(v);
        request.parcel = parcel.packed;
        return parcel.transfer;
      };
      const answer = await this.limit.within(signal, (signal) =>
        this.client.call("inference_run", request, { signal, priority, onProgress, onLate, wrap }),
      );
      this.spare.renew(answer.spare);
      if (answer.device) this.info.device = answer.device;
      if (!answer.again) return answer.values;
      forgetCopies(Object.values(feeds));
      return undefined;
    } catch (e) {
      for (const id of drop) this.drop(id); // perhaps once more: it may not have been asked
      // the worker may or may not have made the copies
      for (const [name, v] of Object.entries(wire))
        if (v && "keep" in v) (feeds[name] as Tensor).forgetCopy();
      throw e;
    }
  }

  /** Names of outputs that stay in the engine. */
  private staying(outputs: readonly string[]): string[] | undefined {
    const { pinned } = this;
    return pinned === undefined
      ? undefined
      : outputs.filter(
          (name) => (typeof pinned === "string" ? pinned : pinned[name]) === "cpu-pinned",
        );
  }

  /**
   * Reads a tensor that stayed in the engine.
   * @internal
   */
  read(id: number): Promise<Uint8Array<ArrayBuffer>> {
    return this.client.call("inference_read", { id });
  }

  /**
   * Frees a tensor that stayed in the engine.
   * @internal
   */
  drop(id: number): void {
    this.dropped.push(id);
    this.freeing ??= setTimeout(() => {
      const ids = this.dropped;
      this.freeing = undefined;
      this.dropped = [];
      // an ended session has freed all its tensors
      if (ids.length) this.client.call("inference_drop", { ids }).catch(() => undefined);
    }, DROP_MS);
  }

  /**
   * Profiles the plans of the model's parts. Operators that run between plans are not included.
   * @param work feeds, with which the model is run `runs` times after one warm-up run; or a
   *   function to profile
   * @param options `runs`: number of recorded runs. Default: 5
   * @throws as {@link run}, or what `work` throws
   */
  async profile(
    work: Record<string, OnnxValue> | (() => unknown),
    options: { runs?: number } = {},
  ): Promise<Profile> {
    const { runs = 5 } = optionsOf(options);
    if (typeof work === "function") return watched(this.client, undefined, work);
    if (typeof work !== "object" || work === null)
      throw new InputError("it is neither feeds nor a function", "work", "Give one of them.");
    const feeds = (): Record<string, OnnxValue> => Object.fromEntries(Object.entries(work));
    await this.run(feeds());
    return watched(this.client, undefined, async () => {
      for (let i = 0; i < runs; i++) await this.run(feeds());
    });
  }

  /** Ends the worker and frees all memory. Open runs reject with {@link Aborted}. */
  async release(): Promise<void> {
    this.client.end(new Aborted("the session was released", "", "Make a new one."));
  }
}

/** How long a tensor to be freed waits for a run that takes its number along. */
const DROP_MS = 10;

/** Logs warnings of a session without a progress callback to the console. */
function onProgress(event: ProgressEvent): void {
  if (event.status === "warning") warn(event.message);
}

function metadata({ name, type, dtype, shape, elem, key }: ValueInfo): ValueMetadata {
  const map = type === "map" && elem;
  const common = {
    name,
    isTensor: type === "tensor",
    type: (map ? map.dtype : dtype) as TensorType,
    shape: type === "tensor" ? (shape ?? []).map((d) => d ?? "") : undefined,
  };
  if (type === "tensor") return common;
  return {
    ...common,
    kind: type as "sequence",
    ...(elem && !map ? { element: metadata(elem) } : {}),
    ...(key === undefined ? {} : { keyType: key }),
  };
}

/**
 * The limits of a session's runs.
 * @throws InputError if an option is invalid
 */
function boundsOf(options: SessionOptions): Bounds {
  const whole = (name: "max_loop_trips" | "max_compilations" | "max_memory_bytes"): number => {
    const x = options[name] ?? BOUNDS[name];
    if (!Number.isSafeInteger(x) || x < 1)
      throw new InputError(
        `it is ${String(x).slice(0, 40)}`,
        `options.${name}`,
        "Give a positive integer, or leave it out.",
      );
    return x;
  };
  const seconds = options.max_run_seconds;
  if (seconds !== undefined && !(typeof seconds === "number" && seconds > 0))
    throw new InputError(
      `it is ${String(seconds).slice(0, 40)}`,
      "options.max_run_seconds",
      "Give a number above 0, or leave it out.",
    );
  return {
    max_loop_trips: whole("max_loop_trips"),
    max_compilations: whole("max_compilations"),
    max_memory_bytes: whole("max_memory_bytes"),
    max_run_seconds: seconds,
  };
}

function forgetCopies(feeds: readonly OnnxValue[]): void {
  for (const v of feeds)
    if (Array.isArray(v)) forgetCopies(v);
    else if (v instanceof Tensor) v.forgetCopy();
}
