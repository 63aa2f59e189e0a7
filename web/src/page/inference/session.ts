// ONNX Runtime Web's way to run a model: users come over by changing the import.

import { MAX_COMPILATIONS, MAX_LOOP_TRIPS, MEMORY_SHARE } from "../../gen/session.ts";
import type {
  OpenInfo,
  OpenRequest,
  RunAnswer,
  ValueInfo,
  WireValue,
} from "../../protocol/inference.ts";
import type { ProgressEvent } from "../../protocol/loading.ts";
import { throwIfAborted } from "../../shared/abort.ts";
import { InputError } from "../../shared/errors.ts";
import { isMagic } from "../../shared/files/magic.ts";
import { hand } from "../../shared/files/source.ts";
import type { DeviceInfo, Flavour } from "../../shared/platform.ts";
import { checkSeed, seedOfRun } from "../../shared/seeds.ts";
import { Client } from "../client.ts";
import { type DeviceChoice, deviceOf } from "../device.ts";
import { env, full, urls } from "../env.ts";
import { type Profile, watched } from "../profile.ts";
import type { OnnxValue, PinnedOwner, Tensor, TensorType } from "../tensor.ts";
import { fromWireOutput, toWireFeed } from "./convert.ts";
import { InlineClient, type SessionClient } from "./inline-client.ts";
import { SpareBuffers } from "./spare.ts";

/**
 * Options of {@link InferenceSession.create}; unknown ones (of other engines) are ignored, as ONNX
 * Runtime Web ignores them.
 */
export interface SessionOptions extends DeviceChoice {
  /**
   * Files beside the model: `path` as the model calls it, `data` an address or bytes. What is not
   * given is looked for beside the model's address.
   */
  externalData?: readonly { path: string; data: string | URL | Uint8Array | ArrayBuffer | Blob }[];
  /** The engine's build. Default: `env.flavour`. */
  flavour?: Flavour | "auto";
  /** Threads that compute, 1 to 64. Default: `env.threads`. */
  threads?: number;
  /**
   * Keep what is compiled for the next visit, which then needs no Python for inputs of these
   * shapes. Default: `env.cachePlans`.
   */
  cache?: boolean;
  /** Keep what is downloaded, too. Default: `env.cacheFiles`. */
  cache_files?: boolean;
  /**
   * An integer from 0 to 2^63 - 1 (above 2^53 as a bigint) that the random numbers of all runs
   * follow from (operators like RandomNormal without a seed of their own): sessions with the same
   * seed draw the same numbers in their first run, in their second run, and so on, here and in
   * Python. Default: other numbers each time.
   */
  seed?: number | bigint;
  /**
   * Compute in a worker (ONNX Runtime Web's `env.wasm.proxy`). `false`: on the page's own thread,
   * which a run blocks, with one thread of the engine and without the way to a worker and back: for
   * models that take less than some milliseconds. Feeds are not copied then: leave them unchanged
   * until a run has ended. Default: `env.proxy`.
   */
  proxy?: boolean;
  /**
   * Where outputs are put, all of them or by name: "cpu" (the default), in the page; "cpu-pinned":
   * they stay in the engine, as caches do that the next run is fed ({@link Tensor}). Only tensors
   * of numbers stay. Other locations mean "cpu".
   */
  preferredOutputLocation?: string | Readonly<Record<string, string>>;
  /**
   * How often all loops of a run may go round, together, before it ends in a ModelError. Default:
   * 2^20. Python's SessionOptions has the same four.
   */
  max_loop_trips?: number;
  /**
   * How many plans a run may compile, as for loops whose tensors grow, before it ends in a
   * ModelError. Default: 2^14.
   */
  max_compilations?: number;
  /**
   * Bytes that the values of a run may take between plans, before it ends with OutOfMemory.
   * Default: 2^30, a quarter of what an engine's memory may grow to.
   */
  max_memory_bytes?: number;
  /**
   * Seconds that a run may take, before it ends with {@link Aborted}; looked at between plans and
   * in loops. Default: any.
   */
  max_run_seconds?: number;
  /** Stops the loading: the promise rejects with {@link Aborted}. */
  signal?: AbortSignal;
  /** Accepted without effect: `graphOptimizationLevel`, ... */
  [other: string]: unknown;
}

/** What is known of an input or output before any run. */
export interface ValueMetadata {
  /** As in the file. */
  readonly name: string;
  /** False for sequences, maps and optionals. */
  readonly isTensor: boolean;
  /** Element type; of a map, that of its values. */
  readonly type: TensorType;
  /**
   * Sizes, and names of free dimensions ("" where one has none); undefined where the rank is
   * unknown.
   */
  readonly shape: readonly (number | string)[] | undefined;
  /**
   * Of what is no tensor: an array is fed for a sequence, a Map or an object for a map, null or the
   * value itself for an optional.
   */
  readonly kind?: "sequence" | "map" | "optional";
  /** What a sequence or an optional holds. */
  readonly element?: ValueMetadata;
  /** Type of a map's keys. */
  readonly keyType?: string;
}

