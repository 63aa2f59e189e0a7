// text-to-speech in a page by language models with a codec, and by models of several graphs.

import { Sentences } from "../../logic/speech/sentences.ts";
import type { GraphsInfo } from "../../protocol/graphs.ts";
import type { LoadRequest } from "../../protocol/loading.ts";
import type { TaskTensor } from "../../protocol/tasks.ts";
import { Aborted, InputError } from "../../shared/errors.ts";
import { fetched } from "../../shared/inputs.ts";
import { type Client, startClient } from "../client.ts";
import { full } from "../env.ts";
import { isTensor, tensor } from "../tensor.ts";
import type { GenerateOptions, TextGenerationPipeline } from "../text-generation.ts";
import type { CallOptions } from "./base-types.ts";
import { type Codec, clientOf } from "./codec.ts";
import { type SoundInput, sendableSound, soundBuffers } from "./sounds.ts";
import { type SpeechSound, type TextToSpeechOptions, wav } from "./speech-sound.ts";

type Options = TextToSpeechOptions;
/** Speaks a text, and gives the sound as it is made. */
type Speak = (text: string, options: Options, whole: boolean) => AsyncGenerator<Float32Array>;

/** A pipeline of what speaks. */
function speaking(
  speak: Speak,
  rate: number,
  info: GraphsInfo,
  dispose: () => Promise<void>,
  /** Options of a call with what its sentences share. */
  ready: (options: Options) => Promise<Options> = async (options) => options,
) {
  const sound = (parts: readonly Float32Array[]): SpeechSound => {
    const audio = new Float32Array(parts.reduce((n, { length }) => n + length, 0));
    let at = 0;
    for (const part of parts) {
      audio.set(part, at);
      at += part.length;
    }
    return { audio, sampling_rate: rate, toBlob: () => wav(audio, rate) };
  };
  const one = async (text: unknown, { split, ...options }: Options): Promise<SpeechSound> => {
    if (typeof text !== "string")
      throw new InputError("the input is no text", "text-to-speech", "Give a text, or a list.");
    const parts: Float32Array[] = [];
    const own = await ready(options);
    for (const sentence of split ? await sentencesOf(text) : [text])
      for await (const part of speak(sentence, own, true)) parts.push(part);
    return sound(parts);
  };
  const call = async (given: unknown, options: Options = {}) => {
    if (!Array.isArray(given)) return one(given, options);
    const made: SpeechSound[] = [];
    for (const text of given) made.push(await one(text, options));
    return made;
  };
  async function* stream(text: string | AsyncIterable<string>, options: Options = {}) {
    if (options.split !== undefined)
      throw new InputError("a stream is always split", "options.split", "Leave it out.");
    const own = await ready(options);
    for await (const sentence of arriving(text))
      for await (const part of speak(sentence, own, false))
        yield Object.assign(sound([part]), { text: sentence });
  }
  return Object.assign(call, { task: "text-to-speech", info, dispose, stream });
}

async function* arriving(text: string | AsyncIterable<string>): AsyncGenerator<string> {
  const sentences = new Sentences();
  if (typeof text === "string") yield* sentences.feed(text);
  else for await (const piece of text) yield* sentences.feed(piece);
  yield* sentences.end();
}

async function sentencesOf(text: string): Promise<string[]> {
  const found: string[] = [];
  for await (const sentence of arriving(text)) found.push(sentence);
  return found;
}

const defined = (fields: object): Record<string, unknown> =>
  Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined));

// ---- models of several graphs

const TAKEN = ["speed", "num_inference_steps", "threshold", "minlenratio", "maxlenratio", "seed"];
/** Of models with the voice of a reference. */
const HEARING = [
  ...["audio_values", "exaggeration", "generate_kwargs", "temperature", "num_inference_steps"],
  ...["eos_threshold", "frames_after_eos", "max_frames", "seed"],
];

