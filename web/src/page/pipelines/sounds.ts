// The sounds that a page passes to pipelines. WAV files are read by the worker, with the samples
// that Python reads; WebAudio decodes other files, at their own rate. The worker resamples.

import { MAX_RATE } from "../../gen/resampling.ts";
import type { TaskSound } from "../../protocol/tasks.ts";
import { aborted } from "../../shared/abort.ts";
import { InputError } from "../../shared/errors.ts";
import { fetched, inputName } from "../../shared/inputs.ts";
import { message } from "../../shared/words.ts";
import { full } from "../env.ts";
import { MAX_CHANNELS, rateOf, readWav } from "./sound-files.ts";

/** Samples between -1 and 1 (of int16: -32768 to 32767). */
export type Samples = Float32Array | Float64Array | Int16Array;

/** Samples of one channel, or a list of channels, under one of three names. */
export interface RawSound {
  array?: Samples | readonly Samples[];
  /** transformers' name for `array`. */
  raw?: Samples | readonly Samples[];
  /** transformers.js' name for `array`, in its RawAudio. */
  audio?: Samples | readonly Samples[];
  /** Hz */
  sampling_rate: number;
}

/**
 * A sound: an address, a file of any format that the browser decodes, its bytes, or samples. Arrays
 * of samples have the sampling rate that the model takes. Several channels are averaged.
 */
export type SoundInput =
  | string
  | URL
  | Blob
  | ArrayBuffer
  | Uint8Array
  | Samples
  | AudioBuffer
  | RawSound;

const OTHER_RATE = 48_000; // of files whose own rate is not known
const MAX_SAMPLES = 2 ** 29; // 9 hours at 16 kHz
const KINDS =
  "Give an address, a file or its bytes, a Float32Array, an AudioBuffer or {array, sampling_rate}.";

/** A channel and how many there are; undefined: the mean of all. */
export type Channel = readonly [index: number, of: number] | undefined;

/**
 * A sound in a form that can be sent to the worker. What the caller has is copied.
 * @param channel which one is wanted. A sound of one channel has it for all.
 * @throws InputError, which names the sound; Aborted
 */
export async function sendableSound(
  input: SoundInput,
  signal?: AbortSignal,
  channel?: Channel,
): Promise<TaskSound> {
  const name = inputName(input, "sound");
  const sound = await soundOf(input, name, signal, channel);
  if (signal?.aborted) throw aborted(signal);
  const count = "wav" in sound ? sound.wav.length : sound.samples.length;
  if (!count)
    throw new InputError("there are no samples", name, "Give a recording that is not empty.");
  if (count > MAX_SAMPLES)
    throw new InputError(`there are ${count} samples`, name, "Give the recording in parts.");
  const { sampling_rate: rate } = sound;
  if (rate !== 0 && !(Number.isInteger(rate) && rate > 0 && rate <= MAX_RATE))
    throw new InputError(
      `the sampling rate is ${rate}`,
      name,
      `Give a whole number of Hz from 1 to ${MAX_RATE}.`,
    );
  return sound;
}

/** The memory of a sound that goes to the worker with it. */
export function soundBuffers(sound: TaskSound): Transferable[] {
  return "samples" in sound ? [sound.samples.buffer] : [];
}

async function soundOf(
  input: SoundInput,
  name: string,
  signal: AbortSignal | undefined,
  channel: Channel,
): Promise<TaskSound> {
  if (typeof input === "string" || input instanceof URL)
    return decode(await fetched(full(String(input)), signal), name, channel);
  if (input instanceof Blob) return decode(input, name, channel);
  if (input instanceof ArrayBuffer || input instanceof Uint8Array)
    return decode(new Blob([input as Uint8Array<ArrayBuffer>]), name, channel);
  if (isSamples(input)) return { name, sampling_rate: 0, samples: mean([input], name) };
  if (typeof input === "object" && input !== null) {
    if ("getChannelData" in input) return ofBuffer(input, name, channel);
    if ("getAudioTracks" in input)
      throw new InputError("a stream has no end", name, "Give it to stream() of the pipeline.");
    const values = input.array ?? input.raw ?? input.audio;
    const channels = Array.isArray(values) ? (values as readonly Samples[]) : [values as Samples];
    if (channels.every(isSamples) && input.sampling_rate > 0)
      return { name, sampling_rate: input.sampling_rate, samples: mixed(channels, name, channel) };
  }
  throw new InputError("the input is no sound", name, KINDS);
}

