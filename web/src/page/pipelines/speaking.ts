// text-to-speech in a page. Results are those of transformers.js.

import { Sentences } from "../../logic/speech/sentences.ts";
import type { LoadRequest, ProgressEvent } from "../../protocol/loading.ts";
import type { TaskSpeech } from "../../protocol/tasks.ts";
import { Aborted, InputError, ModelError } from "../../shared/errors.ts";
import { type Client, startClient } from "../client.ts";
import type { Tensor } from "../tensor.ts";
import type { CallOptions, PipelineBase } from "./base-types.ts";
import type { SoundInput } from "./sounds.ts";
import { graphSpeaker } from "./speaking-models.ts";
import { type Phonemes, type SpeechSound, type TextToSpeechOptions, wav } from "./speech-sound.ts";

export type { Phonemes, SpeechSound, TextToSpeechOptions };

/** Speaks texts. */
export interface TextToSpeechPipeline extends PipelineBase {
  (text: string, options?: TextToSpeechOptions): Promise<SpeechSound>;
  (text: readonly string[], options?: TextToSpeechOptions): Promise<SpeechSound[]>;
  /** Speaks sentence by sentence; of an async iterable, as its texts arrive. */
  stream(
    text: string | AsyncIterable<string>,
    options?: Omit<TextToSpeechOptions, "split">,
  ): AsyncGenerator<SpeechSound & { text: string }>;
  /** Of Chatterbox and Pocket TTS: what the model knows of a voice, for `speaker_embeddings`. */
  encode_speech?(sound: SoundInput, options?: CallOptions): Promise<Record<string, Tensor>>;
}

/** Loads the pipeline. */
export async function speakingPipeline(
  request: LoadRequest,
  { signal, onProgress }: CallOptions & { onProgress?: unknown },
): Promise<TextToSpeechPipeline> {
  const client = await startClient(request.priority);
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
    const given = typeof request.model === "object" && "port" in request.model; // read by now
    if (!(e instanceof ModelError || e instanceof InputError) || signal?.aborted || given) throw e;
    // it may be a model of several graphs, which has no model.onnx
    return graphSpeaker(request, { signal, onProgress }).catch((other: unknown) => {
      throw other instanceof InputError && /^it has none of/.test(other.what) ? e : other;
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
