// A model of several graphs, which share a device and, where they are compiled, one Python.

import type { Device } from "../../device/device.ts";
import { openDevice } from "../../device/open.ts";
import type { Port, Signature } from "../../logic/speech/graphs.ts";
import type { GraphsInfo } from "../../protocol/graphs.ts";
import { BOUNDS, type ValueInfo, type WireValue } from "../../protocol/inference.ts";
import type { LoadRequest } from "../../protocol/loading.ts";
import { InputError } from "../../shared/errors.ts";
import { platform } from "../../shared/platform.ts";
import { Compiler } from "../compiler-client.ts";
import { type Progress, sessionWarnings } from "../files/reports.ts";
import type { InferenceInfo } from "../inference/manifest.ts";
import type { InferenceModel } from "../inference/model.ts";
import { openModel, type StartPython } from "../inference/open.ts";
import { type Dim, dimAt, ruleAt } from "../inference/registers.ts";
import { makePackaged } from "../inference/service.ts";
import type { FoundGraphs } from "./files.ts";

const ONE_BY_ONE = "'auto' takes WebAssembly for graphs that are compiled one by one";

/** The graphs of a model. */
export class Graphs {
  private readonly models = new Map<string, Promise<InferenceModel>>();
  private device: Promise<Device> | undefined;
  private python: Compiler | undefined;

  private constructor(
    private readonly request: LoadRequest,
    readonly found: FoundGraphs,
    private readonly ended: AbortSignal,
    private readonly progress: Progress,
  ) {}

  /** The graphs of what was found. If a package is damaged, all resources are freed. */
  static async of(
    request: LoadRequest,
    found: FoundGraphs,
    ended: AbortSignal,
    progress: Progress,
  ): Promise<Graphs> {
    const made = new Graphs(request, found, ended, progress);
    try {
      await made.place();
    } catch (e) {
      made.close();
      throw e;
    }
    return made;
  }

  /** Loads the plans of a package, and computes what depends on weights alone. */
  private async place(): Promise<void> {
    const { packed } = this.found;
    if (!packed) return;
    const { device, weights, files, found } = packed;
    this.device = Promise.resolve(device);
    const models: InferenceModel[] = [];
    for (const [name, graph] of found.manifest.programs!) {
      const model = makePackaged(device, weights, found.where, graph, files);
      models.push(model);
      this.models.set(name, Promise.resolve(model));
    }
    weights.compute(
      models.flatMap(({ library }) => library.plansInUse()),
      true,
    );
    await device.ready();
  }

  /** Names of the graphs. */
  get names(): string[] {
    const packed = this.found.packed?.found.manifest.programs?.keys() ?? [];
    return [...new Set([...this.found.graphs.keys(), ...packed])];
  }

  /**
   * A graph, which is loaded on first use.
   * @throws InputError if there is none of this name
   */
  graph(name: string): Promise<InferenceModel> {
    const known = this.models.get(name);
    if (known) return known;
    const file = this.found.graphs.get(name);
    if (!file) throw new InputError(`the model has no graph '${name}'`, this.found.where);
    const opened = this.open(file);
    this.models.set(name, opened);
    opened.catch(() => this.models.delete(name));
    return opened;
  }

  /** The inputs and outputs of a graph. */
  async signature(name: string): Promise<Signature> {
    const { info } = await this.graph(name);
    const graph = this.found.packed?.found.manifest.programs?.get(name);
    const most = (input: string): number => (graph ? mostOf(graph, input) : 0);
    return {
      inputs: info.inputs.map((of) => ({ ...port(of), most: most(of.name) })),
      outputs: info.outputs.map(port),
    };
  }

  private open(file: string | Blob): Promise<InferenceModel> {
    const { urls, device, flavour, threads, cache, cache_files } = this.request;
    const start: StartPython = (addresses, signal) => {
      if (!this.python?.alive) this.python = new Compiler(addresses, signal);
      return this.python;
    };
    const shared: typeof openDevice = (options) => {
      // which of them takes most time is not known when the first one is opened
      const auto =
        options.device === "auto" ? { device: "wasm" as const, whyNotGpu: ONE_BY_ONE } : {};
      this.device ??= openDevice({ ...options, ...auto });
      return this.device;
    };
    return openModel(
      {
        ...{ model: file, external: this.found.external, urls, device, flavour, threads },
        ...{ cache, cache_files, ...BOUNDS },
      },
      this.ended,
      this.progress,
      start,
      shared,
    );
  }

  /**
   * Runs a graph.
   * @param pinned names of outputs that stay in the engine
   * @returns all of `outputs`, in their order
   */
  async run(
    name: string,
    feeds: Record<string, WireValue>,
    outputs: string[],
    pinned: string[],
    seed: bigint | undefined,
    signal: AbortSignal,
  ): Promise<WireValue[]> {
    const model = await this.graph(name);
    const request = { feeds, outputs, seed, pinned, copied: false };
    return model.run(request, [], signal, sessionWarnings(this.progress));
  }

  /** The device that the graphs run on. */
  async opened(): Promise<Device> {
    if (!this.device) await this.graph(this.names[0]!);
    return this.device!;
  }

  /** What the page learns of the model. */
  async info(about: Record<string, unknown>): Promise<GraphsInfo> {
    const { choice, info } = await this.opened();
    return { ...choice, device: info, isolated: platform().isolated, about };
  }

  /** Frees all memory. */
  close(): void {
    this.python?.end();
    this.device?.then(
      (device) => device.close(),
      () => undefined,
    );
  }
}

function port({ name, dtype, shape }: ValueInfo): Port {
  const dims = (shape ?? []).map((d) => (typeof d === "number" ? d : -1));
  return { name, dtype, shape: dims, most: 0 };
}

/** The largest size of the last dimension of an input that a plan takes. */
function mostOf({ plans }: InferenceInfo, input: string): number {
  let found = 0;
  for (const { register, registers, inputs } of plans) {
    const values: number[] = [];
    for (const entry of register ? [register, ...registers] : [])
      values.push(entry.length === 7 ? ruleAt(entry, values) : entry[1]);
    const last: Dim = inputs.get(input)?.shape.at(-1) ?? 0;
    found = Math.max(found, dimAt(last, values));
  }
  return found;
}
