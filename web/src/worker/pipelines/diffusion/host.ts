// The graphs of a diffusion model, of which one at a time is in memory.

import type { Device } from "../../../device/device.ts";
import type { Processor } from "../../../gen/schema.ts";
import type { Facts as Model } from "../../../logic/diffusion/options.ts";
import type { LoadRequest } from "../../../protocol/loading.ts";
import type { TaskInfo, TaskTensor } from "../../../protocol/tasks.ts";
import { Aborted, PackageError } from "../../../shared/errors.ts";
import { type DeviceInfo, platform } from "../../../shared/platform.ts";
import type { InferenceInfo } from "../../inference/manifest.ts";
import type { InferenceModel } from "../../inference/model.ts";
import { makePackaged, runAgain } from "../../inference/service.ts";
import type { Progress } from "../../model/job.ts";
import { type Filled, fillModel } from "../../model/load.ts";
import { Weights } from "../../model/weights.ts";
import type { Manifest } from "../../package/manifest.ts";
import type { Tokenizer } from "../../text/tokenizer.ts";

const TASK = "text-to-image";

/**
 * What a package says of the model; python/edgewise/compiler/task_package/text_to_image.py. `size`
 * is that of the package.
 */
export interface Facts extends Model {
  /** Tokens of a prompt. */
  length: number;
  /** Id of padding for the second text encoder. */
  pad: number | null;
}

const MAX = 2 ** 16; // of a side, of channels, and of tokens

/** Whether a package's description is one of a model. */
export function isFacts(found: unknown): found is Facts {
  if (typeof found !== "object" || found === null) return false;
  const facts = found as { [field in keyof Facts]?: unknown };
  const isCount = (n: unknown): boolean =>
    Number.isInteger(n) && (n as number) > 0 && (n as number) <= MAX;
  const { size, channels, scale, factor, shift, cond, length, scheduler } = facts;
  const { inputs = channels, xl = false, zeros = false, pad = null } = facts;
  return (
    typeof facts.kind === "string" &&
    typeof facts.checked === "boolean" &&
    typeof scheduler === "object" &&
    scheduler !== null &&
    Array.isArray(size) &&
    size.length === 2 &&
    [...size, channels, scale, length, inputs].every(isCount) &&
    typeof xl === "boolean" &&
    typeof zeros === "boolean" &&
    (pad === null || pad === 0 || isCount(pad)) &&
    (cond === null || isCount(cond)) &&
    Number.isFinite(shift) &&
    Number.isFinite(factor) &&
    factor !== 0
  );
}

/** A loaded pipeline: plans are in memory, and the weights of the graphs that are open. */
export class DiffusionHost {
  readonly task = TASK;
  /** Is told of the device in the place of a lost GPU. */
  moved: (device: DeviceInfo) => void = () => undefined;
  device: Device;
  readonly processor: Processor;
  readonly facts: Facts;
  readonly tokenizer: Tokenizer;
  readonly info: TaskInfo;
  private open = new Map<string, InferenceModel>();
  private held: Weights | undefined;

  private constructor(private readonly filled: Filled) {
    const { job, device, found, texts } = filled;
    this.device = device;
    this.processor = found.manifest.processor;
    const facts = this.processor.diffusion;
    const tokenizer = job.readTexts(texts, found.where);
    if (!isFacts(facts) || !tokenizer)
      throw new PackageError("its description is not valid", found.where, REBUILD);
    const { inputs = facts.channels, xl = false, zeros = false, pad = null } = facts;
    this.facts = { ...facts, inputs, xl, zeros, pad };
    this.tokenizer = tokenizer;
    this.info = {
      ...device.choice,
      device: device.info,
      isolated: platform().isolated,
      origin: found.origin,
      dtype: found.dtype,
      memory: { engine: device.memoryBytes, weights: 0 },
      ms: { engine: device.instantiateMs, compile: found.compileMs, load: 0 },
    };
    if (this.facts.checked && !this.has("safety_checker"))
      job.warn(
        "The model has no safety checker: its pictures are not checked. Check what you show to " +
          "others.",
      );
  }

