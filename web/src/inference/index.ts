// ONNX Runtime Web's way to run a model: users come over by changing the import.

import { Client } from "../client.ts";
import { env, full, urls } from "../env.ts";
import { InputError } from "../errors.ts";
import type { Flavour } from "../platform.ts";
import { watched, type Profile } from "../profile.ts";
import { isMagic } from "../package.ts";
import type { ProgressEvent } from "../protocol.ts";
import { checkSeed, randomSeed, seedOfRun } from "../seeds.ts";
import { hand } from "../source.ts";
import { picked, plain, type Tensors, type TensorType } from "../tensor.ts";
import type { ValueInfo } from "./manifest.ts";
import type { OpenInfo } from "./model.ts";

/** Options of {@link InferenceSession.create}; unknown ones (of other engines) are ignored, as ONNX Runtime Web ignores them. */
export interface SessionOptions {
  /** Files beside the model: `path` as the model calls it, `data` an address or bytes. What is not given is looked for beside the model's address. */
  externalData?: readonly { path: string; data: string | URL | Uint8Array | ArrayBuffer | Blob }[];
  /** The engine's build. Default: `env.flavour`. */
  flavour?: Flavour | "auto";
  /** Threads that compute, 1 to 64. Default: `env.threads`. */
  threads?: number;
  /** Keep what is compiled for the next visit, which then needs no Python for inputs of these shapes. Default: `env.cachePlans`. */
  cache?: boolean;
  /** Keep what is downloaded, too. Default: `env.cacheFiles`. */
  cache_files?: boolean;
  /**
   * An integer from 0 to 2^63 - 1 (above 2^53 as a bigint) that the random numbers of all runs follow from (operators like RandomNormal without a seed of their
   * own): sessions with the same seed draw the same numbers in their first run, in their second run, and so on, here and in Python. Default: other numbers each time.
   */
  seed?: number | bigint;
  /** Stops the loading: the promise rejects with {@link Aborted}. */
  signal?: AbortSignal;
  /** Accepted without effect: `executionProviders`, `graphOptimizationLevel`, ... */
  [other: string]: unknown;
}

/** What is known of an input or output before any run. */
export interface ValueMetadata {
  /** As in the file. */
  readonly name: string;
  /** False for sequences, maps and optionals, which a page cannot feed. */
  readonly isTensor: boolean;
  /** Element type. */
  readonly type: TensorType;
  /** Sizes, and names of free dimensions ("" where one has none); undefined where the rank is unknown. */
  readonly shape: readonly (number | string)[] | undefined;
}

/**
 * Any ONNX model, with the API of ONNX Runtime Web.
 *
 * ```js
 * const session = await InferenceSession.create("model.onnx"); // or bytes, a File, or a package made by `edgewise build --dims`
 * const { logits } = await session.run({ pixel_values: new Tensor("float32", pixels, [1, 3, 224, 224]) });
 * await session.release();
 * ```
 *
 * It computes in a worker. A package needs no Python; for an .onnx file Python (`env.pyodideUrl`, `env.wheelUrl`) compiles a plan for each
 * set of input shapes that comes, or runs the graph itself, in one thread, where loops or shapes that follow from data leave no choice.
 * Of the plans the 16 latest are kept in the browser's storage: a page that is visited again starts Python only for shapes that it has no plan for.
 */
export class InferenceSession {
  private runs = 0;

  private constructor(private readonly client: Client, private readonly info: OpenInfo, private readonly seed: bigint | undefined) {}

