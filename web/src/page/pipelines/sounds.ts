// Decodes the sounds that a page passes to pipelines.

import type { TaskSound } from "../../protocol/tasks.ts";
import { InputError } from "../../shared/errors.ts";
import { message } from "../../shared/words.ts";
import { fetched, inputName } from "./inputs.ts";

/** Samples of one channel, between -1 and 1. */
export interface RawSound {
  audio: Float32Array;
  sampling_rate: number;
}

/**
 * A sound: an address, a file of any format that the browser decodes, or samples. A Float32Array
 * has the sampling rate that the model takes. Several channels are averaged.
 */
export type SoundInput = string | URL | Blob | Float32Array | AudioBuffer | RawSound;

const OTHER_RATE = 48_000; // of files whose own rate is not known

/**
 * Decodes a sound, at the file's own rate.
 * @returns `sampling_rate` 0 stands for that of the model
 * @throws InputError, which names the sound; Aborted
 */
export async function readSound(
  input: SoundInput,
  signal: AbortSignal | undefined,
): Promise<TaskSound> {
  const name = inputName(input, "sound");
  const sound = await samplesOf(input, name, signal);
  if (!sound.samples.length)
    throw new InputError("the sound has no samples", name, "Give at least one sample.");
  return sound;
}

async function samplesOf(
  input: SoundInput,
  name: string,
  signal: AbortSignal | undefined,
): Promise<TaskSound> {
  if (typeof input === "string" || input instanceof URL)
    return decode(await fetched(input, signal), name);
  if (input instanceof Blob) return decode(input, name);
  if (input instanceof Float32Array) return { sampling_rate: 0, samples: input.slice() };
  if ("getChannelData" in input) return mixed(input);
  const { audio, sampling_rate: rate } = input;
  if (!(audio instanceof Float32Array) || !(rate > 0 && rate <= 1e6))
    throw new InputError(
      "the input is no sound",
      name,
      "Give an address, a file, a Float32Array, an AudioBuffer or {audio, sampling_rate}.",
    );
  return { sampling_rate: rate, samples: audio.slice() };
}

async function decode(file: Blob, name: string): Promise<TaskSound> {
  const bytes = await file.arrayBuffer();
  const rate = rateOf(new DataView(bytes)) ?? OTHER_RATE;
  if (!globalThis.OfflineAudioContext)
    throw new InputError(
      "sounds cannot be decoded here, since there is no WebAudio",
      name,
      "Give samples: {audio, sampling_rate}.",
    );
  const context = (at: number) => new OfflineAudioContext(1, 1, at);
  let decoder: OfflineAudioContext;
  try {
    decoder = context(rate);
  } catch {
    decoder = context(OTHER_RATE); // the browser does not take this rate
  }
  try {
    return mixed(await decoder.decodeAudioData(bytes));
  } catch (e) {
    throw new InputError(
      `the sound cannot be decoded (${message(e)})`,
      name,
      "Give a file of a format that the browser plays, such as WAV, MP3 or FLAC.",
    );
  }
}

/** The mean of the channels. */
function mixed(buffer: AudioBuffer): TaskSound {
  const samples = new Float32Array(buffer.length);
  const n = buffer.numberOfChannels;
  for (let c = 0; c < n; c++) {
    const channel = buffer.getChannelData(c);
    for (let i = 0; i < samples.length; i++) samples[i]! += channel[i]! / n;
  }
  return { sampling_rate: buffer.sampleRate, samples };
}

const MP3_RATES = [44_100, 48_000, 32_000];

/** The sampling rate in the header of a file; undefined for formats that are not known here. */
function rateOf(view: DataView): number | undefined {
  const n = view.byteLength;
  const text = (at: number, bytes: number): string =>
    at + bytes > n ? "" : String.fromCharCode(...new Uint8Array(view.buffer, at, bytes));
  if (text(0, 4) === "RIFF" && text(12, 4) === "fmt " && n >= 28) return view.getUint32(24, true);
  if (text(0, 4) === "fLaC" && n >= 22) return view.getUint32(18) >>> 12;
  if (text(0, 4) === "OggS") {
    const at = 27 + view.getUint8(26);
    if (text(at, 7) === "\u0001vorbis" && at + 16 <= n) return view.getUint32(at + 12, true);
    return text(at, 8) === "OpusHead" ? OTHER_RATE : undefined;
  }
  let at = 0;
  if (text(0, 3) === "ID3" && n >= 10)
    for (let i = 6, size = 0; i < 10; i++, at = size + 10) size = size * 128 + view.getUint8(i);
  const head = at + 4 <= n ? view.getUint32(at) : 0;
  const [version, rate] = [(head >>> 19) & 3, MP3_RATES[(head >>> 10) & 3]];
  if (head >>> 21 !== 0x7ff || rate === undefined || version === 1 || !((head >>> 17) & 3))
    return undefined;
  return version === 3 ? rate : version === 2 ? rate / 2 : rate / 4;
}
