// Tasks of sound in a page by models that no package has: speaker-diarization and audio-to-audio.

import type { GraphsInfo } from "../../protocol/graphs.ts";
import type { LoadRequest } from "../../protocol/loading.ts";
import { Aborted, InputError } from "../../shared/errors.ts";
import { type Client, startClient } from "../client.ts";
import type { CallOptions } from "./base-types.ts";
import { streamer } from "./sound-streams.ts";
import { type SoundInput, sendableSound, soundBuffers } from "./sounds.ts";
import { type SpeechSound, wav } from "./speech-sound.ts";
import type {
  AudioToAudioPipeline,
  DiarizationOptions,
  SpeakerDiarizationPipeline,
  SpeakerVerificationPipeline,
} from "./types.ts";

type Loading = CallOptions & { onProgress?: unknown };
type Given = Record<string, unknown>;

/** A worker with a model, and its calls, one after the other. */
class Worker {
  private last: Promise<unknown> = Promise.resolve();

  private constructor(
    private readonly task: string,
    readonly client: Client,
    readonly info: GraphsInfo,
  ) {}

  static async open(request: LoadRequest, { signal, onProgress }: Loading): Promise<Worker> {
    const client = await startClient(request.priority);
    try {
      const listening = { signal, onProgress: onProgress as never };
      const info = await client.call("graphs_open", request, listening);
      client.info = info;
      return new Worker(request.task, client, info);
    } catch (e) {
      client.end();
      throw e;
    }
  }

  ask(method: string, given: Given, signal?: AbortSignal, transfer: Transferable[] = []) {
    return this.client.call("graphs_call", { method, given }, { signal, transfer });
  }

  /** Does `one` for a sound, or for each of a list, after the calls before. */
  each<T>(given: unknown, signal: AbortSignal | undefined, one: (of: SoundInput) => Promise<T>) {
    const several = Array.isArray(given);
    const sounds: readonly SoundInput[] = several ? given : [given as SoundInput];
    const work = async (): Promise<T | T[]> => {
      if (!sounds.length) throw new InputError("there is no input", this.task, "Give one or more.");
      const found: T[] = [];
      for (const sound of sounds) {
        if (signal?.aborted) throw new Aborted("the call was aborted by its signal", this.task, "");
        found.push(await one(sound));
      }
      return several ? found : found[0]!;
    };
    const made = this.last.then(work);
    this.last = made.catch(() => undefined);
    return made;
  }
}

const defined = (fields: object): Given =>
  Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined));

/** Says who spoke when: the worker hears the windows, a pipeline knows the voices. */
export async function diarizationPipeline(
  request: LoadRequest,
  loading: Loading,
  embedding: SpeakerVerificationPipeline | undefined,
): Promise<SpeakerDiarizationPipeline> {
  const worker = await Worker.open(request, loading);
  const { sampling_rate } = worker.info.about as { sampling_rate: number };
  const vectorOf = async (index: number, signal?: AbortSignal): Promise<number[] | null> => {
    const { voice, short } = await worker.ask("voice", { index }, signal);
    const array = voice as Float32Array;
    if (!array.length) return null;
    try {
      const enrolling = { enrol: true, signal } as object; // gives the vector
      return (await embedding!({ array, sampling_rate }, enrolling)) as never;
    } catch (e) {
      if (e instanceof InputError && short) return null;
      throw e;
    }
  };
  const one = async (given: SoundInput, { signal, ...rest }: DiarizationOptions) => {
    const options = defined(rest);
    const sound = await sendableSound(given, signal);
    const heard = { sound, options, embeds: embedding !== undefined };
    const { voices } = await worker.ask("segment", heard, signal, soundBuffers(sound));
    let vectors: (number[] | null)[] | undefined;
    if (embedding) {
      vectors = [];
      for (let i = 0; i < (voices as number); i++) vectors.push(await vectorOf(i, signal));
    }
    return (await worker.ask("turns", { vectors, options }, signal)).result;
  };
  const call = async (given: unknown, options: DiarizationOptions = {}): Promise<unknown> =>
    worker.each(given, options.signal, (sound) => one(sound, options));
  const dispose = async (): Promise<void> => {
    worker.client.end();
    await embedding?.dispose();
  };
  return Object.assign(call, { task: request.task, info: worker.info, dispose }) as never;
}

/** Gives sound for sound. */
export async function enhancementPipeline(
  request: LoadRequest,
  loading: Loading,
): Promise<AudioToAudioPipeline> {
  const worker = await Worker.open(request, loading);
  const { sampling_rate } = worker.info.about as { sampling_rate: number };
  const one = async (given: SoundInput, { signal, ...rest }: CallOptions): Promise<SpeechSound> => {
    const sound = await sendableSound(given, signal);
    const request = { sound, options: defined(rest) };
    const made = await worker.ask("enhance", request, signal, soundBuffers(sound));
    const audio = made.audio as Float32Array<ArrayBuffer>;
    return { audio, sampling_rate, toBlob: () => wav(audio, sampling_rate) };
  };
  const call = async (given: unknown, options: CallOptions = {}): Promise<unknown> =>
    worker.each(given, options.signal, (sound) => one(sound, options));
  const stream = streamer(async (request, { signal, transfer }) => {
    const { pieces } = await worker.ask("feed", { ...request }, signal, transfer);
    return pieces as unknown[];
  }, false);
  const dispose = async (): Promise<void> => worker.client.end();
  return Object.assign(call, { task: request.task, info: worker.info, dispose, stream }) as never;
}
