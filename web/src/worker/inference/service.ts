// The worker's side of an InferenceSession (with `proxy: false`, in the page itself): one model,
// whose runs are executed one after the other.

import type { Device } from "../../device/device.ts";
import { fasterOf, openDevice } from "../../device/open.ts";
import { MAX_LOOP_TRIPS } from "../../gen/session.ts";
import type { OpenInfo, OpenRequest, RunAnswer, RunRequest } from "../../protocol/inference.ts";
import { throwIfAborted } from "../../shared/abort.ts";
import { Aborted, EngineError, InputError } from "../../shared/errors.ts";
import type { Warn } from "../../shared/files/cached.ts";
import type { DeviceInfo } from "../../shared/platform.ts";
import { LAST, Turns } from "../../shared/turns.ts";
import { message } from "../../shared/words.ts";
import type { Progress } from "../files/reports.ts";
import type { Weights } from "../model/weights.ts";
import { graphs } from "../package/parse.ts";
import { PlanLibrary } from "./library.ts";
import { graphOf, type InferenceInfo, modelInfo } from "./manifest.ts";
import { CopyLost, InferenceModel } from "./model.ts";
import { inWorker, openModel, type StartPython } from "./open.ts";

graphs.read = graphOf;

/** Ends a run: `aborted` is polled between parts and loop iterations. */
export interface Ending {
  readonly aborted: boolean;
}

/** Result of a call, with the buffers to transfer to the page. */
export interface Answer<T> {
  value: T;
  transfer: Transferable[];
}

/** Maximum bytes of the values that a run of a packaged graph holds at once. */
const MAX_MEMORY = 0xffff_0000;

/**
 * A graph of a package that has several, which share a device and weights. `Weights.compute` must
 * follow, with the plans of all libraries (`PlanLibrary.plansInUse`).
 * @throws PackageError
 */
export function makePackaged(
  device: Device,
  weights: Weights,
  where: string,
  graph: InferenceInfo,
  files: ReadonlyMap<string, Uint8Array>,
): InferenceModel {
  const library = new PlanLibrary(device, weights, where, MAX_MEMORY, undefined);
  library.addPackaged(graph, files);
  return new InferenceModel(
    library,
    { ...modelInfo(graph), device: device.info },
    { max_loop_trips: MAX_LOOP_TRIPS, max_compilations: 0, max_run_seconds: undefined },
  );
}

/** Losses after which a call is made again: the second one within minutes moves to the CPU. */
const LOSSES = 2;

/**
 * Does work without a state; if a GPU was lost meanwhile, again on another device.
 * @param recover moves there; false if no GPU was lost, or the work cannot begin again
 */
export async function runAgain<T>(
  work: () => Promise<T>,
  recover: (error: unknown) => Promise<boolean>,
  ending: Ending | undefined,
): Promise<T> {
  for (let losses = 0; ; losses++)
    try {
      return await work();
    } catch (e) {
      if (ending?.aborted || losses === LOSSES || !(await recover(e))) throw e;
    }
}

/** A session. */
export class InferenceService {
  private model: InferenceModel | undefined;
  /** Whether its GPU was lost, and it could not be opened again. */
  private broken = false;
  /** What the model was opened with. */
  private request: OpenRequest | undefined;
  private readonly turns = new Turns();
  /** What the page knows of the device. */
  private told: DeviceInfo | undefined;
  private readonly ended = new AbortController();

  /** @param opening opens models; replaced in tests */
  constructor(private readonly opening: typeof openModel = openModel) {}

  /**
   * Opens the model.
   * @param signal aborts opening, and ends the session
   * @throws as openModel
   */
  async open(request: OpenRequest, progress: Progress, signal?: AbortSignal): Promise<OpenInfo> {
    const stop = (): void => this.ended.abort(signal!.reason);
    if (signal?.aborted) stop();
    else signal?.addEventListener("abort", stop, { once: true });
    try {
      this.model = await this.opening(request, this.ended.signal, progress);
      this.request = request;
      this.told = this.model.info.device;
      return this.model.info;
    } finally {
      signal?.removeEventListener("abort", stop);
    }
  }

  /**
   * The device, for profiles.
   * @throws InputError if the session has ended
   */
  get device(): Device {
    return this.opened().device;
  }

  /**
   * Runs the model in its turn; again on another device, if a GPU was lost meanwhile.
   * @param order its place among the calls that wait, see Turns
   * @param signal ends the wait
   * @throws as InferenceModel.run
   */
  run(
    request: RunRequest,
    ending: Ending,
    warn: Warn,
    order?: number,
    signal?: AbortSignal,
  ): Promise<Answer<RunAnswer>> {
    const { drop } = request;
    const early = this.turns.idle;
    // runs that wait may still read them, and come after this one
    if (!early && drop?.length) void this.drop(drop);
    const work = async (): Promise<Answer<RunAnswer>> => {
      if (early && drop?.length) this.model?.drop(drop);
      if (!this.broken) this.model?.keepCopies(request.feeds);
      if (ending.aborted)
        throw new Aborted("the run was aborted by its signal before it began", "", "");
      if (this.broken) await this.recover(warn);
      return runAgain(
        () => this.once(request, ending, warn),
        async (e) => !(e instanceof CopyLost) && this.recover(warn),
        ending,
      );
    };
    return this.turns.take(work, order, signal).catch((e: unknown) => {
      if (!(e instanceof CopyLost)) throw e;
      return { value: { values: [], spare: [], again: true }, transfer: [] };
    });
  }