/** Opens SpeechT5, Supertonic, Chatterbox or Pocket TTS. */
export async function graphSpeaker(
  request: LoadRequest,
  { signal, onProgress }: { signal?: AbortSignal; onProgress?: unknown },
): Promise<unknown> {
  const client = await startClient(request.priority);
  try {
    const listening = { signal, onProgress: onProgress as never };
    const info = await client.call("graphs_open", request, listening);
    client.info = info;
    const about = info.about as { sampling_rate: number; hears?: boolean };
    const taken = about.hears ? HEARING : TAKEN;
    async function* speak(text: string, { signal, speaker_embeddings, ...rest }: Options) {
      const options = defined(rest);
      const unknown = Object.keys(options).find((name) => !taken.includes(name));
      if (unknown)
        throw new InputError(
          `there is no option '${unknown}'`,
          "text-to-speech",
          `Options are: ${taken.join(", ")}, speaker_embeddings, split.`,
        );
      const voice = about.hears
        ? voiceOf(speaker_embeddings)
        : await vectorOf(speaker_embeddings, signal);
      const given = { ...options, text, voice };
      const answer = await client.call("graphs_call", { method: "speak", given }, { signal });
      yield answer.audio as Float32Array;
    }
    const dispose = async (): Promise<void> => client.end();
    if (!about.hears) return speaking(speak, about.sampling_rate, info, dispose);
    const encode_speech = async (given: SoundInput, { signal }: CallOptions = {}) => {
      const sound = await sendableSound(given, signal);
      const hear = { method: "hear", given: { sound } };
      const answer = await client.call("graphs_call", hear, {
        signal,
        transfer: soundBuffers(sound),
      });
      const parts = Object.entries(answer.voice as Record<string, TaskTensor>);
      return Object.fromEntries(parts.map(([name, value]) => [name, tensor(value)]));
    };
    const ready = async ({ audio_values, ...rest }: Options): Promise<Options> => {
      if (audio_values === undefined) return rest;
      if (rest.speaker_embeddings !== undefined)
        throw new InputError(
          "there are two voices",
          "options.speaker_embeddings",
          "Give one of them.",
        );
      return { ...rest, speaker_embeddings: await encode_speech(audio_values, rest) };
    };
    const made = speaking(speak, about.sampling_rate, info, dispose, ready);
    return Object.assign(made, { encode_speech });
  } catch (e) {
    client.end();
    throw e;
  }
}

/** The numbers of a voice. @throws InputError */
async function vectorOf(given: unknown, signal?: AbortSignal): Promise<Float32Array | undefined> {
  if (given === undefined) return undefined;
  const where = "options.speaker_embeddings";
  const value =
    typeof given === "string" || given instanceof URL
      ? new Uint8Array(await (await fetched(full(String(given)), signal)).arrayBuffer())
      : isTensor(given)
        ? given.data
        : given;
  if (value instanceof Float32Array) return value.slice();
  if (value instanceof Uint8Array && value.length && value.length % 4 === 0)
    return new Float32Array(value.slice().buffer);
  throw new InputError("they are no numbers of float32", where, "Give a Float32Array.");
}

/** What is known of a voice. @throws InputError */
function voiceOf(given: Options["speaker_embeddings"]): Record<string, TaskTensor> | undefined {
  if (given === undefined) return undefined;
  const parts = Object.entries(given as object);
  if (!parts.length || !parts.every(([, value]) => isTensor(value)))
    throw new InputError(
      "they are none of a voice",
      "options.speaker_embeddings",
      "Give what encode_speech returned.",
    );
  return Object.fromEntries(
    parts.map(([name, { type, dims, data }]) => {
      const { buffer, byteOffset, byteLength } = data as Float32Array<ArrayBuffer>;
      const bytes = new Uint8Array(buffer, byteOffset, byteLength).slice();
      return [name, { type, dims: [...dims], data: bytes }];
    }),
  );
}

// ---- language models

/** Makes a pipeline of a language model and a codec. */
export async function languageSpeaker(
  writer: TextGenerationPipeline,
  codec: Codec,
  audio_tokens: unknown,
): Promise<unknown> {
  const writing = new Writing(writer, clientOf(codec));
  await writing.choose(audio_tokens);
  const dispose = async (): Promise<void> => {
    await Promise.all([writer.dispose(), codec.dispose()]);
  };
  const speak: Speak = (text, options, whole) => writing.speak(text, options, whole);
  return speaking(speak, codec.sampling_rate, codec.info, dispose);
}

type Given = Readonly<Record<string, unknown>>;
type Own = Options & { generate_kwargs?: object };

/** A language model whose tokens go to the worker of a codec, which has the rules. */
class Writing {
  private readonly texts = new Map<number, Promise<string>>();
  private readonly ends: number[] = [];
  private last: Promise<unknown> = Promise.resolve();

  constructor(
    private readonly writer: TextGenerationPipeline,
    private readonly client: Client,
  ) {}

