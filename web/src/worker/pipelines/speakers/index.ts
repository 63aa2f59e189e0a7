// The part of the worker for models of several graphs that speak: SpeechT5 and Supertonic, and the
// part of those with the voice of a reference.

import * as flow from "../../../logic/speech/flow.ts";
import type { Signature } from "../../../logic/speech/graphs.ts";
import { CLONING, GRAPHS, kind_of, missing } from "../../../logic/speech/kinds.ts";
import * as frames from "../../../logic/speech/spectrograms.ts";
import type { GraphsCall } from "../../../protocol/graphs.ts";
import type { TaskTensor } from "../../../protocol/tasks.ts";
import { InputError, ModelError } from "../../../shared/errors.ts";
import { checkSeed, randomSeed } from "../../../shared/seeds.ts";
import { findGraphs, GraphHost, Graphs, noGraphs } from "../../graphs/index.ts";
import type { GraphModel, OpenGraphs } from "../../graphs/kinds.ts";
import { parseConfig, Tokenizer } from "../../text/tokenizer.ts";

const TOKENIZER = ["tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"];
const CONFIGS = ["config.json", "preprocessor_config.json", "generation_config.json"];
const TEXTS = [...CONFIGS, ...TOKENIZER];
const TASK = "text-to-speech";

type Config = Record<string, unknown>;

/** Opens a model that speaks. */
export const open: OpenGraphs = async (request, ended, progress) => {
  const stems = [...GRAPHS.values()].flat();
  const found = await findGraphs(request, stems, TEXTS, ended, progress);
  const named = [...found.graphs.keys(), ...(found.packed?.found.manifest.programs?.keys() ?? [])];
  const kind = kind_of(named);
  const lacks = kind === null ? "" : missing(kind, named);
  if (kind === null || lacks) {
    found.packed?.device.close();
    if (!lacks) throw noGraphs(stems, found.where);
    const remedy = "Export it again, and build its package again.";
    throw new ModelError(`it has no graph '${lacks}'`, found.where, remedy);
  }
  if (request.vocoder !== undefined) {
    const own = { ...request, model: request.vocoder, dtype: "auto" as const };
    const vocoder = await findGraphs(own, ["model", frames.VOCODER], [], ended, progress);
    found.graphs.set(frames.VOCODER, [...vocoder.graphs.values()][0]!);
  }
  const graphs = await Graphs.of(request, found, ended, progress);
  try {
    const text = (name: string) => found.texts.get(name);
    if (text(TOKENIZER[0]!) === undefined)
      throw new InputError("the model has no tokenizer.json", found.where, "Put it beside it.");
    const [json, config, special] = TOKENIZER.map(text);
    const tokenizer = new Tokenizer(json, config, undefined, found.where, special);
    const configs = CONFIGS.map((name) => parseConfig(text(name), name));
    const [settings, processor, generation] = configs as [Config, Config, Config];
    if (CLONING.includes(kind as never)) {
      const { cloner } = await import("../cloning/index.ts");
      return await cloner(kind, { graphs, tokenizer, config: settings, processor, generation });
    }
    const rate = settings.sampling_rate ?? processor.sampling_rate ?? 16_000;
    const info = await graphs.info({ sampling_rate: rate });
    return new Speaker(graphs, tokenizer, settings, info);
  } catch (e) {
    graphs.close();
    throw e;
  }
};

class Speaker implements GraphModel {
  constructor(
    private readonly graphs: Graphs,
    private readonly tokenizer: Tokenizer,
    private readonly config: Record<string, unknown>,
    readonly info: GraphModel["info"],
  ) {}

  async call({ given }: GraphsCall, signal: AbortSignal): Promise<Record<string, unknown>> {
    const { text, voice, seed: asked, ...options } = given;
    const flows = this.graphs.names.includes(flow.DENOISER);
    const other = flows ? frames.OPTIONS : flow.OPTIONS;
    for (const name of other)
      if (options[name] !== undefined)
        throw new InputError(
          "the model does not have this option",
          `options.${name}`,
          `It has ${[...(flows ? flow : frames).OPTIONS, "speaker_embeddings"].join(", ")}.`,
        );
    const seed = checkSeed(asked, "options.seed");
    const host = new GraphHost(this.graphs, signal, seed);
    const ids = this.tokenizer.encode(text as string);
    const signatures: Record<string, Signature> = {};
    for (const name of this.graphs.names) signatures[name] = await this.graphs.signature(name);
    const vector = voice as Float32Array<ArrayBuffer> | undefined;
    if (flows) {
      const dims = flow.style_dims(this.config, need(vector).length);
      host.put(flow.STYLE, tensor(need(vector), dims));
      const own = seed ?? randomSeed();
      await host.drive(flow.flowed(signatures, ids, this.config, options, own));
    } else await this.spectrogram(host, signatures, ids, vector, options);
    const sound = host.result(flow.WAVEFORM)!;
    return { audio: new Float32Array(sound.data.slice().buffer) };
  }

  private async spectrogram(
    host: GraphHost,
    graphs: Record<string, Signature>,
    ids: number[],
    voice: Float32Array<ArrayBuffer> | undefined,
    options: Record<string, unknown>,
  ): Promise<void> {
    const vocoder = graphs[frames.VOCODER];
    if (!vocoder)
      throw new InputError(
        "it has no decoder_postnet_and_vocoder.onnx",
        this.graphs.found.where,
        "Give `vocoder` with the address of a folder or an .onnx file.",
      );
    const decoder = graphs[frames.MERGED] ?? graphs[frames.FIRST];
    const port = decoder?.inputs.find(({ name }) => name === frames.SPEAKER);
    if (port) {
      const { length } = need(voice);
      const size = port.shape.at(-1);
      if (size !== -1 && size !== length)
        throw new InputError(
          `it has ${length} numbers, the model takes ${size}`,
          "options.speaker_embeddings",
          "Give an x-vector of this size.",
        );
      host.put(frames.SPEAKER, tensor(voice!, [1, length]));
    }
    await host.keeping(async () => {
      await host.drive(frames.spectrogram(graphs, ids, this.config, options));
      host.put(frames.SPECTROGRAM, host.result(frames.SPECTROGRAM)!);
      await host.drive(frames.vocoded(vocoder));
    });
  }

  close(): void {
    this.graphs.close();
  }
}

const tensor = (data: Float32Array<ArrayBuffer>, dims: number[]): TaskTensor => ({
  type: "float32",
  dims,
  data: new Uint8Array(data.buffer, data.byteOffset, data.byteLength),
});

function need(voice: Float32Array<ArrayBuffer> | undefined): Float32Array<ArrayBuffer> {
  if (voice) return voice;
  throw new InputError(
    "the model needs a voice",
    `${TASK}, options.speaker_embeddings`,
    "Give its numbers, or the address of a file of them.",
  );
}
