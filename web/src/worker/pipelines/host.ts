// The graphs of a pipeline on one device, and the files that belong to them.

import type { Device } from "../../device/device.ts";
import type { Processor } from "../../gen/schema.ts";
import type { Seen } from "../../logic/images/views.ts";
import { is_for } from "../../logic/tasks/names.ts";
import type { LoadRequest } from "../../protocol/loading.ts";
import type { TaskInfo, TaskTensor } from "../../protocol/tasks.ts";
import { Aborted, InputError, ModelError, PackageError } from "../../shared/errors.ts";
import { platform } from "../../shared/platform.ts";
import type { InferenceInfo } from "../inference/manifest.ts";
import type { EngineDecoder } from "../model/decoder.ts";
import type { Progress } from "../model/job.ts";
import { type Filled, fillModel } from "../model/load.ts";
import { waysOf } from "../model/manifest-parts.ts";
import type { Manifest } from "../package/manifest.ts";
import { parseConfig, type Tokenizer } from "../text/tokenizer.ts";
import { Beside } from "./beside.ts";
import { type Generation, OnDevice } from "./recovery.ts";
import type { Seq2SeqModel } from "./seq2seq/model.ts";

/** Ends a call: polled between the parts of a run. */
export type Ending = AbortSignal;

/** An encoder of pictures of any size, of which a package has no plans. */
export interface PictureEncoder {
  /**
   * The features of a picture, float32 [count, width of a feature].
   * @param frames pieces of the picture, or of each frame that is seen together with others: 3
   *   bytes a pixel, one after the other
   * @param seen what the model sees of it
   * @throws InputError, UnsupportedOp, OutOfMemory, Aborted
   */
  features(
    host: TaskHost,
    frames: readonly Uint8Array<ArrayBuffer>[],
    seen: Seen,
    ending: Ending,
  ): Promise<Uint8Array>;
}

/** Loads the parts of the worker for models that generate text. */
export interface Parts extends Generation {
  /** Of an encoder of pictures of any size. */
  encoder(): Promise<{ open(from: Filled, file: string): Promise<PictureEncoder> }>;
}

const MODEL = "model";

/** A loaded pipeline. */
export class TaskHost {
  private readonly configs = new Map<string, Record<string, unknown>>();

  private constructor(
    readonly task: string,
    readonly tokenizer: Tokenizer | undefined,
    /** What happens to inputs before they reach a graph (python/edgewise/compiler/task_package). */
    readonly processor: Processor,
    readonly info: TaskInfo,
    private readonly graphs: ReadonlyMap<string, InferenceInfo>,
    readonly on: OnDevice,
    /** What the model was made of. */
    readonly from: Filled,
    /** Of pictures of any size. */
    readonly encoder: PictureEncoder | undefined,
    /** Runs the graph "model", where it has no plans. */
    private readonly session: Beside | undefined,
  ) {}

  /** The device of its graphs. */
  get device(): Device {
    return this.on.device;
  }

  /**
   * Loads a pipeline: from a package, with the plans of an earlier visit, or by compiling it. If it
   * fails, all resources are freed.
   * @param generation loads the parts of the worker for models that generate text
   * @param known is told of the manifest, before weights arrive
   * @throws as `fillModel`; PackageError if the package is for another task
   */
  static async open(
    request: LoadRequest,
    signal: AbortSignal,
    progress: Progress,
    generation: Parts,
    known: (manifest: Manifest) => void,
  ): Promise<TaskHost> {
    const started = performance.now();
    const { task } = request;
    const check = (manifest: Manifest, where: string): void => {
      checkTask(manifest, task, where);
      known(manifest);
    };
    const host = await fillModel(request, signal, progress, check, (filled) =>
      TaskHost.of(filled, task, generation),
    );
    host.info.ms.load = performance.now() - started;
    return host;
  }

  private static async of(filled: Filled, task: string, generation: Parts): Promise<TaskHost> {
    const { job, device, found, weights, texts } = filled;
    const { manifest, where, origin, dtype, compileMs } = found;
    const { bytes } = weights;
    const on = await OnDevice.of(filled, generation);
    const info: TaskInfo = {
      ...device.choice,
      device: device.info,
      isolated: platform().isolated,
      origin,
      dtype,
      memory: { engine: device.memoryBytes, weights: bytes },
      ms: { engine: device.instantiateMs, compile: compileMs, load: 0 },
      ...(on.language ? { capacity: on.language.max_length } : {}),
      ...(manifest.training.size ? { training: waysOf(manifest) } : {}),
    };
    const tokenizer = job.readTexts(texts, where);
    const { processor } = manifest;
    const { encoder: file, session: graph } = processor;
    const encoder = file ? await (await generation.encoder()).open(filled, file) : undefined;
    const depends = "graph has shapes that depend on the picture";
    const session = graph ? await Beside.open(filled, graph, depends) : undefined;
    const of = [task, tokenizer, processor, info, manifest.programs!, on, filled] as const;
    return new TaskHost(...of, encoder, session);
  }

