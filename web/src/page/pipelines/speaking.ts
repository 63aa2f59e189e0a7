// text-to-speech in a page. Results are those of transformers.js.

import { Sentences } from "../../logic/speech/sentences.ts";
import type { GenerationFields } from "../../protocol/generation.ts";
import type { LoadRequest, ProgressEvent } from "../../protocol/loading.ts";
import type { TaskSpeech } from "../../protocol/tasks.ts";
import { Aborted, InputError, ModelError } from "../../shared/errors.ts";
import { type Client, startClient } from "../client.ts";
import type { Tensor } from "../tensor.ts";
import type { CallOptions, PipelineBase } from "./base-types.ts";
import { graphSpeaker } from "./speaking-models.ts";

/** Phonemes of a text: a string, or a list of sentences. */
export type Phonemes = string | readonly (string | readonly string[])[];

/** Options of text-to-speech. An option that the model does not have is refused. */
export interface TextToSpeechOptions extends CallOptions {
  /**
   * Of Kokoro: the name of a voice; default: "af_heart", or the only one. Of language models: a
   * name (Orpheus), or a speaker (OuteTTS).
   */
  voice?: string | object;
  /**
   * Numbers of a voice: of Kokoro instead of `voice`, float32 [rows, 1, 256]; of SpeechT5 an
   * x-vector, of Supertonic a style, which may be an address.
   */
  speaker_embeddings?: Float32Array | Tensor | string | URL;
  /** Of Supertonic. Default: 5. */
  num_inference_steps?: number;
  /** Of SpeechT5. Defaults: 0.5, 0, 20. */
  threshold?: number;
  minlenratio?: number;
  maxlenratio?: number;
  /** Of language models: fields of GenerationConfig. */
  generate_kwargs?: GenerationFields;
  /** Number or name of a speaker, where the model has several. Default: 0. */
  speaker?: number | string;
  /** Above 1 is faster. Of Piper and Kokoro. Default: 1. */
  speed?: number;
  /** Of Piper. Default: as in its .onnx.json. */
  noise_scale?: number;
  length_scale?: number;
  noise_w?: number;
  /** Makes phonemes of a text. Piper and Kokoro need one. */
  phonemizer?: (text: string) => Phonemes | Promise<Phonemes>;
  /** Of a call: whether each sentence is spoken by itself. Default: true; VITS: false. */
  split?: boolean;
  /** 0 to 2^63 - 1, of models that draw random numbers. Default: unpredictable. */
  seed?: number | bigint;
}

/** A sound. */
export interface SpeechSound {
  /** Samples of one channel, from -1 to 1. */
  audio: Float32Array<ArrayBuffer>;
  /** Hz. */
  sampling_rate: number;
  /** The sound as a WAV file of 16 bits. */
  toBlob(): Blob;
}

/** Speaks texts. */
export interface TextToSpeechPipeline extends PipelineBase {
  (text: string, options?: TextToSpeechOptions): Promise<SpeechSound>;
  (text: readonly string[], options?: TextToSpeechOptions): Promise<SpeechSound[]>;
  /** Speaks sentence by sentence; of an async iterable, as its texts arrive. */
  stream(
    text: string | AsyncIterable<string>,
    options?: Omit<TextToSpeechOptions, "split">,
  ): AsyncGenerator<SpeechSound & { text: string }>;
}

/** Loads the pipeline. */
export async function speakingPipeline(
  request: LoadRequest,
  { signal, onProgress }: CallOptions & { onProgress?: unknown },
): Promise<TextToSpeechPipeline> {
  const client = await startClient();
  try {
    const transfer =
      typeof request.model === "object" && "port" in request.model ? [request.model.port] : [];
    const listener = onProgress as ((event: ProgressEvent) => void) | undefined;
    const info = await client.call("task_open", request, {
      signal,
      onProgress: listener,
      transfer,
    });
    client.info = info;
    const splits = info.speech?.splits ?? true;
    const dispose = async (): Promise<void> => client.end();
    const call = async (given: unknown, { split, ...options }: TextToSpeechOptions = {}) => {
      const made: SpeechSound[] = [];
      for (const text of Array.isArray(given) ? given : [given])
        made.push(await speak(client, text, options, split ?? splits, !splits));
      return Array.isArray(given) ? made : made[0];
    };
    async function* stream(
      text: string | AsyncIterable<string>,
      { split, ...options }: TextToSpeechOptions = {},
    ) {
      if (split !== undefined)
        throw new InputError("a stream is always split", "options.split", "Leave it out.");
      for await (const sentence of arriving(text)) {
        const sound = await speak(client, sentence, options, false, !splits);
        yield Object.assign(sound, { text: sentence });
      }
    }
    return Object.assign(call, {
      task: request.task,
      info,
      dispose,
      stream,
    }) as TextToSpeechPipeline;
  } catch (e) {
    client.end(); // each pipeline has its own worker, so this frees everything
    if (!(e instanceof ModelError || e instanceof InputError) || signal?.aborted) throw e;
    // it may be a model of several graphs, which has no model.onnx
    return graphSpeaker(request, { signal, onProgress }).catch((other: unknown) => {
      throw other instanceof InputError && /^(it has none of|packages have)/.test(other.what)
        ? e
        : other;
    }) as Promise<TextToSpeechPipeline>;
  }
}