  /**
   * Reads a model.
   * @param model an address, bytes, or a file. `create(buffer, byteOffset, byteLength, options)` is understood, too.
   * @throws ModelError, PackageError: a file is missing or broken. InputError. UnsupportedOp: later, by the first run of a model that uses what Edgewise does not have.
   */
  static async create(model: string | URL | Uint8Array | ArrayBuffer | Blob, options?: SessionOptions): Promise<InferenceSession>;
  static async create(buffer: ArrayBuffer, byteOffset: number, byteLength?: number, options?: SessionOptions): Promise<InferenceSession>;
  static async create(model: string | URL | Uint8Array | ArrayBuffer | Blob, a?: SessionOptions | number, byteLength?: number, last?: SessionOptions): Promise<InferenceSession> {
    const options = (typeof a === "number" ? last : a) ?? {};
    const file = typeof a === "number" ? new Uint8Array(model as ArrayBuffer, a, byteLength) : model instanceof ArrayBuffer ? new Uint8Array(model) : model;
    const external = Object.fromEntries((options.externalData ?? []).map(({ path, data }) => [path.replace(/^\.\//, ""), fileOf(data, `externalData '${path}'`)]));
    const seed = checkSeed(options.seed, "options.seed");
    const client = new Client(full(env.workerUrl));
    try {
      const request = { model: isPackage(file) ? hand(file, "model") : fileOf(file, "model"), external, urls: urls(), flavour: options.flavour ?? env.flavour, threads: options.threads ?? env.threads, cache: options.cache ?? env.cachePlans, cache_files: options.cache_files ?? env.cacheFiles };
      const transfer = typeof request.model === "object" && "port" in request.model ? [request.model.port] : [];
      return new InferenceSession(client, await client.call("inference_open", request, { signal: options.signal, onProgress, transfer }), seed);
    } catch (e) {
      client.end();
      throw e;
    }
  }

  /** Names of the inputs, in the model's order. */
  get inputNames(): readonly string[] { return this.info.inputs.map((i) => i.name); }
  /** Names of the outputs, in the model's order. */
  get outputNames(): readonly string[] { return this.info.outputs.map((o) => o.name); }
  /** Names, types and shapes of the inputs, as the file declares them. */
  get inputMetadata(): readonly ValueMetadata[] { return this.info.inputs.map(metadata); }
  /** Those of the outputs. */
  get outputMetadata(): readonly ValueMetadata[] { return this.info.outputs.map(metadata); }
  /** What it computes on: the engine's build, its threads, and in words why there is one only. */
  get device(): { flavour: string; threads: number; whyNotThreads: string } {
    const { flavour, threads, whyNotThreads } = this.info;
    return { flavour, threads, whyNotThreads };
  }

  /**
   * Runs the model.
   * @param feeds a tensor for each input
   * @param fetches names of the outputs wanted (a list, or an object with them as keys); default: all
   * @param options `seed`: an integer from 0 to 2^63 - 1 that this run's random numbers follow from, whatever the session's is
   * @throws InputError: a feed is missing, unknown, or of another type or shape; nothing is lost. UnsupportedOp, OutOfMemory, Aborted
   */
  async run(feeds: Tensors, fetches?: readonly string[] | Record<string, unknown>, options: { signal?: AbortSignal; seed?: number | bigint } = {}): Promise<Tensors> {
    const names = fetches === undefined ? this.outputNames : Array.isArray(fetches) ? (fetches as string[]) : Object.keys(fetches);
    const data = plain(feeds);
    const seed = checkSeed(options.seed, "options.seed") ?? (this.seed === undefined ? randomSeed() : seedOfRun(this.seed, this.runs));
    this.runs++;
    const transfer = Object.values(data).map((t) => t.data.buffer);
    return picked(await this.client.call("inference_run", { feeds: data, outputs: [...names], seed }, { signal: options.signal, onProgress, transfer }), undefined);
  }

  /**
   * Where the time goes. What Python runs (graphs that no plan covers) is not seen.
   * @param work feeds, with which the model is run `runs` times (default 5) after a first run that is not counted; or a function that runs what is to be watched
   * @throws as `run`, or what `work` throws
   */
  async profile(work: Tensors | (() => unknown), { runs = 5 }: { runs?: number } = {}): Promise<Profile> {
    if (typeof work === "function") return watched(this.client, undefined, work);
    const feeds = (): Tensors => Object.fromEntries(Object.entries(work));
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

/** Packages are read from the page's memory as they lie there; what Python compiles, it reads as a Blob. */
function isPackage(file: unknown): file is Uint8Array {
  return file instanceof Uint8Array && isMagic(file);
}

function fileOf(file: string | URL | Uint8Array | ArrayBuffer | Blob, where: string): string | Blob {
  if (typeof file === "string" || file instanceof URL) return full(String(file));
  if (file instanceof Blob) return file;
  if (file instanceof ArrayBuffer || ArrayBuffer.isView(file)) return new Blob([file as BlobPart]);
  throw new InputError("it is no model", where, "Give an address, a File, or the file's bytes.");
}

function metadata({ name, type, dtype, shape }: ValueInfo): ValueMetadata {
  return { name, isTensor: type === "tensor", type: dtype as TensorType, shape: shape?.map((d) => d ?? "") };
}
