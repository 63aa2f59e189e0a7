// The part of the worker for models that speak in the voice of a reference: Chatterbox and Pocket
// TTS. Mirrors python/edgewise/host/pipelines/speech/cloning.py.

import type { Host as Engine } from "../../../device/device.ts";
import * as chatterbox from "../../../logic/speech/chatterbox.ts";
import type { Numbers, Signature } from "../../../logic/speech/graphs.ts";
import * as pocket from "../../../logic/speech/pocket.ts";
import type { GraphsCall } from "../../../protocol/graphs.ts";
import type { TaskSound, TaskTensor } from "../../../protocol/tasks.ts";
import { InputError } from "../../../shared/errors.ts";
import { checkSeed, randomSeed } from "../../../shared/seeds.ts";
import { type Decoder, type GenerationFields, generate } from "../../generation/index.ts";
import { GraphHost, type Graphs, numbersOf, packed } from "../../graphs/index.ts";
import type { GraphModel } from "../../graphs/kinds.ts";
import type { Tokenizer } from "../../text/tokenizer.ts";
import { readSound } from "../sounds/read.ts";

type Given = Record<string, unknown>;

/** What a model is made of. */
export interface Parts {
  graphs: Graphs;
  tokenizer: Tokenizer;
  config: Given;
  processor: Given;
  /** Of generation_config.json. */
  generation: Given;
}

/** Makes a model of its parts. */
export async function cloner(kind: string, parts: Parts): Promise<GraphModel> {
  const rate = chatterbox.rate_of(parts.config, parts.processor);
  const info = await parts.graphs.info({ sampling_rate: rate, hears: true });
  return new Cloner(kind === "pocket", parts, rate, info);
}

class Cloner implements GraphModel {
  private readonly rules: typeof chatterbox | typeof pocket;

  constructor(
    private readonly flows: boolean,
    private readonly parts: Parts,
    private readonly rate: number,
    readonly info: GraphModel["info"],
  ) {
    this.rules = flows ? pocket : chatterbox;
  }

  async call({ method, given }: GraphsCall, signal: AbortSignal): Promise<Given> {
    if (method === "hear") return { voice: await this.hear(given.sound as TaskSound, signal) };
    const { text, voice, seed, ...options } = given;
    this.check(options);
    const own = checkSeed(seed, "options.seed");
    const host = new GraphHost(this.parts.graphs, signal, own);
    const ids = this.parts.tokenizer.encode(text as string);
    const values = this.known(voice as Record<string, TaskTensor> | undefined);
    await host.keeping(async () => {
      if (this.flows) {
        const of = pocket.voice_of(values[0]!, "options.speaker_embeddings");
        const graphs = await this.signatures();
        await host.drive(pocket.spoken(graphs, ids, of, options, own ?? randomSeed()));
      } else {
        const of = chatterbox.voice_of(values, "options.speaker_embeddings");
        await this.write(host, ids, of, options, own, signal);
      }
    });
    const sound = host.result(pocket.WAVEFORM)!;
    return { audio: new Float32Array(sound.data.slice().buffer) };
  }

  private check(options: Given): void {
    const known: readonly string[] = this.rules.OPTIONS;
    for (const name of Object.keys(options))
      if (!known.includes(name))
        throw new InputError(
          "the model does not have this option",
          `options.${name}`,
          `It has ${[...known, "speaker_embeddings"].join(", ")}.`,
        );
    if (this.flows) {
      pocket.check_options(options);
      return;
    }
    chatterbox.exaggeration_of(options);
    chatterbox.check_fields((options.generate_kwargs ?? {}) as Given);
  }

  private async signatures(): Promise<Record<string, Signature>> {
    const found: Record<string, Signature> = {};
    for (const name of this.parts.graphs.names)
      found[name] = await this.parts.graphs.signature(name);
    return found;
  }