  private async once(request: RunRequest, ending: Ending, warn: Warn): Promise<Answer<RunAnswer>> {
    const transfer: Transferable[] = [];
    const model = this.opened();
    const values = await model.run(request, transfer, ending, warn);
    const spare = request.copied ? model.spare(request) : [];
    const value: RunAnswer = { values, spare };
    const { device } = model.info;
    if (device !== this.told) this.told = value.device = device;
    // what fails there is reported by the next run
    if (model.library.compiled.size)
      this.turns.take(() => this.improve(warn), LAST).catch(() => undefined);
    return { value, transfer: [...transfer, ...spare] };
  }

  /**
   * Moves to a GPU, where `auto` was asked for and it runs faster what was compiled here. Plans are
   * those that were stored; not while outputs stay in the engine, nor where files would be
   * downloaded again. The model stays in WebAssembly until it is complete on the GPU.
   */
  private async improve(warn: Warn): Promise<void> {
    const { model } = this;
    if (!model || this.broken) return;
    const { library, info } = model;
    const works = [...library.compiled.values()];
    library.compiled.clear();
    if (!works.length || !library.compiling?.kept || model.holds) return;
    const before = library.device;
    if (before.options.adapter === undefined || before.info.name !== "wasm") return;
    const gone = (): boolean => this.ended.signal.aborted || this.model !== model;
    if (!(await library.compiling.files.local()))
      before.options.whyNotGpu ??= "the model's files would be downloaded again: store them";
    if (gone()) return;
    const device = await fasterOf(before, () => works);
    info.device = before.info;
    if (device === before) return;
    device.guest = true;
    if (gone()) return device.close();
    let moved: InferenceModel;
    try {
      moved = await this.movedTo(device, warn);
    } catch (e) {
      before.options.whyNotGpu = `the model could not be moved to the GPU (${message(e)})`;
      info.device = before.info;
      return;
    }
    if (gone()) return moved.device.close();
    library.compiling.python.end();
    library.free();
    library.weights.free();
    device.guest = false;
    moved.follow(model);
    this.model = moved;
  }

  /** The model on another device, with the plans that are stored; else the device is closed. */
  private movedTo(device: Device, warn: Warn): Promise<InferenceModel> {
    let opened = false;
    let complete = false;
    const open: typeof openDevice = async () => {
      if (opened) throw new EngineError("its plans were not stored", "", "");
      opened = true;
      return device;
    };
    const start: StartPython = (urls, signal) => {
      if (!complete) throw new EngineError("its plans were not stored", "", "");
      return inWorker(urls, signal);
    };
    const progress: Progress = (event) => event.status === "warning" && warn(event.message);
    return this.opening(this.request!, this.ended.signal, progress, start, open).then((moved) => {
      complete = true;
      return moved;
    });
  }

  /**
   * Opens the model again on the device in the place of a lost GPU.
   * @returns false if no GPU was lost
   * @throws EngineError if it could not be opened; the next run tries it once more
   */
  private async recover(warn: Warn): Promise<boolean> {
    const before = this.opened();
    let device = this.broken ? undefined : await before.device.replacement?.();
    if (!device && !this.broken) return false;
    this.broken = true;
    before.library.compiling?.python.end();
    const open: typeof openDevice = (options) => {
      const found = device ? Promise.resolve(device) : openDevice(options);
      device = undefined; // it is closed if the model cannot be opened there
      return found;
    };
    const { signal } = this.ended;
    let opened: InferenceModel;
    try {
      const progress: Progress = (event) => event.status === "warning" && warn(event.message);
      opened = await this.opening(this.request!, signal, progress, undefined, open);
    } catch (e) {
      device?.close();
      throwIfAborted(signal);
      throw new EngineError(
        `the GPU was lost, and the model could not be opened again (${message(e)})`,
        before.library.where,
        "Run the session again to try it once more, or make a new one.",
      );
    }
    if (signal.aborted) opened.device.close();
    throwIfAborted(signal);
    opened.follow(before);
    this.model = opened;
    this.broken = false;
    return true;
  }

  /** Bytes of an output that stayed in the engine. */
  async read(id: number): Promise<Answer<Uint8Array<ArrayBuffer>>> {
    const value = await this.opened().read(id);
    return { value, transfer: [value.buffer] };
  }

  /** Frees outputs that stayed in the engine, after the runs that wait now: they may read them. */
  drop(ids: readonly number[]): Promise<void> {
    return this.turns.take(async () => this.model?.drop(ids), this.turns.behind);
  }

  /** Ends the session and frees the device's memory. */
  close(): void {
    this.ended.abort();
    this.model?.device.close();
    this.model = undefined;
  }

  private opened(): InferenceModel {
    if (!this.model)
      throw new InputError("this session has been released", "InferenceSession", "Make a new one.");
    return this.model;
  }
}