  private ask(method: string, given: Given, signal?: AbortSignal): Promise<Given> {
    return this.client.call("graphs_call", { method, given }, { signal });
  }

  private ids(text: string, add_special_tokens = false): Promise<number[]> {
    return this.writer.tokenizer.encode(text, { add_special_tokens });
  }

  private async has(token: string): Promise<boolean> {
    return (await this.ids(token)).length === 1;
  }

  private textOf(id: number): Promise<string> {
    const { tokenizer } = this.writer;
    const found = this.texts.get(id) ?? tokenizer.decode([id], { skip_special_tokens: false });
    this.texts.set(id, found);
    return found;
  }

  /** Chooses the rule by the vocabulary. @throws InputError */
  async choose(audio_tokens: unknown): Promise<void> {
    const { probes } = (await this.ask("probes", {})) as { probes: string[][] };
    const known: boolean[] = [];
    for (const [first, last] of probes)
      known.push((await this.has(first!)) && (await this.has(last!)));
    const chosen = await this.ask("choose", { audio_tokens, known });
    const { needs, end } = chosen as { needs: string[]; end: string[] };
    for (const token of needs)
      if (!(await this.has(token)))
        throw new InputError(
          `the vocabulary has no token ${token}`,
          "options.audio_tokens",
          "Give the rule of this model.",
        );
    for (const token of end) if (await this.has(token)) this.ends.push(...(await this.ids(token)));
  }

  /** Speaks a text after the texts before it. */
  async *speak(text: string, options: Own, whole: boolean): AsyncGenerator<Float32Array> {
    const { voice, seed, signal, generate_kwargs: own, ...rest } = options;
    const unknown = Object.keys(defined(rest))[0];
    if (unknown)
      throw new InputError(
        `there is no option '${unknown}'`,
        "text-to-speech",
        "Options are: voice, seed, split, generate_kwargs, signal.",
      );
    if (signal?.aborted) throw new Aborted("the call was aborted by its signal", "", "");
    const before = this.last;
    let over = (): void => undefined;
    this.last = new Promise<void>((resolve) => (over = resolve));
    try {
      await before;
      const begun = await this.ask("start", { text, voice, fields: own ?? {} }, signal);
      const prompt: number[] = [];
      for (const part of begun.parts as { text: string; special: boolean }[])
        prompt.push(...(await this.ids(part.text, part.special)));
      const fields = begun.fields as Given;
      const ends = fields.eos_token_id === undefined && this.ends.length > 0;
      const eos = ends ? { eos_token_id: this.ends } : {};
      const given = defined({ ...fields, ...eos, seed, signal }) as GenerateOptions;
      for await (const batch of tokensOf(this.writer, prompt, given)) {
        const texts = await Promise.all(batch.map((id) => this.textOf(id)));
        const made = await this.ask("take", { texts, over: false, whole, seed }, signal);
        yield* made.sounds as Float32Array[];
      }
      const made = await this.ask("take", { texts: [], over: true, whole, seed }, signal);
      yield* made.sounds as Float32Array[];
    } finally {
      over();
    }
  }
}

/** The tokens that a model writes, as they arrive. */
async function* tokensOf(
  writer: TextGenerationPipeline,
  input_ids: number[],
  options: GenerateOptions,
): AsyncGenerator<number[]> {
  const stop = new AbortController();
  const arrived: number[] = [];
  let wake = (): void => undefined;
  const run: { state: "running" | "over" | "failed"; error?: unknown } = { state: "running" };
  let prompted = false;
  const streamer = {
    put(ids: number[]) {
      if (prompted) arrived.push(...ids);
      prompted = true;
      wake();
    },
    end: () => undefined,
  };
  const { signal } = options;
  signal?.addEventListener("abort", () => stop.abort(signal.reason), { once: true });
  writer({ input_ids } as never, { ...options, streamer, signal: stop.signal }).then(
    () => {
      run.state = "over";
      wake();
    },
    (error: unknown) => {
      run.state = "failed";
      run.error = error;
      wake();
    },
  );
  try {
    for (;;) {
      if (arrived.length) yield arrived.splice(0);
      else if (run.state === "failed") throw run.error;
      else if (run.state === "over") return;
      else
        await new Promise<void>((resolve) => {
          wake = resolve;
          if (arrived.length || run.state !== "running") resolve();
        });
    }
  } finally {
    stop.abort();
  }
}