/**
 * Any ONNX model, with the API of ONNX Runtime Web.
 *
 * ```js
 * const session = await InferenceSession.create("model.onnx"); // or bytes, a File, or a package
 * made by `edgewise build --dims`
 * const { logits } = await session.run({ pixel_values: new Tensor("float32", pixels, [1, 3, 224,
 * 224]) });
 * await session.release();
 * ```
 *
 * It computes in a worker. A package needs no Python; for an .onnx file Python (`env.pyodideUrl`,
 * `env.wheelUrl`) compiles a plan for each set of input shapes that comes. Branches, loops,
 * sequences, strings and shapes that follow from data are run between plans, without it. Of each
 * part of a model the 16 latest plans are kept in the browser's storage: a page that is visited
 * again starts Python only for shapes that it has no plan for.
 */
export class InferenceSession implements PinnedOwner {
  private runs = 0;
  private dropped: number[] = [];
  private readonly spare = new SpareBuffers();
  private readonly names: string[];

  private constructor(
    private readonly client: SessionClient,
    private readonly info: OpenInfo,
    private readonly seed: bigint | undefined,
    private readonly pinned: SessionOptions["preferredOutputLocation"],
    private readonly copies: boolean,
  ) {
    this.names = info.outputs.map((o) => o.name);
  }

  /**
   * Reads a model.
   * @param model an address, bytes, or a file. `create(buffer, byteOffset, byteLength, options)` is
   *   understood, too.
   * @throws ModelError, PackageError: a file is missing or broken. InputError. UnsupportedOp:
   *   later, by the first run of a model that uses what Edgewise does not have.
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
    const file =
      typeof a === "number"
        ? new Uint8Array(model as ArrayBuffer, a, byteLength)
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
    const device = deviceOf(options);
    const proxy = options.proxy ?? env.proxy;
    const client: SessionClient = proxy
      ? new Client(full(env.workerUrl))
      : await InlineClient.load(full(env.inlineUrl));
    try {
      const request: OpenRequest = {
        model: isPackage(file) ? hand(file, "model") : fileOf(file, "model"),
        external,
        urls: urls(),
        device,
        flavour: options.flavour ?? env.flavour,
        threads: proxy ? (options.threads ?? env.threads) : 1,
        cache: options.cache ?? env.cachePlans,
        cache_files: options.cache_files ?? env.cacheFiles,
        ...bounds,
      };
      const transfer =
        typeof request.model === "object" && "port" in request.model ? [request.model.port] : [];
      return new InferenceSession(
        client,
        await client.call("inference_open", request, {
          signal: options.signal,
          onProgress,
          transfer,
        }),
        seed,
        options.preferredOutputLocation,
        proxy,
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
  /** Those of the outputs. */
  get outputMetadata(): readonly ValueMetadata[] {
    return this.info.outputs.map(metadata);
  }
  /** What it runs on, and why on nothing faster. */
  get device(): DeviceInfo {
    return { ...this.info.device };
  }

  /**
   * Runs the model.
   * @param feeds a tensor for each input; an array for a sequence, a Map for a map, null (or
   *   nothing) for an optional without a value
   * @param fetches names of the outputs wanted (a list, or an object with them as keys); default:
   *   all
   * @param options `signal`: ends the run, in loops and between plans: it rejects with {@link
   *   Aborted}. `seed`: an integer from 0 to 2^63 - 1 that this run's random numbers follow from,
   *   whatever the session's is
   * @returns outputs by name. One that is an input passed through, as cross attention caches are,
   *   is the very tensor that was fed
   * @throws InputError: a feed is missing, unknown, or of another type or shape; nothing is lost.
   *   ModelError: a node cannot be run with what it is given, or loops do not end. UnsupportedOp,
   *   OutOfMemory, Aborted
   */
  async run<V extends OnnxValue = Tensor>(
    feeds: Record<string, OnnxValue>,
    fetches?: readonly string[] | Record<string, unknown>,
    options: { signal?: AbortSignal; seed?: number | bigint } = {},
  ): Promise<Record<string, V>> {
    const outputs =
      fetches === undefined
        ? this.names
        : Array.isArray(fetches)
          ? Array.from(fetches as string[], String)
          : Object.keys(fetches);
    if (typeof feeds !== "object" || feeds === null)
      throw new InputError("there are no feeds", "run", "Pass { name: tensor }.");
    const transfer: Transferable[] = [];
    const wire: Record<string, WireValue> = {};
    throwIfAborted(options.signal); // before copies are promised that are not sent
    const seed =
      checkSeed(options.seed, "options.seed") ??
      (this.seed === undefined ? undefined : seedOfRun(this.seed, this.runs));
    this.runs++;
    const { pinned } = this;
    const stay =
      pinned === undefined
        ? undefined
        : outputs.filter(
            (name) => (typeof pinned === "string" ? pinned : pinned[name]) === "cpu-pinned",
          );
    const onLate = (late: unknown) => {
      for (const v of (late as RunAnswer).values) if (v && "pinned" in v) this.drop(v.pinned);
    };
    let values: WireValue[];
    try {
      for (const name of Object.keys(feeds))
        wire[name] = toWireFeed(
          feeds[name],
          `feed '${name}'`,
          this,
          this.copies ? transfer : undefined,
          this.spare,
        );
      const answer = await this.client.call(
        "inference_run",
        { feeds: wire, outputs, seed, pinned: stay, copied: this.copies },
        { signal: options.signal, onProgress, onLate, transfer },
      );
      values = answer.values;
      this.spare.renew(answer.spare);
    } catch (e) {
      // nobody knows how far it came
      for (const [name, v] of Object.entries(wire))
        if (v && "keep" in v) (feeds[name] as Tensor).forgetCopy();
      throw e;
    }
    const out: Record<string, V> = {};
    for (let i = 0; i < outputs.length; i++)
      out[outputs[i]!] = fromWireOutput(values[i]!, feeds, this) as V;
    return out;
  }

