// Codecs in a page: sound as codes, and codes as sound.

import type { GraphsInfo } from "../../protocol/graphs.ts";
import type { LoadRequest } from "../../protocol/loading.ts";
import type { TaskSound, TaskTensor } from "../../protocol/tasks.ts";
import { InputError } from "../../shared/errors.ts";
import { type Client, startClient } from "../client.ts";
import { isTensor, Tensor, tensor } from "../tensor.ts";
import type { CallOptions } from "./base-types.ts";
import { type SoundInput, sendableSound, soundBuffers } from "./sounds.ts";
import { type SpeechSound, wav } from "./speech-sound.ts";

/** Codes of a sound, as transformers.js has them. */
export interface AudioCodes {
  /**
   * int64 [1, codebooks, n] (EnCodec [frames, 1, codebooks, n]); of SNAC, whose codebooks differ in
   * length, one tensor [1, n] for each.
   */
  audio_codes: Tensor | Tensor[];
  /** Of models that have scales. */
  audio_scales?: Tensor;
  /** Samples of the sound that was encoded. */
  length?: number;
  /** Codes that the last frame lacks. */
  last_frame_pad_length?: number;
}

/** Codes that can be decoded: tensors, or lists of numbers [codebooks][n]. */
export type CodesInput =
  | AudioCodes
  | Tensor
  | readonly Tensor[]
  | readonly (readonly number[])[]
  | Readonly<Record<string, unknown>>;

/** A sound of one or two channels. */
export interface DecodedSound extends Omit<SpeechSound, "audio"> {
  /** Samples of the first channel, from -1 to 1. */
  audio: Float32Array<ArrayBuffer>;
  /** Samples of each channel. */
  channels: Float32Array<ArrayBuffer>[];
}

/** Options of {@link codec}, apart from those of `pipeline`. */
export interface CodecOptions {
  /** Hz. Default: as in config.json or preprocessor_config.json. */
  sampling_rate?: number;
}

/** A codec. */
export interface Codec {
  /** Hz of the sound. */
  readonly sampling_rate: number;
  /** Channels of the sound. */
  readonly channels: number;
  /** Number of codebooks; 0: the model does not say. */
  readonly num_codebooks: number;
  /** Number of codes of a codebook; 0: the model does not say. */
  readonly codebook_size: number;
  /** The device. */
  readonly info: GraphsInfo;
  /** Makes codes of a sound. */
  encode(sound: SoundInput, options?: CallOptions): Promise<AudioCodes>;
  /** Makes sound of codes. `seed`: for models that draw random numbers. */
  decode(
    codes: CodesInput,
    options?: CallOptions & { seed?: number | bigint },
  ): Promise<DecodedSound>;
  /** Ends its worker and frees all memory. */
  dispose(): Promise<void>;
}

const clients = new WeakMap<Codec, Client>();

/** The worker of a codec. @throws InputError if it is none */
export function clientOf(codec: Codec): Client {
  const found = clients.get(codec);
  if (found) return found;
  throw new InputError("it is no codec", "options.codec", "Give what codec() returned.");
}

/** Opens a codec. */
export async function openCodec(
  request: LoadRequest,
  { signal, onProgress }: CallOptions & { onProgress?: unknown },
): Promise<Codec> {
  const client = await startClient(request.priority);
  try {
    const info = await client.call("graphs_open", request, {
      signal,
      onProgress: onProgress as never,
    });
    client.info = info;
    const about = info.about as Pick<
      Codec,
      "sampling_rate" | "channels" | "num_codebooks" | "codebook_size"
    >;
    const made: Codec = {
      ...about,
      info,
      encode: (sound, options = {}) => encode(client, about.channels, sound, options),
      decode: (codes, options = {}) => decode(client, about.sampling_rate, codes, options),
      dispose: async () => client.end(),
    };
    clients.set(made, client);
    return made;
  } catch (e) {
    client.end();
    throw e;
  }
}

async function encode(
  client: Client,
  channels: number,
  sound: SoundInput,
  { signal }: CallOptions,
): Promise<AudioCodes> {
  const sounds: TaskSound[] = [];
  for (let i = 0; i < channels; i++)
    sounds.push(await sendableSound(sound, signal, channels === 1 ? undefined : [i, channels]));
  const answer = (await client.call(
    "graphs_call",
    { method: "encode", given: { sounds } },
    { signal, transfer: sounds.flatMap(soundBuffers) },
  )) as { codes: TaskTensor[]; scales?: TaskTensor; length: number; padding: number };
  const tensors = answer.codes.map(tensor);
  return {
    audio_codes: tensors.length === 1 ? tensors[0]! : tensors,
    ...(answer.scales ? { audio_scales: tensor(answer.scales) } : {}),
    length: answer.length,
    ...(answer.padding ? { last_frame_pad_length: answer.padding } : {}),
  };
}

async function decode(
  client: Client,
  rate: number,
  given: CodesInput,
  { signal, seed }: CallOptions & { seed?: number | bigint },
): Promise<DecodedSound> {
  const fields = (
    isTensor(given) || Array.isArray(given) ? { audio_codes: given } : given
  ) as Record<string, unknown>;
  const named = Object.keys(fields)
    .filter((name) => /^audio_codes\.\d+$/.test(name))
    .sort((a, b) => Number(a.slice(12)) - Number(b.slice(12)));
  const codes = named.length ? named.map((name) => fields[name]) : fields.audio_codes;
  const request = {
    codes: tensorsOf(codes),
    scales: fields.audio_scales === undefined ? undefined : sent(fields.audio_scales),
    length: fields.length,
    padding: fields.last_frame_pad_length,
    seed,
  };
  const answer = await client.call("graphs_call", { method: "decode", given: request }, { signal });
  const { dims, data } = answer.audio as TaskTensor;
  const all = new Float32Array(data.buffer, data.byteOffset, data.byteLength / 4);
  const count = dims.at(-1)!;
  const channels = Array.from({ length: all.length / Math.max(1, count) }, (_, c) =>
    all.slice(c * count, (c + 1) * count),
  );
  const audio = channels[0] ?? new Float32Array();
  return { audio, channels, sampling_rate: rate, toBlob: () => wav(audio, rate) };
}

/** The tensors of codes. @throws InputError */
function tensorsOf(codes: unknown): TaskTensor[] {
  if (isTensor(codes)) return [sent(codes)];
  if (!Array.isArray(codes) || !codes.length)
    throw new InputError("there are no codes", "audio_codes", "Give what encode() returned.");
  if (codes.every(isTensor)) return codes.map(sent);
  const lists = codes as readonly (readonly number[])[];
  if (!lists.every((list) => Array.isArray(list) && list.every(Number.isInteger)))
    throw new InputError("they are no integers", "audio_codes", "Give integers from 0 on.");
  const even = lists.every(({ length }) => length === lists[0]!.length);
  const of = (rows: readonly (readonly number[])[]): TaskTensor =>
    sent(
      new Tensor("int64", BigInt64Array.from(rows.flat(), BigInt), [rows.length, rows[0]!.length]),
    );
  return even ? [of(lists)] : lists.map((list) => of([list]));
}

function sent(value: unknown): TaskTensor {
  if (!isTensor(value))
    throw new InputError("it is no tensor", "audio_codes", "Give what encode() returned.");
  const { buffer, byteOffset, byteLength } = value.data as Float32Array;
  const data = new Uint8Array(buffer as ArrayBuffer, byteOffset, byteLength).slice();
  return { type: value.type, dims: [...value.dims], data };
}
