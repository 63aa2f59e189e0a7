// What of a pipeline is on a device, and how it moves to the device in the place of a lost GPU.

import type { Device } from "../../device/device.ts";
import type { TaskInfo } from "../../protocol/tasks.ts";
import { Aborted, EngineError } from "../../shared/errors.ts";
import type { DeviceInfo } from "../../shared/platform.ts";
import { message } from "../../shared/words.ts";
import type { InferenceInfo } from "../inference/manifest.ts";
import type { InferenceModel } from "../inference/model.ts";
import { makePackaged, runAgain } from "../inference/service.ts";
import type { EngineDecoder } from "../model/decoder.ts";
import { type Filled, filledAgain } from "../model/load.ts";
import { keyOf } from "../model/manifest-parts.ts";
import type { Weights } from "../model/weights.ts";
import { parseConfig } from "../text/tokenizer.ts";
import type { languageModel } from "./multimodal/model.ts";
import type { Seq2SeqModel } from "./seq2seq/model.ts";

type Ending = AbortSignal;

/** Loads the parts of the worker for models that generate text. */
export interface Generation {
  /** Of an encoder and a decoder. */
  seq2seq(): Promise<typeof Seq2SeqModel>;
  /** Of a language model that takes features. */
  language(): Promise<typeof languageModel>;
}

/** What of a pipeline is on a device: plans and weights. */
export class OnDevice {
  /** Is told of the device in the place of a lost GPU. */
  moved: (device: DeviceInfo) => void = () => undefined;

  private constructor(
    /** What the model was made of. */
    private readonly from: Filled,
    private readonly generation: Generation,
    public device: Device,
    private models = new Map<string, InferenceModel>(),
    public seq2seq: Seq2SeqModel | undefined = undefined,
    public language: EngineDecoder | undefined = undefined,
  ) {}

  /** Loads the plans, and computes what depends on weights alone. */
  static async of(
    from: Filled,
    generation: Generation,
    { device, weights }: Pick<Filled, "device" | "weights"> = from,
  ): Promise<OnDevice> {
    const { found, files, texts } = from;
    const { manifest, where } = found;
    const models = new Map<string, InferenceModel>();
    for (const [name, graph] of manifest.programs!) {
      const on = name === "head" && isAlone(graph) ? (device.processor ?? device) : device;
      models.set(name, makePackaged(on, weights, where, graph, files));
    }
    const plans = [...models.values()].flatMap((model) =>
      model.device === device ? model.library.plansInUse() : [],
    );
    let seq2seq: Seq2SeqModel | undefined;
    let language: EngineDecoder | undefined;
    const config = (name: string) => parseConfig(texts.get(name), name);
    const configs = [config("generation_config.json"), config("config.json")] as const;
    const release = !manifest.training.size; // training may read all weights
    if (manifest.seq2seq) {
      const Model = await generation.seq2seq();
      const of = [device, manifest.seq2seq, weights, files, ...configs, where, plans] as const;
      seq2seq = new Model(...of, release);
    } else if (manifest.decoder) {
      const make = await generation.language();
      const of = [device, manifest.decoder, weights, files, ...configs, where, plans] as const;
      language = make(...of, release);
    } else weights.compute(plans, true);
    await device.ready();
    return new OnDevice(from, generation, device, models, seq2seq, language);
  }

  /** Runs a graph, as `InferenceModel.run`; again on another device, if a GPU was lost. */
  run(
    name: string,
    request: Parameters<InferenceModel["run"]>[0],
    info: TaskInfo,
    ending: Ending | undefined,
  ): ReturnType<InferenceModel["run"]> {
    return runAgain(
      () => this.models.get(name)!.run(request, [], ending, () => undefined),
      () => this.recover(info, ending),
      ending,
    );
  }

  /**
   * Moves to the device in the place of a lost GPU: weights come from where they came before.
   * @returns false if no GPU was lost
   * @throws EngineError if the weights could not be loaded again; the next call tries it once more
   */
  async recover(info: TaskInfo, signal?: Ending): Promise<boolean> {
    const { device: lost, from, models } = this;
    const device = await lost.replacement?.();
    if (!device) return false;
    const { job, found } = from;
    let weights: Weights | undefined;
    try {
      weights = await filledAgain(job.request, keyOf(found.manifest), lost, device, signal);
      const { bytes } = weights;
      const made = await OnDevice.of(from, this.generation, { device, weights });
      for (const one of models.values()) if (one.device !== lost) one.library.free();
      const { seq2seq, language } = made;
      Object.assign(this, { device, models: made.models, seq2seq, language });
      info.memory = { engine: device.memoryBytes, weights: bytes };
    } catch (e) {
      weights?.free();
      if (e instanceof Aborted) throw e;
      throw new EngineError(
        `${lost.lost!.what}, and the model could not be loaded again (${message(e)})`,
        found.where,
        "Call the pipeline again to try it once more.",
      );
    }
    this.moved((info.device = device.info));
    return true;
  }
}

/** Whether a graph has no weights: the steps of a head, which are too small for a GPU. */
function isAlone({ plans }: InferenceInfo): boolean {
  return plans.every(({ slots }) =>
    slots.every(({ kind }) => kind !== "weight" && kind !== "computed"),
  );
}