function isSamples(x: unknown): x is Samples {
  return x instanceof Float32Array || x instanceof Float64Array || x instanceof Int16Array;
}

async function decode(file: Blob, name: string, channel: Channel): Promise<TaskSound> {
  const found = await readWav(file, name);
  if (found?.wav) {
    const wav = channel
      ? { ...found.wav, channel: picked(found.wav.channels, name, channel) }
      : found.wav;
    return { name, sampling_rate: found.sampling_rate, wav };
  }
  if (!globalThis.OfflineAudioContext)
    throw new InputError(
      "only WAV files can be decoded here, since there is no WebAudio",
      name,
      "Give samples: {array, sampling_rate}.",
    );
  const bytes = await file.arrayBuffer();
  const rate = found?.sampling_rate ?? rateOf(new DataView(bytes)) ?? OTHER_RATE;
  try {
    return ofBuffer(await decoder(rate).decodeAudioData(bytes), name, channel);
  } catch (e) {
    throw new InputError(
      `the sound cannot be decoded (${message(e)})`,
      name,
      "Give a file of a format that the browser plays, such as WAV, MP3 or FLAC.",
    );
  }
}

function decoder(rate: number): OfflineAudioContext {
  try {
    return new OfflineAudioContext(1, 1, rate);
  } catch {
    return new OfflineAudioContext(1, 1, OTHER_RATE); // the browser does not take this rate
  }
}

function ofBuffer(buffer: AudioBuffer, name: string, channel: Channel): TaskSound {
  const n = buffer.numberOfChannels;
  checkChannels(n, name);
  const channels = Array.from({ length: n }, (_, i) => buffer.getChannelData(i));
  return { name, sampling_rate: buffer.sampleRate, samples: mixed(channels, name, channel) };
}

function checkChannels(count: number, name: string): void {
  if (!(count <= MAX_CHANNELS))
    throw new InputError(`it has ${count} channels`, name, `Give at most ${MAX_CHANNELS}.`);
}

/** The channel that is wanted. @throws InputError if the sound has another number of channels */
function picked(count: number, name: string, [index, of]: readonly [number, number]): number {
  if (count === 1) return 0;
  if (count === of) return index;
  throw new InputError(`there are ${count} channels`, name, `Give one, or ${of} channels.`);
}

function mixed(
  channels: readonly Samples[],
  name: string,
  channel: Channel,
): Float32Array<ArrayBuffer> {
  return mean(channel ? [channels[picked(channels.length, name, channel)]!] : channels, name);
}

/** The mean of channels of one length, with the rounding of Python's `_mean`. */
function mean(channels: readonly Samples[], name: string): Float32Array<ArrayBuffer> {
  checkChannels(channels.length, name);
  const length = channels[0]?.length ?? 0;
  if (channels.some((c) => c.length !== length))
    throw new InputError("its channels differ in length", name, "Cut them to one length.");
  const floats = channels.map((c) =>
    c instanceof Int16Array ? Float32Array.from(c, (x) => x / 32768) : new Float32Array(c),
  );
  if (floats.length === 1) return floats[0]!;
  const share = 1 / floats.length;
  const out = new Float32Array(length);
  for (let i = 0; i < length; i++) {
    let sum = 0;
    for (const channel of floats) sum += channel[i]!;
    out[i] = sum * share;
  }
  return out;
}