/** The sentences of a text as soon as they have ended. */
async function* arriving(text: string | AsyncIterable<string>): AsyncGenerator<string> {
  const sentences = new Sentences();
  if (typeof text === "string") yield* sentences.feed(text);
  else for await (const piece of text) yield* sentences.feed(piece);
  yield* sentences.end();
}

/** The sentences of a text. */
function sentencesOf(text: string): string[] {
  const sentences = new Sentences();
  return [...sentences.feed(text), ...sentences.end()];
}

async function speak(
  client: Client,
  text: unknown,
  { signal, phonemizer, ...options }: TextToSpeechOptions,
  split: boolean,
  asks: boolean, // the model says what its phonemizer gets: VITS
): Promise<SpeechSound> {
  const task = "text-to-speech";
  if (signal?.aborted) throw new Aborted("the call was aborted by its signal", task, "");
  if (typeof text !== "string")
    throw new InputError("the input is no text", task, "Give a text or a list of texts.");
  if (phonemizer !== undefined && typeof phonemizer !== "function")
    throw new InputError("it is no function", "options.phonemizer", "Give a function of a text.");
  const given = Object.fromEntries(Object.entries(options).filter(([, v]) => v !== undefined));
  const call = async (speech: TaskSpeech): Promise<unknown> => {
    const request = { inputs: [{ speech }], options: given, streams: false };
    return (await client.call("task_call", request, { signal }))[0];
  };
  const texts = split ? sentencesOf(text) : [text];
  const wanted = phonemizer && asks ? { sentences: texts, phonemes: [], asks } : undefined;
  const asked = wanted ? ((await call(wanted)) as (string | null)[]) : texts;
  const speech: TaskSpeech = { sentences: [], phonemes: [] };
  for (const [i, sentence] of texts.entries()) {
    const letters = asked[i] ?? null;
    const found = phonemizer && letters !== null && phonemesOf(await phonemizer(letters));
    for (const part of found || [sentence]) {
      speech.sentences.push(part);
      speech.phonemes.push(Boolean(found));
    }
  }
  const made = await call(speech);
  const { audio, sampling_rate } = made as Pick<SpeechSound, "audio" | "sampling_rate">;
  return { audio, sampling_rate, toBlob: () => wav(audio, sampling_rate) };
}

/** @throws InputError if they are none */
function phonemesOf(found: Phonemes): (string | string[])[] {
  const list = typeof found === "string" ? [found] : found;
  if (Array.isArray(list))
    return list.map((of) => (typeof of === "string" ? of : Array.from(of as string[], String)));
  throw new InputError(
    "it returned no phonemes",
    "options.phonemizer",
    "Return a string, or a list of sentences.",
  );
}

/** A WAV file of 16 bits. What exceeds -1 to 1 is cut. */
export function wav(samples: Float32Array, rate: number): Blob {
  const size = 2 * samples.length;
  const view = new DataView(new ArrayBuffer(44 + size));
  const text = (at: number, of: string) => {
    for (let i = 0; i < of.length; i++) view.setUint8(at + i, of.charCodeAt(i));
  };
  text(0, "RIFF");
  view.setUint32(4, 36 + size, true);
  text(8, "WAVEfmt ");
  view.setUint32(16, 16, true);
  view.setUint32(20, 0x10001, true); // PCM, one channel
  view.setUint32(24, rate, true);
  view.setUint32(28, 2 * rate, true);
  view.setUint32(32, 0x100002, true); // 2 bytes, 16 bits
  text(36, "data");
  view.setUint32(40, size, true);
  for (const [i, x] of samples.entries())
    view.setInt16(44 + 2 * i, Math.round(Math.max(-1, Math.min(1, x)) * 32767), true);
  return new Blob([view], { type: "audio/wav" });
}
