// Samples at the rate that a model takes, a piece at a time: those of a WAV file need no more
// memory than a piece. Mirrors python/edgewise/host/media/decode.py, with the same samples.

import type { Device } from "../../../device/device.ts";
import type { TaskSound, WavSamples } from "../../../protocol/tasks.ts";
import { throwIfAborted } from "../../../shared/abort.ts";
import { InputError } from "../../../shared/errors.ts";
import { message } from "../../../shared/words.ts";
import { Resampler } from "../../media/resample.ts";

const MAX_SAMPLES = 2 ** 28; // 1 GB: 4.6 hours at 16 kHz
const PIECE = 1 << 20; // bytes of a file that are read at once

/**
 * The samples of a sound.
 * @param rate Hz of the result
 * @throws InputError if a rate is not possible, the file cannot be read, or samples are not finite;
 *   Aborted
 */
export async function readSound(
  device: Pick<Device, "host">,
  sound: TaskSound,
  rate: number,
  signal?: AbortSignal,
): Promise<Float32Array<ArrayBuffer>> {
  const count = soundLength(sound, rate);
  if (count > MAX_SAMPLES)
    throw new InputError(
      `the sound has ${Math.round(count / rate)} s`,
      sound.name,
      "Give it in parts.",
    );
  const out = new Float32Array(count);
  let at = 0;
  for await (const piece of soundPieces(device, sound, rate, signal)) {
    out.set(piece, at);
    at += piece.length;
  }
  return out;
}

/**
 * @throws InputError if samples are NaN, infinite, or so large that a square or a variance of them
 *   would be
 */
export function checkFinite(samples: Float32Array, name: string): void {
  if (!samples.every((x) => Math.abs(x) < 2 ** 33))
    throw new InputError(
      "samples are not finite, or 2^33 and more",
      name,
      "Record or convert it again.",
    );
}

/** How many samples a sound has at a rate. */
export function soundLength(sound: TaskSound, rate: number): number {
  const count = "wav" in sound ? sound.wav.length : sound.samples.length;
  return Math.ceil((count * rate) / (sound.sampling_rate || rate));
}

/**
 * The samples of a sound in pieces of at most about 2^20 samples.
 * @throws as readSound
 */
export async function* soundPieces(
  device: Pick<Device, "host">,
  sound: TaskSound,
  rate: number,
  signal?: AbortSignal,
): AsyncGenerator<Float32Array<ArrayBuffer>> {
  const from = sound.sampling_rate || rate;
  const pieces = "wav" in sound ? wavPieces(sound.wav, sound.name) : [sound.samples];
  const resampler = from === rate ? undefined : new Resampler(device, from, rate);
  try {
    for await (const piece of pieces) {
      throwIfAborted(signal);
      checkFinite(piece, sound.name);
      yield resampler ? resampler.feed(piece) : piece;
    }
    if (resampler) yield resampler.end();
  } finally {
    resampler?.close();
  }
}

/** The mean of a WAV file's channels. */
async function* wavPieces(
  wav: WavSamples,
  name: string,
): AsyncGenerator<Float32Array<ArrayBuffer>> {
  const { file, at, length, channels, channel, bits } = wav;
  const frame = (channels * bits) / 8;
  const most = Math.floor(PIECE / frame);
  for (let first = 0; first < length; first += most) {
    const end = Math.min(first + most, length);
    let bytes: ArrayBuffer;
    try {
      bytes = await file.slice(at + first * frame, at + end * frame).arrayBuffer();
    } catch (e) {
      throw new InputError(
        `the file cannot be read (${message(e)})`,
        name,
        "It has changed or was removed: choose it again.",
      );
    }
    const flat = decoded(bytes, wav);
    yield channels === 1
      ? flat
      : channel === undefined
        ? mean(flat, channels)
        : flat.filter((_, i) => i % channels === channel);
  }
}

/** Samples of all channels in turn. A Float32Array rounds as Python's array("f"). */
function decoded(bytes: ArrayBuffer, { bits, float }: WavSamples): Float32Array<ArrayBuffer> {
  if (float) return new Float32Array(bits === 32 ? bytes : new Float64Array(bytes));
  if (bits === 16) return Float32Array.from(new Int16Array(bytes), (x) => x / 2 ** 15);
  if (bits === 32) return Float32Array.from(new Int32Array(bytes), (x) => x / 2 ** 31);
  const data = new Uint8Array(bytes);
  if (bits === 8) return Float32Array.from(data, (x) => (x - 128) / 128);
  const out = new Float32Array(data.length / 3);
  for (let i = 0, j = 0; i < out.length; i++, j += 3)
    out[i] = ((data[j]! << 8) | (data[j + 1]! << 16) | (data[j + 2]! << 24)) / 2 ** 31;
  return out;
}

function mean(flat: Float32Array, channels: number): Float32Array<ArrayBuffer> {
  const share = 1 / channels;
  const out = new Float32Array(flat.length / channels);
  for (let i = 0, j = 0; i < out.length; i++) {
    let sum = 0;
    for (let c = 0; c < channels; c++, j++) sum += flat[j]!;
    out[i] = sum * share;
  }
  return out;
}