  /** What the model knows of a voice. */
  private async hear(sound: TaskSound, signal: AbortSignal): Promise<Record<string, TaskTensor>> {
    const { graphs } = this.parts;
    const samples = await readSound(await graphs.opened(), sound, this.rate, signal);
    const count = samples.length;
    const host = new GraphHost(graphs, signal);
    const data = new Uint8Array(samples.buffer);
    host.put(this.rules.SAMPLES, { type: "float32", dims: [count], data });
    const signature = await graphs.signature(this.rules.ENCODER);
    const made = this.flows
      ? { audio_features: await host.drive(pocket.heard(signature, count)) }
      : await host.drive(chatterbox.heard(signature, count));
    const floats = (value: Numbers) => (/float/.test(value.dtype) ? "float32" : "int64");
    return Object.fromEntries(
      Object.entries(made as Record<string, Numbers>).map(([name, value]) => [
        name,
        packed(value, floats(value)),
      ]),
    );
  }

  private known(voice: Record<string, TaskTensor> | undefined): Numbers[] {
    if (!voice)
      throw new InputError(
        "the model needs a voice",
        "options.audio_values",
        "Give a recording of it, or speaker_embeddings.",
      );
    return this.rules.VOICE.map((name) => {
      const value = Object.hasOwn(voice, name) ? voice[name] : undefined;
      if (value) return numbersOf(value);
      throw new InputError(
        "they are none of a voice",
        "options.speaker_embeddings",
        "Give what encode_speech returned.",
      );
    });
  }

  /** Chatterbox: a language model writes tokens, of which sound is made. */
  private async write(
    host: GraphHost,
    ids: number[],
    voice: chatterbox.Voice,
    options: Given,
    seed: bigint | undefined,
    signal: AbortSignal,
  ): Promise<void> {
    const { config, generation, graphs } = this.parts;
    const signatures = await this.signatures();
    const model = signatures[chatterbox.MODEL]!;
    const embedder = signatures[chatterbox.EMBEDDER]!;
    const writer: chatterbox.Writer = {
      embedder,
      model,
      voice,
      exaggeration: chatterbox.exaggeration_of(options, embedder),
      vocabulary: chatterbox.vocabulary_of(model, config),
      prompt: ids,
    };
    const prompt = chatterbox.prompt_of(writer);
    const { host: engine } = await graphs.opened();
    const defaults = chatterbox.defaults_of(generation, config);
    const decoder = new GraphDecoder(host, writer, engine, chatterbox.limit_of(config), defaults);
    const fields = (options.generate_kwargs ?? {}) as GenerationFields;
    const own = seed === undefined ? fields : { seed, ...fields };
    const made = (await generate(decoder, prompt, {}, { fields: own, signal })) as number[][];
    const tokens = chatterbox.spoken_tokens(made[0]!, prompt.length);
    await host.drive(chatterbox.sounded(signatures[chatterbox.DECODER]!, voice, tokens));
  }

  close(): void {
    this.parts.graphs.close();
  }
}

interface Sequence {
  spoken: chatterbox.Spoken;
  address: number;
}

/** A decoder whose logits a graph gives: one sequence at a time. */
class GraphDecoder implements Decoder<Sequence> {
  readonly vocab_size: number;
  private opened = 0;

  constructor(
    private readonly host: GraphHost,
    private readonly writer: chatterbox.Writer,
    readonly engine: Engine,
    readonly max_length: number,
    readonly generation_config: Given,
  ) {
    this.vocab_size = writer.vocabulary;
  }

  open(): Sequence {
    const spoken = { number: ++this.opened, ids: [] };
    return { spoken, address: this.engine.alloc(4 * this.vocab_size) };
  }

  close({ address }: Sequence): void {
    this.engine.free(address);
  }

  copy(): never {
    throw new InputError("speech is one sequence", "generate_kwargs", "Leave num_beams out.");
  }

  truncate(): never {
    throw new InputError("speech is one sequence", "generate_kwargs", "Leave use_cache out.");
  }

  async forward({ spoken, address }: Sequence, ids: number[]): Promise<number> {
    const made = await this.host.drive(chatterbox.logits_after(this.writer, spoken, ids));
    this.engine.write(address, new Uint8Array(Float32Array.from(made).buffer));
    return address;
  }
}
