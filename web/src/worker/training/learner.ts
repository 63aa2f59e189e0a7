// A pipeline whose model has an encoder and a decoder, as training sees it.

import { InputError } from "../../shared/errors.ts";
import { keyOf, trainingFiles } from "../model/manifest-parts.ts";
import type { Learner } from "../model/model.ts";
import type { TaskHost } from "../pipelines/host.ts";
import type { TaskRunner } from "../pipelines/runner.ts";

/**
 * A pipeline as a model that learns.
 * @param runner of its task
 * @throws InputError if it has no decoder that can be trained
 */
export function learnerOf(host: TaskHost, runner: () => Promise<TaskRunner>): Learner {
  const { seq2seq, device } = host.on;
  const { found, weights, files, job } = host.from;
  const { manifest, where } = found;
  if (!seq2seq || !host.tokenizer)
    throw new InputError(
      `a pipeline of ${host.task} does not learn from pairs`,
      "model",
      "Give one of automatic-speech-recognition, text2text-generation, translation or " +
        "summarization.",
    );
  const { encoder, plans, vocabSize } = seq2seq.info;
  const sources = encoder.plans.map(({ cross }) => cross);
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
      const { pairs } = await runner();
      if (!pairs)
        throw new InputError(
          "this model does not learn from pairs",
          host.task,
          "Of speech recognition, Whisper does.",
        );
      const read = pairs.prepare(host, options);
      const { kind } = pairs;
      return { kind, width: seq2seq.width, read: (pair) => read(pair, signal) };
    },
  };
}
