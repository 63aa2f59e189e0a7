// A pipeline whose model has an encoder and a decoder, as training sees it.

import type { Device } from "../../device/device.ts";
import type { Pair, PairKind } from "../../logic/training/pairs.ts";
import type { Urls } from "../../protocol/loading.ts";
import type { TaskInfo } from "../../protocol/tasks.ts";
import { InputError } from "../../shared/errors.ts";
import { keyOf, trainingFiles } from "../model/manifest-parts.ts";
import type { Asked, Encoded, FeedFeatures, Learner } from "../model/model.ts";
import type { Weights } from "../model/weights.ts";
import type { DecoderInfo, Manifest, Seq2SeqInfo } from "../package/manifest.ts";
import type { Tokenizer } from "../text/tokenizer.ts";

/** What training needs of a pipeline (pipelines/host.ts). */
interface Hosting {
  readonly task: string;
  readonly tokenizer: Tokenizer | undefined;
  readonly info: Pick<TaskInfo, "device" | "training">;
  readonly on: {
    readonly device: Device;
    readonly seq2seq: { readonly info: Seq2SeqInfo; readonly width: number } | undefined;
    readonly language: { readonly info: DecoderInfo } | undefined;
  };
  readonly from: {
    readonly found: { readonly manifest: Manifest; readonly where: string };
    readonly weights: Weights;
    readonly files: Map<string, Uint8Array>;
    readonly job: { readonly request: { readonly urls: Urls } };
  };
  text(name: string): string | undefined;
}

/** How a pipeline reads pairs (pipelines/runner.ts). */
export interface PairReading {
  kind: PairKind;
  prepare(
    given: Readonly<Record<string, unknown>>,
  ): (pair: Pair, ending: AbortSignal) => Promise<Encoded | Asked>;
  feeds?: FeedFeatures;
}

/**
 * A pipeline as a model that learns.
 * @param runner how its task reads pairs, where it does
 * @throws InputError if it has no decoder that can be trained
 */
export function learnerOf(host: Hosting, runner: () => Promise<PairReading | undefined>): Learner {
  const { seq2seq, language, device } = host.on;
  const { found, weights, files, job } = host.from;
  const { manifest, where } = found;
  if (!(seq2seq ?? language) || !host.tokenizer)
    throw new InputError(
      `a pipeline of ${host.task} does not learn from pairs`,
      "model",
      "Give one of automatic-speech-recognition, text2text-generation, translation, " +
        "summarization or image-text-to-text.",
    );
  const { plans, vocabSize } = (seq2seq ?? language)!.info;
  const sources = seq2seq?.info.encoder.plans.map(({ cross }) => cross) ?? [];
  return {
    device,
    decoder: {
      adapter: () => "",
      info: { plans: [...plans, ...sources] },
      vocab_size: vocabSize,
      clearCache: () => undefined, // nothing of calls is kept
      useWeights: () => undefined, // adapters alone are trained
      recover: async () => false, // the run ends with its GPU
    },
    tokenizer: host.tokenizer,
    info: { device: host.info.device, training: host.info.training ?? [] },
    weights,
    adapters: undefined,
    programs: manifest.training,
    files: trainingFiles(manifest, files),
    key: keyOf(manifest),
    described: manifest.weights,
    where,
    urls: job.request.urls,
    onnx: undefined,
    config: host.text("config.json"),
    async pairs(options, signal) {
      const pairs = await runner();
      if (!pairs)
        throw new InputError(
          "this model does not learn from pairs",
          host.task,
          "Of speech recognition, Whisper does; of models that are asked, those that see.",
        );
      const read = pairs.prepare(options);
      const { kind, feeds } = pairs;
      return { kind, width: seq2seq?.width ?? 0, read: (pair) => read(pair, signal), feeds };
    },
  };
}