  /** Bytes of a tensor that stayed in the engine. @internal */
  read(id: number): Promise<Uint8Array<ArrayBuffer>> {
    return this.client.call("inference_read", { id });
  }

  /** Lets go of a tensor that stayed in the engine. @internal */
  drop(id: number): void {
    if (!this.dropped.length)
      queueMicrotask(() => {
        const ids = this.dropped;
        this.dropped = [];
        // a session that has ended has let go of all
        this.client.call("inference_drop", { ids }).catch(() => undefined);
      });
    this.dropped.push(id);
  }

  /**
   * Where the time goes, in the plans of the model's parts; what is run between them is not seen.
   * @param work feeds, with which the model is run `runs` times (default 5) after a first run that
   *   is not counted; or a function that runs what is to be watched
   * @throws as `run`, or what `work` throws
   */
  async profile(
    work: Record<string, OnnxValue> | (() => unknown),
    { runs = 5 }: { runs?: number } = {},
  ): Promise<Profile> {
    if (typeof work === "function") return watched(this.client, undefined, work);
    const feeds = (): Record<string, OnnxValue> => Object.fromEntries(Object.entries(work));
    await this.run(feeds());
    return watched(this.client, undefined, async () => {
      for (let i = 0; i < runs; i++) await this.run(feeds());
    });
  }

  /** Ends the worker and gives back all memory. Open runs reject with {@link Aborted}. */
  async release(): Promise<void> {
    this.client.end();
  }
}

/** A session has no listener for what did not work and is done without. */
function onProgress(event: ProgressEvent): void {
  if (event.status === "warning") console.warn(`edgewise: ${event.message}`);
}

/**
 * Packages are read from the page's memory as they lie there; what Python compiles, it reads as a
 * Blob.
 */
function isPackage(file: unknown): file is Uint8Array {
  return file instanceof Uint8Array && isMagic(file);
}

function fileOf(
  file: string | URL | Uint8Array | ArrayBuffer | Blob,
  where: string,
): string | Blob {
  if (typeof file === "string" || file instanceof URL) return full(String(file));
  if (file instanceof Blob) return file;
  if (file instanceof ArrayBuffer || ArrayBuffer.isView(file)) return new Blob([file as BlobPart]);
  throw new InputError("it is no model", where, "Give an address, a File, or the file's bytes.");
}

function metadata({ name, type, dtype, shape, elem, key }: ValueInfo): ValueMetadata {
  const map = type === "map" && elem;
  const common = {
    name,
    isTensor: type === "tensor",
    type: (map ? map.dtype : dtype) as TensorType,
    shape: shape?.map((d) => d ?? ""),
  };
  if (type === "tensor") return common;
  return {
    ...common,
    kind: type as "sequence",
    ...(elem && !map ? { element: metadata(elem) } : {}),
    ...(key === undefined ? {} : { keyType: key }),
  };
}

/** Bounds of a session's runs. @throws InputError */
function boundsOf(
  options: SessionOptions,
): Pick<
  OpenRequest,
  "max_loop_trips" | "max_compilations" | "max_memory_bytes" | "max_run_seconds"
> {
  const whole = (
    name: "max_loop_trips" | "max_compilations" | "max_memory_bytes",
    otherwise: number,
  ): number => {
    const x = options[name] ?? otherwise;
    if (!Number.isSafeInteger(x) || x < 1)
      throw new InputError(
        `it is ${String(x).slice(0, 40)}`,
        `options.${name}`,
        "Give a whole number from 1 on, or leave it out.",
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
    max_loop_trips: whole("max_loop_trips", MAX_LOOP_TRIPS),
    max_compilations: whole("max_compilations", MAX_COMPILATIONS),
    max_memory_bytes: whole("max_memory_bytes", MEMORY_SHARE * 2 ** 32),
    max_run_seconds: seconds,
  };
}