  /**
   * Loads the plans of a model, but no weights.
   * @throws as `fillModel`; PackageError if the package is for another task
   */
  static async load(
    request: LoadRequest,
    signal: AbortSignal,
    progress: Progress,
  ): Promise<DiffusionHost> {
    const started = performance.now();
    const check = ({ task }: Manifest, where: string): void => {
      if (task !== TASK)
        throw new PackageError(`it was built for '${task}', not for '${TASK}'`, where, REBUILD);
    };
    const host = await fillModel(request, signal, progress, check, (f) => new DiffusionHost(f));
    host.info.ms.load = performance.now() - started;
    return host;
  }

  /** Whether there is a graph of a name. */
  has(name: string): boolean {
    return this.filled.found.manifest.programs!.has(name);
  }

  /**
   * A graph: its inputs, outputs and plans.
   * @throws PackageError if there is none of the name
   */
  graph(name: string): InferenceInfo {
    const graph = this.filled.found.manifest.programs!.get(name);
    if (graph) return graph;
    throw new PackageError(`it has no program '${name}'`, this.filled.found.where, REBUILD);
  }

  /**
   * Loads the weights of graphs for some work, after which they are freed.
   * @throws as `fillModel` and `work`
   */
  async during<T>(names: readonly string[], work: () => Promise<T>): Promise<T> {
    try {
      if (!(await this.recover(names))) await this.load(names);
      return await work();
    } finally {
      this.free();
      this.info.memory.engine = this.device.memoryBytes;
    }
  }

  private async load(names: readonly string[]): Promise<void> {
    const { found, files } = this.filled;
    const { manifest, where } = found;
    const graphs = names.map((name): [string, InferenceInfo] => [name, this.graph(name)]);
    const used = new Set<string>();
    for (const [, { plans }] of graphs)
      for (const { slots } of plans)
        for (const { name, kind } of slots) if (kind === "weight") used.add(name);
    const weights = new Map([...manifest.weights].filter(([name]) => used.has(name)));
    const held = new Weights(this.device, { weights: new Map() });
    this.held = held;
    held.add({ weights });
    await found.fill(held.extents({ weights }, where));
    for (const [name, graph] of graphs)
      this.open.set(name, makePackaged(this.device, held, where, graph, files));
    const plans = [...this.open.values()].flatMap(({ library }) => library.plansInUse());
    this.info.memory.weights = held.bytes;
    held.compute(plans, true);
  }

  private free(): void {
    for (const { library } of this.open.values()) library.free();
    this.open.clear();
    this.held?.free();
    this.held = undefined;
  }

  /**
   * Moves to the device in the place of a lost GPU, with the weights of graphs.
   * @returns false if no GPU was lost
   */
  private async recover(names: readonly string[]): Promise<boolean> {
    const device = await this.device.replacement?.();
    if (!device) return false;
    this.free();
    this.device = device;
    this.moved((this.info.device = device.info));
    await this.load(names);
    return true;
  }

  /**
   * Runs a graph that is open; again on another device, if a GPU was lost meanwhile.
   * @param seed of its random numbers
   * @returns all outputs by name
   * @throws InputError, OutOfMemory, Aborted
   */
  async run(
    name: string,
    feeds: Record<string, TaskTensor>,
    ending?: AbortSignal,
    seed?: bigint,
  ): Promise<Record<string, TaskTensor>> {
    if (ending?.aborted) throw new Aborted("the call was aborted by its signal", TASK, "");
    const outputs = this.graph(name).outputs.map((o) => o.name);
    const request = { feeds, outputs, seed, pinned: undefined, copied: false };
    const made = await runAgain(
      () => this.open.get(name)!.run(request, [], ending, () => undefined),
      () => this.recover([...this.open.keys()]),
      ending,
    );
    return Object.fromEntries(
      made.map((value, i) => {
        const fed = value && "fed" in value ? feeds[value.fed] : undefined;
        return [outputs[i]!, fed ?? (value as TaskTensor)];
      }),
    );
  }
}

const REBUILD = "Build the package again with this version: `edgewise build --task text-to-image`.";