  /** As `OnDevice.recover`. */
  recover(signal?: Ending): Promise<boolean> {
    return this.on.recover(this.info, signal);
  }

  /**
   * Runs a graph; again on another device, if a GPU was lost meanwhile.
   * @param name of the graph
   * @param feeds tensors by the names of its inputs
   * @param seed of its random numbers. Default: unpredictable.
   * @param drawn how many plans have drawn with the seed before
   * @returns all outputs by name
   * @throws InputError, OutOfMemory, Aborted
   */
  async run(
    name: string,
    feeds: Record<string, TaskTensor>,
    ending?: Ending,
    seed?: bigint,
    drawn = 0,
  ): Promise<Record<string, TaskTensor>> {
    if (ending?.aborted) throw new Aborted("the call was aborted by its signal", this.task, "");
    const outputs = this.graph(name).outputs.map((o) => o.name);
    if (name === MODEL && this.session) {
      const made = await this.session.run(feeds, outputs, ending ?? { aborted: false });
      return Object.fromEntries(made.map((value, i) => [outputs[i]!, value]));
    }
    const request = { feeds, outputs, seed, drawn, pinned: undefined, copied: false };
    const made = await this.on.run(name, request, this.info, ending);
    this.info.memory.engine = this.device.memoryBytes;
    return Object.fromEntries(
      made.map((value, i) => {
        const fed = value && "fed" in value ? feeds[value.fed] : undefined;
        return [outputs[i]!, fed ?? (value as TaskTensor)];
      }),
    );
  }

  /** Whether there is a graph of a name. */
  has(name: string): boolean {
    return this.graphs.has(name) || (name === MODEL && !!this.session);
  }

  /**
   * A graph: its inputs, outputs and plans.
   * @throws PackageError if there is none of the name
   */
  graph(name: string): InferenceInfo {
    const graph = this.graphs.get(name);
    if (!graph && name === MODEL && this.session)
      return { ...this.session.info, plans: [], programs: [] };
    if (!graph)
      throw new PackageError(
        `it has no program '${name}'`,
        this.from.found.where,
        "Build it again with this version: `edgewise build --task`.",
      );
    return graph;
  }

  /**
   * A JSON file of the model; empty if there is none.
   * @throws ModelError
   */
  config(name = "config.json"): Record<string, unknown> {
    let config = this.configs.get(name);
    if (!config) {
      try {
        config = parseConfig(this.from.texts.get(name), name);
      } catch (e) {
        const { what, where, remedy } = e as ModelError;
        throw new ModelError(what, where, remedy);
      }
      this.configs.set(name, config);
    }
    return config;
  }

  /** Whether there is a model that generates, whose calls have a state on the device. */
  get decodes(): boolean {
    return !!this.on.seq2seq || !!this.on.language;
  }

  /**
   * The language model.
   * @throws PackageError if there is none
   */
  needLanguage(): EngineDecoder {
    const { language } = this.on;
    if (!language)
      throw new PackageError(
        "it has no language model",
        this.from.found.where,
        "Build it again with this version: `edgewise build --task`.",
      );
    return language;
  }

  /**
   * The encoder-decoder model.
   * @throws PackageError if there is none
   */
  needSeq2Seq(): Seq2SeqModel {
    const { seq2seq } = this.on;
    if (!seq2seq)
      throw new PackageError(
        "it has no encoder and decoder",
        this.from.found.where,
        "Build it again with this version: `edgewise build --task`.",
      );
    return seq2seq;
  }

  /** Text of a file of the model; undefined if there is none. */
  text(name: string): string | undefined {
    return this.from.texts.get(name);
  }

  /**
   * The tokenizer.
   * @throws InputError if the model has none
   */
  needTokenizer(): Tokenizer {
    if (!this.tokenizer)
      throw new InputError(
        "the model has no tokenizer.json",
        this.from.found.where,
        "Put it beside the model, and build the package again if it is one.",
      );
    return this.tokenizer;
  }
}

/** @throws PackageError if a package is for another task */
function checkTask({ task: of, programs }: Manifest, task: string, where: string): void {
  if (is_for(of, task) && programs) return;
  throw new PackageError(
    `it was built for '${of}', not for '${task}'`,
    where,
    programs || of === "text-generation"
      ? `Load it with pipeline("${of}"), or build it with \`edgewise build --task ${task}\`.`
      : `Build it with \`edgewise build --task ${task}\`.`,
  );
}
